//! What the plans of official builds say, against figures taken by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{HashMap, HashSet};

use common::{ALPINE, VERSIONS, alpine_build, node_build};
use nodeprof_probes::{
    Address, AttachPlan, CallKind, CallbackSort, Family, Probe, ProbeState, Register, Role,
    SizeSource, build_id, is_node_binary,
};

/// The plans of the builds that are there.
fn plans() -> impl Iterator<Item = (&'static str, AttachPlan)> {
    VERSIONS.into_iter().filter_map(|version| {
        let path = node_build(version)?;
        Some((version, AttachPlan::for_binary(&path).unwrap()))
    })
}

fn plan(version: &str) -> Option<AttachPlan> {
    Some(AttachPlan::for_binary(&node_build(version)?).unwrap())
}

fn attached(plan: &AttachPlan) -> impl Iterator<Item = &Probe> {
    plan.probes.iter().filter(|probe| probe.is_attachable())
}

#[test]
fn versions_are_read_from_the_binary() {
    let v8 = HashMap::from([
        ("16.20.0", "9.4.146.26-node.26"),
        ("18.20.8", "10.2.154.26-node.39"),
        ("20.0.0", "11.3.244.4-node.3"),
        ("20.20.2", "11.3.244.8-node.38"),
        ("21.1.0", "11.8.172.15-node.14"),
        ("22.23.3", "12.4.254.21-node.57"),
        ("24.21.0", "13.6.233.17-node.53"),
        ("26.10.0", "14.6.202.34-node.34"),
    ]);
    for (version, plan) in plans() {
        assert_eq!(plan.binary.node_version, Some(format!("v{version}")));
        assert_eq!(plan.binary.v8_version.as_deref(), Some(v8[version]));
        assert_eq!(plan.binary.arch, "x86_64");
        assert!(!plan.binary.pie);
    }
}

/// What is attached in a build, but for what each callback has: the family, what a hit means, and how many there are of it.
fn sorts(plan: &AttachPlan) -> HashMap<(Family, String), usize> {
    let mut sorts = HashMap::new();
    for probe in attached(plan).filter(|probe| probe.family != Family::Verify) {
        let role = serde_json::to_value(&probe.role).unwrap();
        let name = match &role {
            serde_json::Value::Object(fields) => fields.keys().next().unwrap(),
            other => other.as_str().unwrap(),
        };
        if !matches!(
            probe.role,
            Role::FastEntry { .. } | Role::PropertyEntry { .. }
        ) {
            *sorts.entry((probe.family, name.to_owned())).or_default() += 1;
        }
    }
    sorts
}

#[test]
fn the_build_of_alpine_linux_has_the_probes_of_the_official_one() {
    let (Some(path), Some(official)) = (alpine_build(), plan("22.23.3")) else {
        return;
    };
    let alpine = AttachPlan::for_binary(&path).unwrap();
    assert_eq!(alpine.binary.node_version, Some(format!("v{ALPINE}")));
    assert!(alpine.binary.pie);
    assert_eq!(sorts(&alpine), sorts(&official));
}

#[test]
fn what_only_a_debugger_calls_has_no_probe() {
    for (version, plan) in plans() {
        let is_proxy = |name: &str| {
            ["NamedDebugProxy", "IndexedDebugProxy", "ContextProxy"]
                .iter()
                .any(|proxy| name.contains(proxy))
        };
        let of_callbacks = plan.callbacks.iter().filter(|c| is_proxy(&c.function));
        assert!(of_callbacks.count() > 50, "{version}: they have gone");
        let probed = plan.probes.iter().filter(|probe| is_proxy(&probe.symbol));
        assert_eq!(probed.count(), 0, "{version}");
    }
}

#[test]
fn every_family_of_every_version_has_probes() {
    for (version, plan) in plans() {
        for family in [
            Family::Phases,
            Family::Crossings,
            Family::PackageJson,
            Family::Serialization,
            Family::Compile,
            Family::Stacks,
        ] {
            let count = attached(&plan).filter(|p| p.family == family).count();
            assert!(count > 0, "{version} {family:?}");
        }
        let unsafe_ = plan.probes.iter().filter(|p| p.state == ProbeState::Unsafe);
        // Enter and exit in two builtins of the V8 that copies them.
        let expected = if version == "18.20.8" { 4 } else { 0 };
        assert_eq!(unsafe_.count(), expected, "{version}");
        // One way to ask for a package.json, so that no lookup counts twice.
        let lookups = attached(&plan).filter(|p| matches!(p.role, Role::Lookup { .. }));
        assert_eq!(lookups.count(), 1, "{version}");
    }
}

