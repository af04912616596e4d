//! Binary + catalogue → plan.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use aho_corasick::{AhoCorasick, MatchKind};
use iced_x86::{Code, InstructionInfoFactory, OpAccess, Register as Iced};

use crate::callsites::{self, Callee, Holder};
use crate::catalogue::{self, CallSiteEntry, CodeKind, Pattern, ProbeEntry, ReturnWish};
use crate::decode;
use crate::elf::{self, Binary, Function};
use crate::error::PlanError;
use crate::mapping::Mapping;
use crate::names;
use crate::onward;
use crate::plan::{
    Address, AddressRange, AttachPlan, BinaryIdentity, Callback, CallbackSort, Family, PLAN_SCHEMA,
    PathSource, Probe, ProbeState, Register, Role, SizeSource,
};
use crate::safety::{self, ReturnsToV8};
use crate::v8::V8Layout;
use crate::versions;

/// Accessors for which V8's inline caches stand in: how often the C++ one runs depends on the state of the
/// caches, and differed from run to run of the same program (570 to 573 in a start of express).
const SERVED_BY_CACHES: [&str; 4] = [
    "v8::internal::Accessors::StringLengthGetter(",
    "v8::internal::Accessors::ArrayLengthGetter(",
    "v8::internal::Accessors::ArrayLengthSetter(",
    "v8::internal::Accessors::ReconfigureToDataProperty(",
];

/// What shows the scopes of a WebAssembly function that a debugger has stopped: no call of the program's JavaScript gets there, and a
/// quarter of all breakpoints would be in them, which each start waits for.
const ONLY_OF_DEBUGGERS: [&str; 3] = [
    "v8::internal::(anonymous namespace)::NamedDebugProxy<",
    "v8::internal::(anonymous namespace)::IndexedDebugProxy<",
    "v8::internal::(anonymous namespace)::ContextProxy",
];

/// Functions that do not return: code behind a call of one is not reached from it.
const NEVER_RETURN: [&[u8]; 9] = [
    b"V8_Fatal",
    b"_Z8V8_FatalPKcz",
    b"_Z8V8_FatalPKciS0_z",
    b"abort",
    b"_ZN4node6AssertERKNS_13AssertionInfoE",
    b"_ZN4node5AbortEv",
    b"_ZSt9terminatev",
    b"__stack_chk_fail",
    b"_ZN2v84base5FatalEPKcz",
];

/// Whether the function at `address` does not return.
pub(crate) fn never_returns(binary: &Binary<'_>, address: u64) -> bool {
    binary
        .function_at(address)
        .is_some_and(|function| NEVER_RETURN.contains(&function.name))
}

/// How far behind a function's first instruction a probe may stand: a prologue is shorter.
const FURTHEST_ENTRY: usize = 16;

/// A pattern means a handful of functions; a binary with more of them lies.
const MOST_MATCHES: usize = 64;

/// Functions that the catalogue or their signatures pick; official builds have 5,000. A plan keeps a probe for each.
const MOST_NAMED: usize = 64 << 10;
/// Bytes of their names; official builds have 1 MB.
const MOST_NAMED_BYTES: usize = 32 << 20;

/// Bytes that their names make the demangler read, those that it reads again counted each time; of official builds it may read 2.1 million.
const MOST_READ: u64 = 8 << 20;

/// How often the search for call sites looks at an instruction; in official builds 12,000 times.
const MOST_LOOKS: usize = 128 << 10;

/// Milestone numbers begin at 0, 1 or 2.
const HIGHEST_FIRST_MILESTONE: u32 = 16;

/// Of the function that node calls if it is started with `--use-largepages`; gone from Node.js 26.
const MOVES_CODE: &[u8] = b"_ZN4node25MapStaticCodeToLargePages";

/// In every name of a function that JavaScript calls.
const CALLBACK_NEEDLES: [&str; 4] = [
    "20FunctionCallbackInfo",
    "20PropertyCallbackInfo",
    "22FastApiCallbackOptions",
    "FastApi",
];

