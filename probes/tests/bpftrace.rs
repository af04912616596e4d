//! The bpftrace programs for official builds: what may be probed, and where. That they count right is tested by running them
//! (`cli/tests/oracles/bpftrace_program.rs`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::HashMap;

use common::{VERSIONS, node_build};
use nodeprof_probes::{
    AttachPlan, Probe, Role,
    bpftrace::{Group, program},
};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, SymbolKind};

fn programs(groups: &[Group]) -> impl Iterator<Item = (&'static str, AttachPlan, String)> {
    VERSIONS.into_iter().filter_map(|version| {
        let plan = AttachPlan::for_binary(&node_build(version)?).unwrap();
        let text = program(&plan, groups).unwrap();
        Some((version, plan, text))
    })
}

/// The attach points of a kind: what stands behind `KIND:PATH:`, an address.
fn points(text: &str, plan: &AttachPlan, kind: &str) -> Vec<u64> {
    let start = format!("{kind}:{}:0x", plan.binary.path.display());
    text.lines()
        .filter_map(|line| line.strip_prefix(&start))
        .map(|point| u64::from_str_radix(point.trim_end_matches(','), 16).unwrap())
        .collect()
}

/// The symbols of functions in the file, by address; a function may have several.
fn symbols(plan: &AttachPlan) -> HashMap<u64, Vec<String>> {
    let data = std::fs::read(&plan.binary.path).unwrap();
    let file = ElfFile64::<object::Endianness>::parse(&*data).unwrap();
    let mut names: HashMap<u64, Vec<String>> = HashMap::new();
    for symbol in file.symbols().filter(|s| s.kind() == SymbolKind::Text) {
        let of_address = names.entry(symbol.address()).or_default();
        of_address.extend(symbol.name().map(str::to_owned));
    }
    names
}

#[test]
fn the_program_says_for_which_binary_it_is() {
    for (version, plan, text) in programs(&Group::DEFAULT) {
        let build_id = &plan.binary.build_id.as_ref().unwrap().0;
        assert!(text.contains(&format!("node v{version} ")), "{version}");
        assert!(text.contains(build_id), "{version}");
        let entries = points(&text, &plan, "uprobe").len();
        let returns = points(&text, &plan, "uretprobe").len();
        assert!(text.contains(&format!("// {} probes (", entries + returns)));
        // A symbol costs bpftrace 0.17 0.6 s: no probe stands behind one.
        let by_symbol = format!(":{}:\"", plan.binary.path.display());
        assert!(!text.contains(&by_symbol), "{version}");
        // Taking one away takes bpftrace 0.1 s.
        assert!(entries + returns < 50, "{version}: {entries} + {returns}");
    }
}

#[test]
fn returns_are_probed_only_where_the_plan_has_proved_it_safe() {
    for (version, plan, text) in programs(&Group::ALL) {
        let safe = |probe: &&Probe| probe.with_return && matches!(probe.role, Role::Span { .. });
        let spans = plan.probes.iter().filter(safe).count();
        let returns = points(&text, &plan, "uretprobe");
        assert!(!returns.is_empty() && returns.len() <= spans, "{version}");
        let symbols = symbols(&plan);
        for symbol in returns.iter().flat_map(|address| &symbols[address]) {
            assert!(
                !symbol.contains("FunctionCallbackInfo") && !symbol.starts_with("Builtins_"),
                "{version}: {symbol}"
            );
        }
    }
}

#[test]
fn every_probe_stands_on_the_entry_of_a_function() {
    for (version, plan, text) in programs(&Group::ALL) {
        let symbols = symbols(&plan);
        let entries = points(&text, &plan, "uprobe");
        assert!(entries.len() > 1_000, "{version}: {}", entries.len());
        // bpftrace without a disassembler refuses what lies within a function.
        for point in entries {
            assert!(symbols.contains_key(&point), "{version}: {point:#x}");
        }
    }
}

#[test]
fn callbacks_are_told_at_the_entry_of_all_that_call_them() {
    for (version, plan, text) in programs(&[Group::Crossings]) {
        let enters = plan
            .probes
            .iter()
            .filter(|p| p.is_attachable() && matches!(p.role, Role::CallEnter { .. }));
        let told = text.matches("$callback = ").count();
        let untold = text.matches("@objects_called = ").count();
        assert_eq!(told + untold, enters.count(), "{version}");
        // Objects that are called as functions, in the versions where that has a function of its own.
        assert!(untold <= 1 && told >= 2, "{version}: {told}, {untold}");
    }
}

#[test]
fn builtins_that_v8_copies_are_left_out_with_the_reason() {
    for (version, plan, text) in programs(&Group::DEFAULT) {
        let symbols = symbols(&plan);
        let builtins = (points(&text, &plan, "uprobe").iter())
            .flat_map(|address| &symbols[address])
            .any(|symbol| symbol.starts_with("Builtins_"));
        let copied = version == "18.20.8";
        assert_eq!(builtins, !copied, "{version}");
        assert_eq!(text.contains("a copied breakpoint kills"), copied);
    }
}

#[test]
fn a_path_that_bpftrace_cannot_read_is_refused_with_what_to_type() {
    let Some(build) = node_build("20.20.2") else {
        return;
    };
    for (name, character) in [
        ("a b", "' '"),
        ("a:b", "':'"),
        ("a*", "'*'"),
        ("a,b", "','"),
    ] {
        let mut plan = AttachPlan::for_binary(&build).unwrap();
        plan.binary.path = format!("/opt/{name}/node").into();
        let error = program(&plan, &Group::DEFAULT).unwrap_err().to_string();
        assert!(error.contains(character), "{error}");
        assert!(error.contains("type: ln -s"), "{error}");
    }
}

#[test]
fn a_plan_of_another_file_is_refused() {
    let (Some(one), Some(other)) = (node_build("20.20.2"), node_build("24.21.0")) else {
        return;
    };
    let mut plan = AttachPlan::for_binary(&one).unwrap();
    plan.binary.path = other;
    let error = program(&plan, &Group::DEFAULT).unwrap_err().to_string();
    assert!(error.contains("is not the file that the plan was made for"));
}

#[test]
fn groups_have_one_name_each() {
    for group in Group::ALL {
        assert_eq!(Group::by_name(group.name()), Some(group));
    }
    assert_eq!(Group::by_name("files"), None);
}