#[test]
fn builtins_that_v8_copies_are_not_probed_and_their_calls_counted_at_the_callbacks() {
    for (version, plan) in plans() {
        let copied = version == "18.20.8";
        let in_builtins = attached(&plan)
            .filter(|p| p.symbol.starts_with("Builtins_"))
            .count();
        assert_eq!(in_builtins == 0, copied, "{version}");
        let counted_at = if copied {
            Family::Crossings
        } else {
            Family::Verify
        };
        let mut entries = attached(&plan).filter(|p| matches!(p.role, Role::CallbackEntry { .. }));
        assert!(entries.all(|p| p.family == counted_at), "{version}");
    }
}

#[test]
fn milestones_are_numbered_as_the_binary_numbers_them() {
    let first = HashMap::from([
        ("16.20.0", 0),
        ("18.20.8", 0),
        ("20.0.0", 0),
        ("21.1.0", 1),
        ("20.20.2", 2),
        ("22.23.3", 2),
        ("24.21.0", 2),
        ("26.10.0", 2),
    ]);
    for (version, plan) in plans() {
        assert_eq!(
            plan.milestones[0],
            (first[version], "environment".to_owned())
        );
        assert_eq!(
            plan.milestones[5],
            (first[version] + 5, "bootstrapComplete".to_owned())
        );
        assert_eq!(plan.milestones.len(), 6);
    }
}

#[test]
fn callbacks_are_as_many_as_counted_by_signature() {
    // Functions, property callbacks and Fast API functions by `nm -C` and the rules of `names.rs`.
    let counts = HashMap::from([
        ("16.20.0", (930, 102, 2)),
        ("18.20.8", (975, 105, 2)),
        ("20.0.0", (967, 106, 53)),
        ("20.20.2", (989, 107, 70)),
        ("21.1.0", (998, 105, 56)),
        ("22.23.3", (1083, 122, 107)),
        ("24.21.0", (1200, 127, 122)),
        ("26.10.0", (1299, 140, 127)),
    ]);
    for (version, plan) in plans() {
        let count = |sort| plan.callbacks.iter().filter(|c| c.sort == sort).count();
        let found = (
            count(CallbackSort::Function),
            count(CallbackSort::Property),
            count(CallbackSort::Fast),
        );
        assert_eq!(found, counts[version], "{version}");
        assert!(plan.callbacks.is_sorted_by_key(|c| c.address));
    }
}

#[test]
fn a_callback_is_found_by_its_exact_entry() {
    for (version, plan) in plans() {
        let callback = plan
            .callbacks
            .iter()
            .find(|c| c.function == "InternalModuleStat")
            .unwrap();
        assert_eq!(callback.binding, "fs", "{version}");
        assert_eq!(plan.callback_at(callback.address), Some(callback));
        assert_eq!(plan.callback_at(Address(callback.address.0 + 1)), None);
    }
}

#[test]
fn call_sites_are_those_found_by_hand() {
    let data: serde_json::Value =
        serde_json::from_str(include_str!("data/api-call-sites.json")).unwrap();
    for (version, known) in data["versions"].as_object().unwrap() {
        let Some(plan) = plan(version) else { continue };
        let build_id = plan.binary.build_id.clone().unwrap().0;
        assert_eq!(build_id, known["build_id"].as_str().unwrap());
        for (builtin, site) in known["sites"].as_object().unwrap() {
            let by_hand = |key: &str| {
                let text = site[key][0].as_str().unwrap().trim_start_matches("0x");
                u64::from_str_radix(text, 16).unwrap()
            };
            let found = |enter: bool| {
                let mut probes = plan.probes.iter().filter(|p| {
                    p.symbol == *builtin && matches!(p.role, Role::CallEnter { .. }) == enter
                });
                let probe = probes.next().unwrap();
                assert!(probes.next().is_none());
                probe.address.unwrap().0
            };
            // In 16 and 18 the jump noted by hand lies on the branch that is not profiled: the right site is the
            // conditional jump that both branches share.
            let shared = HashMap::from([
                (0x156_e9bb, 0x156_e9a2),
                (0x156_eaf2, 0x156_ead9),
                (0x169_74de, 0x169_74c5),
                (0x169_7615, 0x169_75fc),
            ]);
            let enter = by_hand("entry_emul");
            assert_eq!(
                found(true),
                shared.get(&enter).copied().unwrap_or(enter),
                "{version} {builtin}"
            );
            assert_eq!(found(false), by_hand("exit_emul"), "{version} {builtin}");
        }
    }
}