pub(crate) fn resolve(
    path: &Path,
    data: &[u8],
    can_be_mapped_again: bool,
) -> Result<AttachPlan, PlanError> {
    let binary = Binary::parse(path, data)?;
    let catalogue = catalogue::load()?;
    let named = NamedFunctions::find(path, &binary, &catalogue)?;
    let (callbacks, callback_names) = callbacks(&named);
    let returns = ReturnsToV8::new(&binary, called_by_javascript(&named, &callbacks));

    let copies_builtins = copies_builtins(&binary, can_be_mapped_again);
    let resolver = Resolver {
        binary: &binary,
        named: &named,
        returns: &returns,
        copies_builtins,
        read: Cell::new(named.read),
        looks: Cell::new(MOST_LOOKS),
        code_left: Cell::new(returns.left()),
    };
    let mut probes = Vec::new();
    for family in &catalogue {
        for site in &family.call_site {
            resolver.call_site(family.family, site, &mut probes);
        }
        for entry in &family.probe {
            resolver.probe(family.family, entry, &mut probes);
        }
    }
    let go_on = onward::go_on(&callbacks, |address| binary.code(address));
    for (index, (callback, onward)) in callbacks.iter().zip(go_on).enumerate() {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let name = callback_names[&callback.address];
        let is_cached = SERVED_BY_CACHES.iter().any(|head| name.starts_with(head));
        // Some have the type of what they return before their name.
        if is_cached || ONLY_OF_DEBUGGERS.iter().any(|part| name.contains(part)) {
            continue;
        }
        let (family, role) = match callback.sort {
            // Where the builtins cannot be probed, calls from optimised code are counted at the callbacks.
            CallbackSort::Function => {
                let family = match copies_builtins {
                    Some(_) => Family::Crossings,
                    None => Family::Verify,
                };
                let role = Role::CallbackEntry {
                    callback: index,
                    group: onward.group,
                    goes_on: onward.goes_on,
                };
                (family, role)
            }
            CallbackSort::Property => {
                let role = Role::PropertyEntry {
                    callback: index,
                    group: onward.group,
                    goes_on: onward.goes_on,
                };
                (Family::Crossings, role)
            }
            CallbackSort::Fast => (Family::Crossings, Role::FastEntry { callback: index }),
        };
        probes.push(resolver.at_entry(family, name, callback.address.0, role, ReturnWish::No));
    }

    let constructor = catalogue
        .iter()
        .flat_map(|family| &family.call_site)
        .find_map(|site| resolver.constructor(site));
    let milestones = resolver.milestones();
    let strings = versions::find(&binary);
    let plan = AttachPlan {
        schema: PLAN_SCHEMA,
        binary: BinaryIdentity {
            path: path.to_owned(),
            build_id: binary.outline.build_id(),
            arch: "x86_64".to_owned(),
            node_version: strings.node,
            v8_version: strings.v8,
            pie: binary.outline.pie(),
        },
        text: binary.text,
        builtins: named.builtins,
        constructor,
        first_nonstring_type: binary
            .v8_constants
            .get("FirstNonstringType")
            .and_then(|value| u16::try_from(*value).ok()),
        v8_layout: V8Layout::find(&binary.v8_constants, &binary.translation_operands),
        segments: binary.segments.clone(),
        bytecode_sizes: binary.bytecode_sizes.clone(),
        probes,
        callbacks,
        moves_code: binary
            .functions
            .iter()
            .any(|f| f.name.starts_with(MOVES_CODE)),
        milestones,
    };
    Ok(plan)
}

/// Everything that a builtin calls: V8 reads their return addresses.
fn called_by_javascript<'a>(
    named: &'a NamedFunctions<'_>,
    callbacks: &'a [Callback],
) -> impl Iterator<Item = u64> + 'a {
    callbacks
        .iter()
        .map(|callback| callback.address.0)
        .chain(named.called_by_builtins.iter().copied())
}

/// The functions on whose return address V8 relies, for the tests of [`ReturnsToV8`].
#[cfg(test)]
pub(crate) fn returns_to_v8(binary: &Binary<'_>) -> Result<ReturnsToV8, PlanError> {
    let named = NamedFunctions::find(Path::new("node"), binary, &catalogue::load()?)?;
    let (callbacks, _) = callbacks(&named);
    Ok(ReturnsToV8::new(
        binary,
        called_by_javascript(&named, &callbacks),
    ))
}

/// A function of interest with its demangled name.
struct Named<'d> {
    function: Function<'d>,
    /// Demangled, without the suffix of a clone.
    name: String,
    /// `constprop` of `….constprop.0`; empty if the function is no clone.
    clone: &'d str,
}

/// What the catalogue and the signatures pick from a binary's functions.
struct NamedFunctions<'d> {
    functions: Vec<Named<'d>>,
    /// C++ functions that builtins call through an exit frame (`Builtin_…`, `Runtime_…`): V8 reads their return addresses too.
    called_by_builtins: Vec<u64>,
    builtins: AddressRange,
    /// See [`MOST_READ`].
    read: u64,
}

impl<'d> NamedFunctions<'d> {
    /// Demangling a hundred thousand names would take a second: only those that can matter are.
    fn find(
        path: &Path,
        binary: &Binary<'d>,
        catalogue: &[catalogue::FamilyCatalogue],
    ) -> Result<Self, PlanError> {
        let patterns = catalogue.iter().flat_map(|family| {
            let probes = family.probe.iter().flat_map(|probe| {
                [
                    Some(&probe.symbol),
                    probe.unless.as_ref(),
                    probe.unless_it_calls.as_ref(),
                ]
                .into_iter()
                .flatten()
            });
            let sites = family
                .call_site
                .iter()
                .flat_map(|site| [Some(&site.symbol), site.constructs_in.as_ref()]);
            probes.chain(sites.flatten())
        });
        let mut needles: Vec<String> = patterns.map(Pattern::needle).collect();
        needles.extend(CALLBACK_NEEDLES.map(str::to_owned));
        needles.sort();
        needles.dedup();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&needles)
            .map_err(|error| PlanError::Catalogue {
                file: "(all)",
                what: error.to_string(),
            })?;

        let mut functions = Vec::new();
        let mut called_by_builtins = Vec::new();
        let (mut first, mut last) = (u64::MAX, 0);
        let mut named_bytes = 0;
        let mut read = 0;
        for function in &binary.functions {
            let what = if functions.len() > MOST_NAMED || named_bytes > MOST_NAMED_BYTES {
                "it has more functions for JavaScript, or longer names of them, than any node"
            } else if read > MOST_READ {
                "the names of its functions take longer to read than those of any node"
            } else {
                ""
            };
            if !what.is_empty() {
                return Err(PlanError::Malformed {
                    path: path.to_owned(),
                    what: what.to_owned(),
                });
            }
            if let Some(rest) = function.name.strip_prefix(elf::BUILTIN) {
                first = first.min(function.address);
                last = last.max(function.address.saturating_add(function.size));
                if finder.is_match(function.name) && !rest.is_empty() {
                    let name = names::shown(function.name);
                    named_bytes += name.len();
                    functions.push(Named {
                        function: *function,
                        name,
                        clone: "",
                    });
                }
                continue;
            }
            let (mangled, suffix) = names::split_clone(function.name);
            if mangled.ends_with(b"EiPmPNS0_7IsolateE") && mangled.starts_with(b"_ZN2v88internal") {
                called_by_builtins.push(function.address);
                continue;
            }
            let clone = clone_kind(suffix);
            if clone == "cold" || !(finder.is_match(mangled) || is_fast_name(mangled)) {
                continue;
            }
            if let Some(name) = names::demangle_counted(mangled, &mut read) {
                named_bytes += name.len();
                functions.push(Named {
                    function: *function,
                    name,
                    clone,
                });
            }
        }
        let builtins = AddressRange {
            start: Address(first.min(last)),
            end: Address(last),
        };
        Ok(Self {
            functions,
            called_by_builtins,
            builtins,
            read,
        })
    }

    /// Functions that a pattern means, one per address.
    fn matching<'s>(&'s self, pattern: &Pattern, clones: &[String]) -> Vec<&'s Named<'d>> {
        let mut found: Vec<&Named<'d>> = Vec::new();
        for named in &self.functions {
            if found.len() == MOST_MATCHES {
                break;
            }
            let wanted = named.clone.is_empty() || clones.iter().any(|kind| kind == named.clone);
            // A lambda within a function carries the function's name in its own.
            let lambda = named.name.contains("{lambda(") || named.name.contains("::$_");
            if wanted
                && !lambda
                && pattern.matches(&named.name)
                && found
                    .iter()
                    .all(|other| other.function.address != named.function.address)
            {
                found.push(named);
            }
        }
        found
    }
}

/// Link-time optimisation by GCC and by LLVM names a function of one file so that no other has its name: it is no clone.
const RENAMED: [&str; 2] = ["lto_priv", "llvm"];