/// Sites in C++ code: (function, kind, register, enter, exit), read in `objdump -d`.
type CppSite = (&'static str, CallKind, Register, u64, u64);

#[test]
fn calls_from_cpp_are_seen_where_the_compiler_put_them() {
    use CallKind::{ByCaller, ByMark, Construct, Slow};
    let known: [(&str, &[CppSite]); 4] = [
        (
            "16.20.0",
            &[
                (
                    "HandleApiCallHelper<false>",
                    Slow,
                    Register::R15,
                    0xd3_df05,
                    0xd3_df49,
                ),
                (
                    "HandleApiCallHelper<true>",
                    Construct,
                    Register::R13,
                    0xd3_edb8,
                    0xd3_edfd,
                ),
            ],
        ),
        (
            "20.20.2",
            &[(
                "FunctionCallbackArguments::Call(",
                ByCaller,
                Register::R14,
                0xf5_0ba9,
                0xf5_0bed,
            )],
        ),
        (
            "22.23.3",
            &[
                (
                    "HandleApiCallHelper<true>",
                    Construct,
                    Register::R15,
                    0x129_af9e,
                    0x129_b015,
                ),
                (
                    "Builtins::InvokeApiFunction",
                    Slow,
                    Register::R15,
                    0x129_bae5,
                    0x129_bb69,
                ),
            ],
        ),
        (
            "26.10.0",
            &[(
                "FunctionCallbackArguments::CallOrConstruct",
                ByMark,
                Register::R13,
                0xd2_9aaa,
                0xd2_9b19,
            )],
        ),
    ];
    for (version, sites) in known {
        let Some(plan) = plan(version) else { continue };
        for (function, kind, register, enter, exit) in sites {
            let expected = [
                (
                    *enter,
                    Role::CallEnter {
                        kind: *kind,
                        callback: *register,
                        slot: None,
                    },
                ),
                (*exit, Role::CallExit { kind: *kind }),
            ];
            for (address, role) in expected {
                let probe = attached(&plan).find(|p| p.address == Some(Address(address)));
                let probe = probe.unwrap_or_else(|| panic!("{version}: no probe at {address:#x}"));
                assert!(
                    probe.symbol.contains(function),
                    "{version} {}",
                    probe.symbol
                );
                assert_eq!(probe.role, role, "{version}");
            }
        }
    }
}

#[test]
fn a_callback_that_no_register_holds_is_found_on_the_stack() {
    // By `objdump -d`: the last `jne` before `mov -0x108(%rbp),%rax; call *%rax` in HandleApiCallHelper<true>, and the `je` behind.
    let Some(plan) = plan("19.8.1") else { return };
    let kind = CallKind::Construct;
    let expected = [
        (
            0xe3_9fd2,
            Role::CallEnter {
                kind,
                callback: Register::Rbp,
                slot: Some(-0x108),
            },
        ),
        (0xe3_a01d, Role::CallExit { kind }),
    ];
    for (address, role) in expected {
        let mut probes = attached(&plan).filter(|p| p.role == role);
        let probe = probes.next().unwrap();
        assert_eq!(probe.address, Some(Address(address)));
        assert!(probe.symbol.contains("HandleApiCallHelper<true>"));
        assert!(probes.next().is_none());
    }
}

#[test]
fn a_construction_is_told_from_a_call_where_one_site_serves_both() {
    for (version, plan) in plans() {
        let sites = |wanted: CallKind| {
            attached(&plan)
                .filter(|p| matches!(p.role, Role::CallEnter { kind, .. } if kind == wanted))
                .count()
        };
        let marks = attached(&plan)
            .filter(|p| matches!(p.role, Role::CallMark { .. }))
            .count();
        let expected = match version {
            "20.0.0" | "20.20.2" => (1, 0, 0),
            "26.10.0" => (0, 1, 1),
            _ => (0, 0, 0),
        };
        let found = (sites(CallKind::ByCaller), sites(CallKind::ByMark), marks);
        assert_eq!(found, expected, "{version}");
        // Address and size of HandleApiCallHelper<true>, by `nm -S`.
        let constructor = plan.constructor.map(|c| (c.start.0, c.end.0 - c.start.0));
        let expected = match version {
            "20.0.0" => Some((0xef_76b0, 0x339)),
            "20.20.2" => Some((0xf5_1080, 0x339)),
            _ => None,
        };
        assert_eq!(constructor, expected, "{version}");
    }
}

#[test]
fn nothing_that_javascript_calls_gets_a_return_probe() {
    for (version, plan) in plans() {
        let callbacks: HashSet<_> = plan.callbacks.iter().map(|c| c.address).collect();
        for probe in attached(&plan).filter(|p| p.with_return) {
            let address = probe.address.unwrap();
            assert!(!callbacks.contains(&address), "{version} {}", probe.symbol);
            assert!(
                !probe.symbol.starts_with("Builtins_"),
                "{version} {}",
                probe.symbol
            );
        }
        let call_sites = plan
            .probes
            .iter()
            .filter(|p| matches!(p.role, Role::CallEnter { .. } | Role::CallExit { .. }));
        assert_eq!(call_sites.filter(|p| p.with_return).count(), 0);
    }
}

#[test]
fn a_size_that_is_known_only_at_return_has_a_return_probe() {
    for (version, plan) in plans() {
        for probe in attached(&plan) {
            if let Role::Serialization { size, .. } = &probe.role
                && matches!(
                    size,
                    SizeSource::ReturnedString
                        | SizeSource::ReturnedSize
                        | SizeSource::FieldAtReturn { .. }
                )
            {
                assert!(probe.with_return, "{version} {}", probe.symbol);
            }
        }
    }
}

#[test]
fn offsets_follow_from_addresses_and_segments() {
    for (version, plan) in plans() {
        assert!(plan.text.start <= plan.builtins.start && plan.builtins.end <= plan.text.end);
        assert!(plan.builtins.start < plan.builtins.end);
        for probe in attached(&plan) {
            let (address, offset) = (probe.address.unwrap().0, probe.offset.unwrap().0);
            let segment = plan
                .segments
                .iter()
                .find(|s| (s.address.0..s.address.0 + s.size).contains(&address));
            let segment = segment.unwrap_or_else(|| panic!("{version} {}", probe.symbol));
            assert_eq!(offset, address - segment.address.0 + segment.offset.0);
            let builtin = (plan.builtins.start.0..plan.builtins.end.0).contains(&address);
            assert_eq!(
                builtin,
                probe.symbol.starts_with("Builtins_"),
                "{version} {}",
                probe.symbol
            );
        }
    }
}

#[test]
fn no_two_probes_of_a_family_share_an_instruction() {
    for (version, plan) in plans() {
        let mut seen = HashMap::new();
        for probe in attached(&plan) {
            let mark = matches!(probe.role, Role::CallMark { .. });
            if let Some(other) = seen.insert((probe.family, mark, probe.offset), &probe.symbol) {
                panic!("{version}: {other} and {} share a probe", probe.symbol);
            }
        }
    }
}

#[test]
fn only_functions_without_a_cheap_instruction_are_slow() {
    // A function that moves the stack pointer first (`sub rsp`), or calls nothing at all.
    for (version, plan) in plans() {
        let slow: Vec<_> = plan
            .probes
            .iter()
            .filter(|p| p.state == ProbeState::SlowInstruction)
            .collect();
        let entry = |p: &&&Probe| matches!(p.role, Role::CallbackEntry { .. });
        assert_eq!(slow.iter().filter(entry).count(), slow.len(), "{version}");
        assert!(slow.iter().all(|p| p.reason.is_some()), "{version}");
        assert!(slow.len() < 20, "{version}: {}", slow.len());
    }
}

#[test]
fn each_compilation_is_counted_by_one_function_per_unit() {
    for (version, plan) in plans() {
        let functions = attached(&plan)
            .filter(|p| p.symbol.contains("CompileFunction") && p.symbol.starts_with("v8::"))
            .count();
        assert_eq!(functions, 1, "{version}");
    }
}

#[test]
fn a_span_is_one_function() {
    for (version, plan) in plans() {
        let mut names: Vec<_> = attached(&plan)
            .filter_map(|p| match &p.role {
                Role::Span { name } => Some(name.as_str()),
                _ => None,
            })
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{version}: {names:?}");
        assert_eq!(count, 13, "{version}: {names:?}");
    }
}

#[test]
fn what_is_not_attached_says_why() {
    for (version, plan) in plans() {
        for probe in plan.probes.iter().filter(|p| !p.is_attachable()) {
            assert!(probe.reason.is_some(), "{version} {}", probe.symbol);
            assert!(probe.offset.is_none() && !probe.with_return);
        }
    }
}

#[test]
fn a_node_binary_is_recognised_and_identified() {
    for version in VERSIONS {
        let Some(path) = node_build(version) else {
            continue;
        };
        assert!(is_node_binary(&path), "{version}");
        let plan = AttachPlan::for_binary(&path).unwrap();
        assert_eq!(build_id(&path).unwrap(), plan.binary.build_id);
    }
    let this_test = std::env::current_exe().unwrap();
    assert!(!is_node_binary(&this_test));
    assert!(!is_node_binary(std::path::Path::new("/")));
}

#[test]
fn a_plan_survives_json() {
    let Some(plan) = plan("20.20.2") else { return };
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<AttachPlan>(&text).unwrap(), plan);
}