/// `.part.0.constprop.1` → `part`; nothing if there is no suffix, or only `.lto_priv.0`.
fn clone_kind(suffix: &[u8]) -> &str {
    let text = std::str::from_utf8(suffix).unwrap_or(".unreadable");
    if text.contains(".cold") {
        return "cold";
    }
    let mut parts = text.trim_start_matches('.').split('.').peekable();
    while let Some(part) = parts.next() {
        if !RENAMED.contains(&part) {
            return part;
        }
        parts.next_if(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    }
    ""
}

/// Names of Fast API functions share no type with each other, only `Fast` at the start of an identifier.
fn is_fast_name(mangled: &[u8]) -> bool {
    mangled.starts_with(b"_ZN4node")
        && memchr::memmem::find_iter(mangled, b"Fast").any(|at| {
            let before = at.checked_sub(1).and_then(|i| mangled.get(i));
            let after = mangled.get(at + 4);
            before.is_some_and(u8::is_ascii_digit) && after.is_some_and(u8::is_ascii_uppercase)
        })
}

/// The functions that JavaScript calls, by ascending address, and the symbol of each.
fn callbacks<'n>(named: &'n NamedFunctions<'_>) -> (Vec<Callback>, HashMap<Address, &'n str>) {
    let mut by_address: BTreeMap<u64, (&'n str, CallbackSort)> = BTreeMap::new();
    for function in &named.functions {
        if !function.clone.is_empty() {
            continue;
        }
        if let Some(sort) = names::sort_of(&function.name) {
            by_address
                .entry(function.function.address)
                .or_insert((&function.name, sort));
        }
    }
    let mut symbols = HashMap::new();
    let callbacks = by_address
        .into_iter()
        .map(|(address, (name, sort))| {
            let (binding, function) = names::binding_and_function(name);
            symbols.insert(Address(address), name);
            Callback {
                address: Address(address),
                binding,
                function,
                sort,
            }
        })
        .collect();
    (callbacks, symbols)
}

struct Resolver<'a, 'd> {
    binary: &'a Binary<'d>,
    named: &'a NamedFunctions<'d>,
    returns: &'a ReturnsToV8,
    /// Why, if it does.
    copies_builtins: Option<&'static str>,
    /// See [`MOST_READ`].
    read: Cell<u64>,
    /// What is left of [`MOST_LOOKS`].
    looks: Cell<usize>,
    /// See [`ReturnsToV8::left`].
    code_left: Cell<u64>,
}

impl Resolver<'_, '_> {
    fn call_site(&self, family: Family, entry: &CallSiteEntry, probes: &mut Vec<Probe>) {
        let roles = |callback: Holder| {
            [
                Role::CallEnter {
                    kind: entry.kind,
                    callback: callback.register,
                    slot: callback.slot,
                },
                Role::CallExit { kind: entry.kind },
            ]
        };
        let without = |symbol: &str, state, reason: &str, probes: &mut Vec<Probe>| {
            for role in roles(Register::Rdx.into()) {
                probes.push(unattached(symbol, family, role, state, reason));
            }
        };
        let found = self.named.matching(&entry.symbol, &entry.clones);
        if found.is_empty() {
            without(
                &entry.symbol.0,
                ProbeState::Absent,
                NO_SUCH_FUNCTION,
                probes,
            );
        }
        for named in found {
            let address = named.function.address;
            let callee = match entry.code {
                CodeKind::Builtin => Callee::NotFromIsolate,
                CodeKind::Cpp => Callee::Cpp,
            };
            let never_returns = |target| never_returns(self.binary, target);
            let mut looks = self.looks.get();
            let code = self.binary.code(address);
            let sites = callsites::find(code, address, callee, &mut looks, &never_returns);
            self.looks.set(looks);
            match sites {
                Ok(sites) => {
                    let [enter, exit] = roles(sites.callback);
                    for (role, at) in [(enter, sites.enter), (exit, sites.exit)] {
                        let mut probe = self.attached(family, &named.name, role, at, None);
                        if entry.code == CodeKind::Builtin
                            && let Some(why) = self.copies_builtins
                        {
                            probe.state = ProbeState::Unsafe;
                            probe.offset = None;
                            probe.reason = Some(why.to_owned());
                        }
                        probes.push(probe);
                    }
                }
                Err(callsites::NoSites::NoCall) if entry.optional => without(
                    &named.name,
                    ProbeState::Absent,
                    "this build calls the callback in another function, which is probed",
                    probes,
                ),
                Err(why) => without(&named.name, ProbeState::Unsafe, why.reason(), probes),
            }
        }
    }

    /// The function that a site of this binary is called from for a construction.
    fn constructor(&self, entry: &CallSiteEntry) -> Option<AddressRange> {
        let of = |pattern| self.named.matching(pattern, &entry.clones).first().copied();
        of(&entry.symbol)?;
        let function = of(entry.constructs_in.as_ref()?)?.function;
        Some(AddressRange {
            start: Address(function.address),
            end: Address(function.address.saturating_add(function.size)),
        })
    }

    fn probe(&self, family: Family, entry: &ProbeEntry, probes: &mut Vec<Probe>) {
        let exists = |pattern: &Pattern| !self.named.matching(pattern, &[]).is_empty();
        let absent = |reason: &str| {
            unattached(
                &entry.symbol.0,
                family,
                entry.role.clone(),
                ProbeState::Absent,
                reason,
            )
        };
        if let Some(other) = &entry.unless
            && exists(other)
        {
            probes.push(absent(&format!("not needed: this version has {}", other.0)));
            return;
        }
        let found = self.named.matching(&entry.symbol, &entry.clones);
        if found.is_empty() {
            probes.push(absent(NO_SUCH_FUNCTION));
        }
        for named in found {
            let calls = |inner: &Pattern| match self.calls(named.function.address, inner) {
                Some(false) => None,
                Some(true) => Some((
                    ProbeState::Absent,
                    format!("not needed: it calls {}, which is probed", inner.0),
                )),
                None => Some((
                    ProbeState::Unsafe,
                    format!("the binary is too large to tell if it calls {}", inner.0),
                )),
            };
            if let Some((state, reason)) = entry.unless_it_calls.as_ref().and_then(calls) {
                let role = entry.role.clone();
                probes.push(unattached(&named.name, family, role, state, &reason));
                continue;
            }
            probes.push(self.at_entry(
                family,
                &named.name,
                named.function.address,
                entry.role.clone(),
                entry.return_probe,
            ));
        }
    }

    /// The code of a function that is looked at from its beginning to its end; `None` if there is more of such code than in any node.
    fn whole_code(&self, address: u64) -> Option<&[u8]> {
        let code = self.binary.code(address);
        let left = self.code_left.get().checked_sub(code.len() as u64)?;
        self.code_left.set(left);
        Some(code)
    }

    /// Whether the function at `address` calls or jumps to one that the pattern means; `None` if that takes too long to tell.
    fn calls(&self, address: u64, pattern: &Pattern) -> Option<bool> {
        let inner: Vec<u64> = self
            .named
            .matching(pattern, &[])
            .into_iter()
            .map(|named| named.function.address)
            .filter(|inner| *inner != address)
            .collect();
        let mut instructions = decode::decode(self.whole_code(address)?, address);
        Some(instructions.any(|instruction| {
            let target = if instruction.code() == Code::Call_rel32_64 {
                Some(instruction.near_branch_target())
            } else {
                decode::jump_target(&instruction)
            };
            target.is_some_and(|target| inner.contains(&target))
        }))
    }

    /// A probe at a function's entry, and at its return if that is wished and safe.
    fn at_entry(
        &self,
        family: Family,
        symbol: &str,
        address: u64,
        mut role: Role,
        wish: ReturnWish,
    ) -> Probe {
        let mut reason = None;
        let mut with_return = wish == ReturnWish::CalledByCpp;
        if with_return {
            if let Some(from) = self.returns.reached_from(address) {
                with_return = false;
                let from = self.shown(from);
                reason = Some(format!(
                    "no return probe: {from} jumps here, so V8 reads its return address"
                ));
            } else if self.returns.incomplete() {
                with_return = false;
                reason =
                    Some("no return probe: the binary is too large to prove it safe".to_owned());
            }
            if !with_return {
                forget_what_needs_a_return(&mut role);
            }
        }
        let refusal = reason.clone();
        let mut probe = self.attached(family, symbol, role, address, reason);
        if probe.state == ProbeState::SlowInstruction
            && let Some((later, role)) = self.later_entry(address, &probe.role)
        {
            let moved = format!("probed at +{}, a cheaper instruction", later - address);
            probe.reason = Some(match refusal {
                Some(refusal) => format!("{refusal}; {moved}"),
                None => moved,
            });
            probe.role = role;
            probe.address = Some(Address(later));
            probe.offset = self.binary.offset_of(later);
            probe.state = ProbeState::Resolved;
        }
        probe.with_return = with_return && probe.is_attachable();
        probe
    }

    /// An emulated instruction in the first straight piece of a function, as good as its entry for a probe: the stack
    /// pointer is still that of the entry, and every register that the role reads still lies somewhere. Gives the role with
    /// those registers.
    ///
    /// A return probe may move as well: the kernel takes the return address from the stack pointer at the hit
    /// (`arch_uretprobe_hijack_return_addr`). Measured on 24.21.0, `Utf8Value` at +35: 36,050 entries, 36,050 returns.
    fn later_entry(&self, address: u64, role: &Role) -> Option<(u64, Role)> {
        let code = self.binary.code(address);
        let mut factory = InstructionInfoFactory::new();
        // Which argument each register holds.
        let mut held: [Option<Register>; 16] = Register::ALL.map(Some);
        for instruction in decode::decode(code, address).take(FURTHEST_ENTRY) {
            let start = usize::try_from(instruction.ip() - address).ok()?;
            if decode::is_emulated(&instruction, code.get(start..)?) {
                let later = instruction.ip();
                // Reached again from inside the function, it would count twice.
                let again = decode::decode(self.whole_code(address)?, address)
                    .filter_map(|jump| decode::jump_target(&jump))
                    .any(|target| target > address && target <= later);
                let holder = |argument: Register| {
                    let is_in = |register: &Register| held[*register as usize] == Some(argument);
                    Some(argument)
                        .filter(is_in)
                        .or_else(|| Register::ALL.into_iter().find(is_in))
                };
                return (!again)
                    .then_some(())
                    .and(with_registers(role, &holder))
                    .map(|role| (later, role));
            }
            if instruction.flow_control() != iced_x86::FlowControl::Next {
                return None;
            }
            if let Some((to, from)) = decode::register_copy(&instruction)
                && to != Register::Rsp
                && from != Register::Rsp
            {
                held[to as usize] = held[from as usize];
                continue;
            }
            for used in factory.info(&instruction).used_registers() {
                let register = used.register().full_register();
                if register == Iced::RSP {
                    return None;
                }
                let writes = !matches!(
                    used.access(),
                    OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
                );
                if writes && let Some(register) = decode::register(register) {
                    held[register as usize] = None;
                }
            }
        }
        None
    }

    /// A probe on the instruction at `address`.
    fn attached(
        &self,
        family: Family,
        symbol: &str,
        role: Role,
        address: u64,
        reason: Option<String>,
    ) -> Probe {
        let Some(offset) = self.binary.offset_of(address) else {
            return unattached(
                symbol,
                family,
                role,
                ProbeState::Unsafe,
                "its address lies outside the file's code",
            );
        };
        let code = self.binary.bytes(address, 16);
        let Some(first) = decode::decode(code, address).next() else {
            return unattached(
                symbol,
                family,
                role,
                ProbeState::Unsafe,
                "there is no valid instruction at its address",
            );
        };
        let (state, reason) = if decode::is_emulated(&first, code) {
            (ProbeState::Resolved, reason)
        } else {
            let slow = format!(
                "the kernel single-steps its first instruction (`{:?}`)",
                first.mnemonic()
            );
            let slow = slow.to_lowercase();
            let both = reason.map_or(slow.clone(), |reason| format!("{reason}; {slow}"));
            (ProbeState::SlowInstruction, Some(both))
        };
        Probe {
            symbol: symbol.to_owned(),
            family,
            role,
            state,
            reason,
            address: Some(Address(address)),
            offset: Some(offset),
            with_return: false,
        }
    }

    /// A short name of a function for a sentence.
    fn shown(&self, address: u64) -> String {
        let Some(function) = self.binary.function_at(address) else {
            return format!("{address:#x}");
        };
        let mut read = self.read.get();
        let name = (read <= MOST_READ)
            .then(|| names::demangle_counted(names::split_clone(function.name).0, &mut read))
            .flatten()
            .unwrap_or_else(|| names::shown(function.name));
        self.read.set(read);
        names::split_arguments(&name).map_or(name.clone(), |(head, _)| head.to_owned())
    }

    /// Milestone numbers → names. The enum grew at its front: the event loop's function marks `loopStart` and `loopExit`,
    /// the fourth and fifth of the names below, and so tells the number of the first.
    fn milestones(&self) -> Vec<(u32, String)> {
        const NAMES: [&str; 6] = [
            "environment",
            "nodeStart",
            "v8Start",
            "loopStart",
            "loopExit",
            "bootstrapComplete",
        ];
        const LOOP_START: u32 = 3;
        let address_of = |prefix: &str| {
            self.named
                .functions
                .iter()
                .find(|named| named.clone.is_empty() && named.name.starts_with(prefix))
                .map(|named| named.function.address)
        };
        let Some(mark) = address_of("node::performance::PerformanceState::Mark(") else {
            return Vec::new();
        };
        let first = ["node::SpinEventLoopInternal(", "node::SpinEventLoop("]
            .into_iter()
            .filter_map(address_of)
            .find_map(|function| {
                let code = self.binary.code(function);
                let mut numbers = safety::second_arguments(code, function, mark);
                numbers.sort_unstable();
                numbers.dedup();
                match numbers.as_slice() {
                    [start, exit] if *exit == start + 1 => start
                        .checked_sub(LOOP_START)
                        .filter(|first| *first <= HIGHEST_FIRST_MILESTONE),
                    _ => None,
                }
            });
        match first {
            Some(first) => (first..).zip(NAMES.map(str::to_owned)).collect(),
            None => Vec::new(),
        }
    }
}

const COPIED_BUILTINS: &str = "this V8 copies its builtins, breakpoints included, for workers and large heaps, and \
                               a copied breakpoint kills the program: these calls are counted, not timed";

const COPIED_BUILTINS_OF_FILE: &str = "this V8 copies its builtins, breakpoints included, where it cannot map its file a second time, as here: the file system \
                                       tells of mappings another device than of files (btrfs, some overlayfs), or not everybody may read the file; a copied \
                                       breakpoint kills the program: these calls are counted, not timed";

/// Why this V8 may copy its embedded builtins into the code range at run time, if it may.
///
/// V8 10.2 (Node 18) does so by memcpy if the old space may reach 2 GB: in every worker on a machine with the
/// memory for it, and in the main isolate with `--max-old-space-size=2048` or more. A breakpoint in the
/// copy is known to nobody: SIGTRAP. V8 9.4 (Node 16) has the function, but its flag is compiled out on x86-64;
/// from 11.3 on (Node 20) the file is mapped a second time instead, and uprobes work there. But where V8 does not find the file by path, device and inode of
/// `/proc/self/maps` it copies, too (`OS::RemapPages` of platform-linux.cc).
fn copies_builtins(binary: &Binary<'_>, can_be_mapped_again: bool) -> Option<&'static str> {
    const COPIES: &[u8] = b"_ZN2v88internal9CodeRange21RemapEmbeddedBuiltins";
    const MAPS_AGAIN: &[u8] = b"_ZN2v84base2OS10RemapPages";
    const FLAG: &[u8] = b"Put embedded builtins code into the code range";
    let has = |prefix: &[u8]| binary.functions.iter().any(|f| f.name.starts_with(prefix));
    let why = match has(MAPS_AGAIN) {
        false => COPIED_BUILTINS,
        true if can_be_mapped_again => return None,
        true => COPIED_BUILTINS_OF_FILE,
    };
    let mut read_only = binary.outline.read_only_data();
    let mut is_compiled_in = || read_only.any(|data| memchr::memmem::find(data, FLAG).is_some());
    (has(COPIES) && is_compiled_in()).then_some(why)
}

const NO_SUCH_FUNCTION: &str = "this version of node has no such function";

fn unattached(symbol: &str, family: Family, role: Role, state: ProbeState, reason: &str) -> Probe {
    Probe {
        symbol: symbol.to_owned(),
        family,
        role,
        state,
        reason: Some(reason.to_owned()),
        address: None,
        offset: None,
        with_return: false,
    }
}

/// Without a return probe what is read at return stays unknown.
fn forget_what_needs_a_return(role: &mut Role) {
    if let Role::Serialization { size, .. } = role
        && matches!(
            size,
            SizeSource::ReturnedString
                | SizeSource::ReturnedSize
                | SizeSource::FieldAtReturn { .. }
        )
    {
        *size = SizeSource::Unknown;
    }
}

/// The role with each register it reads replaced by `holder`; `None` if one is held nowhere.
fn with_registers(role: &Role, holder: &dyn Fn(Register) -> Option<Register>) -> Option<Role> {
    let path = |path: &PathSource| {
        Some(match *path {
            PathSource::StringView { length, pointer } => PathSource::StringView {
                length: holder(length)?,
                pointer: holder(pointer)?,
            },
            PathSource::CString(register) => PathSource::CString(holder(register)?),
            PathSource::V8Handle(register) => PathSource::V8Handle(holder(register)?),
            PathSource::CompilerSource(register) => PathSource::CompilerSource(holder(register)?),
            PathSource::CallbackArgument { info, index } => PathSource::CallbackArgument {
                info: holder(info)?,
                index,
            },
            PathSource::None => PathSource::None,
        })
    };
    let size = |size: &SizeSource| {
        Some(match *size {
            SizeSource::LengthArgument(register) => SizeSource::LengthArgument(holder(register)?),
            SizeSource::SizeArgument(register) => SizeSource::SizeArgument(holder(register)?),
            SizeSource::StringArgument(register) => SizeSource::StringArgument(holder(register)?),
            SizeSource::FieldAtReturn { object, offset } => SizeSource::FieldAtReturn {
                object: holder(object)?,
                offset,
            },
            same
            @ (SizeSource::ReturnedString | SizeSource::ReturnedSize | SizeSource::Unknown) => same,
        })
    };
    Some(match role {
        Role::Milestone { number, timestamp } => Role::Milestone {
            number: holder(*number)?,
            timestamp: holder(*timestamp)?,
        },
        Role::Lookup { path: source } => Role::Lookup {
            path: path(source)?,
        },
        Role::Compile { path: source, unit } => Role::Compile {
            path: path(source)?,
            unit: *unit,
        },
        Role::Serialization {
            function,
            size: source,
        } => Role::Serialization {
            function: function.clone(),
            size: size(source)?,
        },
        Role::CallMark { flag } => Role::CallMark {
            flag: holder(*flag)?,
        },
        Role::CallEnter {
            kind,
            callback,
            slot,
        } => Role::CallEnter {
            kind: *kind,
            callback: holder(*callback)?,
            slot: *slot,
        },
        Role::Import { referrer } => Role::Import {
            referrer: holder(*referrer)?,
        },
        Role::Load { name } => Role::Load { name: path(name)? },
        Role::WasmModule { module, bytes } => Role::WasmModule {
            module: holder(*module)?,
            bytes: holder(*bytes)?,
        },
        Role::WasmCode {
            module,
            index,
            slot,
        } => Role::WasmCode {
            module: holder(*module)?,
            index: holder(*index)?,
            slot: *slot,
        },
        Role::WasmScript { module } => Role::WasmScript {
            module: holder(*module)?,
        },
        Role::CodeMoved { delta } => Role::CodeMoved {
            delta: holder(*delta)?,
        },
        Role::Request { resource } => Role::Request {
            resource: holder(*resource)?,
        },
        Role::Resume { resource } => Role::Resume {
            resource: holder(*resource)?,
        },
        Role::CallbackScope { scope } => Role::CallbackScope {
            scope: holder(*scope)?,
        },
        Role::RequestScope { scope, resource } => Role::RequestScope {
            scope: holder(*scope)?,
            resource: holder(*resource)?,
        },
        Role::CallbackScopeEnd { scope } => Role::CallbackScopeEnd {
            scope: holder(*scope)?,
        },
        same @ (Role::CallExit { .. }
        | Role::FastEntry { .. }
        | Role::PropertyEntry { .. }
        | Role::CallbackEntry { .. }
        | Role::ToJs
        | Role::Span { .. }
        | Role::CodeCacheHit
        | Role::Parse
        | Role::Code
        | Role::CollectionBegin
        | Role::CollectionEnd
        | Role::IsolateTaken) => same.clone(),
    })
}

/// The same of a file that is there until the end: not of one that lost something meanwhile, which would be missing in the plan.
pub(crate) fn of_whole(path: &Path, data: &Mapping) -> Result<AttachPlan, PlanError> {
    let plan = resolve(path, data, data.can_be_mapped_again());
    if data.was_cut() {
        return Err(PlanError::Malformed {
            path: path.to_owned(),
            what: "it was cut off while it was read".to_owned(),
        });
    }
    plan
}

impl AttachPlan {
    /// Reads the binary at `path` and says what can be probed in it.
    ///
    /// Takes some 200 ms for an official build; see [`AttachPlan::load_or_build`] for the way that keeps the answer.
    ///
    /// # Errors
    /// [`PlanError`] says why this file cannot be planned for. A single function that is missing is no error: its
    /// probe is in the plan, with the reason.
    pub fn for_binary(path: &Path) -> Result<Self, PlanError> {
        let data = elf::map(path)?;
        of_whole(path, &data)
    }

    /// The callback that starts exactly at `address`.
    pub fn callback_at(&self, address: Address) -> Option<&Callback> {
        let index = self
            .callbacks
            .binary_search_by_key(&address, |callback| callback.address)
            .ok()?;
        self.callbacks.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_link_time_optimisation_renames_is_no_clone() {
        for (suffix, kind) in [
            ("", ""),
            (".lto_priv.0", ""),
            (".llvm.16087093524823312478", ""),
            (".lto_priv.0.lto_priv.1", ""),
            (".part.0.constprop.1", "part"),
            (".constprop.0.isra.0", "constprop"),
            (".isra.0.lto_priv.0", "isra"),
            (".lto_priv.0.part.0", "part"),
            (".llvm.160.cold", "cold"),
            (".lto_priv.0.cold", "cold"),
        ] {
            assert_eq!(clone_kind(suffix.as_bytes()), kind, "{suffix}");
        }
    }
}
