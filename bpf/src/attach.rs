//! From a plan to uprobe links.

use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use libbpf_rs::libbpf_sys;
use nodeprof_probes::plan::{
    AttachPlan, CallKind, Callback, CompileUnit, Family, PathSource, Probe, Register, Role,
    SizeSource,
};

use crate::{
    alone,
    closing::{OF_RETURNS, as_high, close_apart},
    expedite::Expedited,
    leaving::{leave, pin_all},
    skeleton, wire,
};

/// File offsets and cookies of all probes of one binary, ready for the kernel.
#[derive(Clone, Debug, Default)]
pub struct AttachPoints {
    entry_offsets: Vec<libc::c_ulong>,
    entry_cookies: Vec<u64>,
    return_offsets: Vec<libc::c_ulong>,
    return_cookies: Vec<u64>,
}

impl AttachPoints {
    /// Takes the attachable probes of the wished families. `binary` is the index that records will carry.
    pub fn new(plan: &AttachPlan, binary: u8, wished: impl Fn(Family) -> bool) -> Self {
        let mut points = AttachPoints::default();
        for (id, probe) in main_last(&plan.probes) {
            let Some(offset) = probe
                .offset
                .filter(|_| probe.is_attachable() && wished(probe.family))
            else {
                continue;
            };
            let mut cookie = Cookie::of(&probe.role, id as u32);
            if matches!(probe.role, Role::CallbackEntry { .. }) && probe.family == Family::Crossings
            {
                cookie.flags |= wire::COOKIE_IS_CROSSING as u8;
            }
            if probe.with_return {
                cookie.flags |= wire::COOKIE_HAS_RETURN as u8;
            }
            let raw = cookie.pack(binary);
            points.entry_offsets.push(offset.0);
            points.entry_cookies.push(raw);
            if probe.with_return {
                points.return_offsets.push(offset.0);
                points.return_cookies.push(raw);
            }
        }
        points
    }

    /// Adds a mark.
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.entry_offsets.push(mark.offset);
        self.entry_cookies.push(mark.cookie);
    }

    /// Entry points by file offset and cookie.
    pub(crate) fn entries(points: impl Iterator<Item = (u64, u64)>) -> Self {
        let (entry_offsets, entry_cookies) = points.unzip();
        AttachPoints {
            entry_offsets,
            entry_cookies,
            ..AttachPoints::default()
        }
    }

    /// Number of breakpoints.
    pub fn len(&self) -> usize {
        self.entry_offsets.len()
    }

    /// Whether there is nothing to attach.
    pub fn is_empty(&self) -> bool {
        self.entry_offsets.is_empty()
    }
}

/// A place of which each passing is told at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    offset: libc::c_ulong,
    cookie: u64,
}

impl Mark {
    /// `node::Start`: the first thing that main does. Every other probe is passed after it.
    pub(crate) fn start(plan: &AttachPlan, binary: u8) -> Option<Mark> {
        let id = plan
            .probes
            .iter()
            .position(|p| p.is_attachable() && is_main(&p.role))?;
        let probe = plan.probes.get(id)?;
        Some(Mark {
            offset: probe.offset?.0,
            // Without the flag of a return probe: a record is written at the entry.
            cookie: Cookie::of(&probe.role, id as u32).pack(binary),
        })
    }
}

/// Probes with their ids as the kernel gets them, which adds one after the other: last the beginning of main and that of the main environment, before
/// which there is no JavaScript. Who is seen to pass one of them has all others, even if its exec could not be held until then.
fn main_last(probes: &[Probe]) -> impl Iterator<Item = (usize, &Probe)> {
    let mut all: Vec<_> = probes.iter().enumerate().collect();
    all.sort_by_key(|(_, probe)| match &probe.role {
        role if is_main(role) => 1,
        Role::Span { name } if name == "main environment" => 2,
        _ => 0,
    });
    all.into_iter()
}

/// Whether the probe is at `node::Start`.
fn is_main(role: &Role) -> bool {
    matches!(role, Role::Span { name } if name == "node")
}

#[derive(Default)]
struct Cookie {
    action: u32,
    detail: u8,
    register_a: u8,
    register_b: u8,
    flags: u8,
    id: u32,
}

impl Cookie {
    fn pack(&self, binary: u8) -> u64 {
        u64::from(self.action)
            | u64::from(self.detail) << wire::COOKIE_DETAIL_SHIFT
            | u64::from(self.register_a & 15) << wire::COOKIE_REGISTER_A_SHIFT
            | u64::from(self.register_b & 15) << wire::COOKIE_REGISTER_B_SHIFT
            | u64::from(self.flags) << wire::COOKIE_FLAGS_SHIFT
            | u64::from(binary) << wire::COOKIE_BINARY_SHIFT
            | u64::from(self.id & 0xff_ffff) << wire::COOKIE_ID_SHIFT
    }

    fn of(role: &Role, probe: u32) -> Cookie {
        let mut c = Cookie {
            id: probe,
            ..Cookie::default()
        };
        match role {
            Role::CallEnter {
                kind,
                callback,
                slot,
            } => {
                c.with(wire::ACTION_CALL_ENTER, *callback);
                c.detail = call_kind(*kind);
                if let Some(slot) = slot {
                    c.flags |= wire::COOKIE_IN_SLOT as u8;
                    c.id = slot.unsigned_abs() / 8;
                }
            }
            Role::CallExit { .. } => c.action = wire::ACTION_CALL_EXIT,
            Role::CallMark { flag } => {
                c.action = wire::ACTION_CALL_MARK;
                c.register_a = *flag as u8;
            }
            Role::FastEntry { callback } => {
                c.action = wire::ACTION_FAST_ENTRY;
                c.id = *callback;
            }
            Role::PropertyEntry {
                callback,
                group,
                goes_on,
            } => {
                c.action = wire::ACTION_PROPERTY_ENTRY;
                c.id = *callback;
                c.onward(*group, *goes_on);
            }
            Role::CallbackEntry {
                callback,
                group,
                goes_on,
            } => {
                c.action = wire::ACTION_CALLBACK_ENTRY;
                c.id = *callback;
                c.onward(*group, *goes_on);
            }
            Role::ToJs => c.action = wire::ACTION_TO_JS,
            Role::Milestone { number, timestamp } => {
                c.action = wire::ACTION_MILESTONE;
                c.register_a = *number as u8;
                c.register_b = *timestamp as u8;
            }
            Role::Span { .. } => c.action = wire::ACTION_SPAN,
            Role::Lookup { path } => {
                c.action = wire::ACTION_LOOKUP;
                c.path(*path);
            }
            Role::Load { name } => {
                c.action = wire::ACTION_LOOKUP;
                c.path(*name);
                c.detail |= (wire::LOOKUP_IS_LOAD as u8) << 4;
            }
            Role::Serialization { size, .. } => {
                c.action = wire::ACTION_SERIALIZATION;
                c.size(*size);
            }
            Role::Compile { path, unit } => {
                c.action = wire::ACTION_COMPILE;
                c.path(*path);
                c.detail |= compile_unit(*unit) << 4;
            }
            Role::CodeCacheHit => c.action = wire::ACTION_CODE_CACHE_HIT,
            Role::Parse => c.action = wire::ACTION_PARSE,
            Role::Import { referrer } => c.with(wire::ACTION_IMPORT, *referrer),
            Role::Code => c.action = wire::ACTION_CODE,
            Role::WasmModule { module, bytes } => {
                c.with(wire::ACTION_WASM_MODULE, *module);
                c.register_b = *bytes as u8;
            }
            Role::WasmCode {
                module,
                index,
                slot,
            } => {
                c.with(wire::ACTION_WASM_CODE, *module);
                c.register_b = *index as u8;
                c.detail = *slot;
            }
            Role::WasmScript { module } => c.with(wire::ACTION_WASM_SCRIPT, *module),
            Role::CodeMoved { delta } => c.with(wire::ACTION_CODE_MOVED, *delta),
            Role::Request { resource } => c.with(wire::ACTION_REQUEST, *resource),
            Role::Resume { resource } => c.with(wire::ACTION_RESUME, *resource),
            Role::CallbackScope { scope } => c.with(wire::ACTION_CALLBACK_SCOPE, *scope),
            Role::RequestScope { scope, resource } => {
                c.action = wire::ACTION_REQUEST_SCOPE;
                c.register_a = *scope as u8;
                c.register_b = *resource as u8;
            }
            Role::CallbackScopeEnd { scope } => c.with(wire::ACTION_CALLBACK_SCOPE_END, *scope),
            Role::CollectionBegin => c.action = wire::ACTION_COLLECTION_BEGIN,
            Role::CollectionEnd => c.action = wire::ACTION_COLLECTION_END,
            Role::IsolateTaken => c.action = wire::ACTION_ISOLATE_TAKEN,
        }
        c
    }

    /// An action that needs one register.
    fn with(&mut self, action: u32, register: Register) {
        self.action = action;
        self.register_a = register as u8;
    }

    fn onward(&mut self, group: u8, goes_on: bool) {
        self.detail = group;
        if goes_on {
            self.flags |= wire::COOKIE_GOES_ON as u8;
        }
    }

    fn path(&mut self, source: PathSource) {
        let (detail, a, b) = match source {
            PathSource::None => (wire::PATH_NONE, Register::Rax, 0),
            PathSource::StringView { length, pointer } => {
                (wire::PATH_STRING_VIEW, length, pointer as u8)
            }
            PathSource::CString(r) => (wire::PATH_C_STRING, r, 0),
            PathSource::V8Handle(r) => (wire::PATH_V8_HANDLE, r, 0),
            PathSource::CallbackArgument { info, index } => (wire::PATH_ARGUMENT, info, index),
            PathSource::CompilerSource(r) => (wire::PATH_COMPILER_SOURCE, r, 0),
        };
        self.detail = detail as u8;
        self.register_a = a as u8;
        self.register_b = b;
    }

    fn size(&mut self, source: SizeSource) {
        let (detail, register) = match source {
            SizeSource::Unknown => (wire::SIZE_UNKNOWN, Register::Rax),
            SizeSource::LengthArgument(r) => (wire::SIZE_LENGTH_ARGUMENT, r),
            SizeSource::SizeArgument(r) => (wire::SIZE_SIZE_ARGUMENT, r),
            SizeSource::ReturnedString => (wire::SIZE_RETURNED_STRING, Register::Rax),
            SizeSource::StringArgument(r) => (wire::SIZE_STRING_ARGUMENT, r),
            SizeSource::ReturnedSize => (wire::SIZE_RETURNED_SIZE, Register::Rax),
            SizeSource::FieldAtReturn { object, offset } => {
                // The upper half of the detail is the offset in words.
                self.detail = (offset / 8) << 4;
                (wire::SIZE_FIELD_AT_RETURN, object)
            }
        };
        self.detail |= detail as u8;
        self.register_a = register as u8;
    }
}

fn call_kind(kind: CallKind) -> u8 {
    (match kind {
        CallKind::Slow => wire::CALL_SLOW,
        CallKind::Getter => wire::CALL_GETTER,
        CallKind::Construct => wire::CALL_CONSTRUCT,
        CallKind::ByMark => wire::CALL_BY_MARK,
        CallKind::ByCaller => wire::CALL_BY_CALLER,
    }) as u8
}

/// The callbacks of node that functions of add-ons run in: those of Node-API, and `process.dlopen`. Those that use V8's API are called by V8.
const CALL_ADD_ON: (&str, &str) = ("napi", "FunctionCallbackWrapper::Invoke");
const LOAD_ADD_ON: (&str, &str) = ("binding", "DLOpen");

/// What the programs need to know of a binary.
pub(crate) fn image(plan: &AttachPlan) -> skeleton::types::image {
    let first = plan.segments.iter().map(|s| s.address.0).min();
    let callback = |(binding, function): (&str, &str)| {
        let is_it = |c: &&Callback| c.binding == binding && c.function == function;
        plan.callbacks.iter().find(is_it).map_or(0, |c| c.address.0)
    };
    let mut image = skeleton::types::image {
        call_add_on: callback(CALL_ADD_ON),
        load_add_on: callback(LOAD_ADD_ON),
        segment: first.unwrap_or_default(),
        position_independent: plan.binary.pie.into(),
        collection_ends: u8::from(
            plan.probes
                .iter()
                .any(|p| p.is_attachable() && p.role == Role::CollectionEnd),
        ),
        text_start: plan.text.start.0,
        text_end: plan.text.end.0,
        builtins_start: plan.builtins.start.0,
        builtins_end: plan.builtins.end.0,
        first_nonstring: plan.first_nonstring_type.map_or(0, u64::from),
        constructor_start: plan.constructor.map_or(0, |c| c.start.0),
        constructor_end: plan.constructor.map_or(0, |c| c.end.0),
        ..Default::default()
    };
    let number = |name: &str| {
        let found = plan.milestones.iter().find(|m| m.1 == name);
        found.and_then(|m| u8::try_from(m.0).ok())
    };
    if let (Some(start), Some(exit)) = (number("loopStart"), number("loopExit")) {
        [image.loop_start, image.loop_exit] = [start, exit];
    }
    if let Ok(v8) = &plan.v8_layout {
        image.function_shared = v8.function_shared;
        image.shared_name_or_scope = v8.shared_name_or_scope;
        image.shared_script = v8.shared_script;
        image.shared_flags = v8.shared_flags;
        image.script_source = v8.script_source;
        image.script_name = v8.script_name;
        image.script_id = v8.script_id;
        image.script_wrapped = v8.script_wrapped;
        image.bytecode_positions = v8.bytecode_positions;
        image.bytecode_data = v8.bytecode_data;
        image.scope_flags = v8.scope_flags;
        image.scope_first = v8.scope_first;
        image.scope_has_position = v8.scope_has_position.into();
        image.first_function_type = v8.first_function_type;
        image.last_function_type = v8.last_function_type;
        image.shared_type = v8.shared_type;
        image.script_type = v8.script_type;
        image.scope_type = v8.scope_type;
        image.bytecode_type = v8.bytecode_type;
        image.fixed_array_type = v8.fixed_array_type;
        image.function_template_type = v8.function_template_type;
        image.source_text_module_type = v8.source_text_module_type;
        [image.first_context_type, image.last_context_type] = v8.context_types;
        image.synthetic_module_type = v8.synthetic_module_type;
        image.builtin_exit_frame = v8.builtin_exit_frame.into();
        image.wasm_frame = v8.wasm_frame;
        [image.byte_array_type, image.trusted_byte_array_type] = v8.byte_array_types;
        if let Some(code) = &v8.code {
            image.code_type = code.code_type;
            image.baseline_data_type = code.baseline_data_type;
            image.code_deopt = code.deoptimization_data;
            image.code_positions = code.source_positions;
            image.code_start = code.instruction_start;
            image.code_embedded = code.embedded.into();
            image.code_size = code.instruction_size;
            image.deopt_literals = code.literals_index;
            image.deopt_shared = code.shared_index;
            image.deopt_wrapped = code.shared_wrapped.into();
            image.deopt_inlining = code.inlining_index;
            image.code_flags = code.flags;
            image.opcodes = code.opcodes;
        }
        if let Some(own) = &v8.own_names {
            image.map_descriptors = own.map_descriptors;
            image.descriptors_first = own.descriptors_first;
            image.details_location = own.details_location;
            image.dictionary_first = own.dictionary_first;
            image.accessor_info_type = own.accessor_info_type;
        }
    }
    image
}

/// The number of a compile unit on the wire.
pub(crate) fn compile_unit(unit: CompileUnit) -> u8 {
    match unit {
        CompileUnit::Builtin => 0,
        CompileUnit::Function => 1,
        CompileUnit::Module => 2,
        CompileUnit::Script => 3,
    }
}

/// An attached set of probes; dropping it detaches, which takes the kernel some 40 ms, and longer than anybody may wait if a program never rests: see
/// [`closing`](crate::closing).
#[derive(Debug)]
pub struct Link(Vec<OwnedFd>);

impl Link {
    /// Detaches, and waits for that as one who can be killed meanwhile.
    pub(crate) fn detach(self) {
        close_apart(self.0);
    }
}

/// Closes links for whose end nobody waits, if that may be: it begins at once, but may take the kernel a while. Returns what could not be left so.
pub(crate) fn leave_all(links: impl IntoIterator<Item = Link>) -> Option<Link> {
    let links = links.into_iter().flat_map(|link| link.0).collect();
    leave(links).err().map(|(left, _why)| Link(left))
}

/// The same, one after another, so that no attach has to wait long. All that may be left are pinned at first: whoever ends meanwhile waits for none of them.
pub(crate) fn leave_in_turn(links: impl IntoIterator<Item = Link>) -> Option<Link> {
    let (mut folders, mut kept) = (Vec::new(), Vec::new());
    for link in links {
        match pin_all(link.0) {
            Ok((folder, refused)) => {
                folders.push(folder);
                kept.extend(refused.into_iter().map(|(link, _why)| link));
            }
            Err((link, _why)) => kept.extend(link),
        }
    }
    for folder in folders {
        alone::leaving(|| drop(folder));
    }
    (!kept.is_empty()).then_some(Link(kept))
}

/// Threads that close links: the kernel makes each closer wait for a grace period, which all can share.
const CLOSERS: usize = 32;

/// Detaches many links in about the time of one.
pub fn detach_all(links: impl IntoIterator<Item = Link>) {
    let _expedited = Expedited::new();
    let mut shares: Vec<Vec<OwnedFd>> = (0..CLOSERS).map(|_| Vec::new()).collect();
    for (index, descriptor) in links.into_iter().flat_map(|link| link.0).enumerate() {
        shares[index % CLOSERS].push(descriptor);
    }
    let closers: Vec<_> = shares
        .into_iter()
        .filter(|share| !share.is_empty())
        .map(|share| std::thread::spawn(move || close_apart(share)))
        .collect();
    for closer in closers {
        let _ = closer.join();
    }
}

/// Attaches the points to one process's memory.
///
/// `entry` and `exit` are the program descriptors of [`Programs`](crate::Programs). Only the process `pid`
/// (all its threads) pays for the breakpoints. A link made between fork and exec covers the new image.
///
/// # Errors
/// The kernel's: `EPERM` without CAP_PERFMON, `ESRCH` if the process is gone, `EINVAL` before Linux 6.6.
pub fn attach(
    entry: RawFd,
    exit: RawFd,
    path: &Path,
    pid: u32,
    points: &AttachPoints,
) -> io::Result<Link> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let _expedited = Expedited::new();
    let _turn = alone::to_attach();
    let mut links = Vec::new();
    let sets = [
        (
            entry,
            &points.entry_offsets,
            &points.entry_cookies,
            libbpf_sys::BPF_TRACE_UPROBE_MULTI,
            0,
        ),
        (
            exit,
            &points.return_offsets,
            &points.return_cookies,
            libbpf_sys::BPF_TRACE_UPROBE_MULTI,
            RETURN_FLAG,
        ),
    ];
    // Return probes first: an entry that finds no return probe yet would open a frame that never closes.
    for (program, offsets, cookies, kind, flags) in sets.into_iter().rev() {
        if offsets.is_empty() {
            continue;
        }
        let mut options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
            ..Default::default()
        };
        options.__bindgen_anon_1.uprobe_multi.path = path.as_ptr();
        options.__bindgen_anon_1.uprobe_multi.offsets = offsets.as_ptr();
        options.__bindgen_anon_1.uprobe_multi.cookies = cookies.as_ptr();
        options.__bindgen_anon_1.uprobe_multi.cnt = offsets.len() as u32;
        options.__bindgen_anon_1.uprobe_multi.flags = flags;
        options.__bindgen_anon_1.uprobe_multi.pid = pid;
        // SAFETY: `options` and everything it points to live until the call returns; the kernel copies.
        let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, kind, &options) };
        if fd < 0 {
            // Of a process that has ended between the two, for one. Who attaches waits for nobody.
            std::thread::spawn(move || Link(links).detach());
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: a new descriptor that nobody else owns.
        let link = unsafe { OwnedFd::from_raw_fd(fd) };
        links.push(match flags {
            RETURN_FLAG => as_high(link, OF_RETURNS),
            _ => link,
        });
    }
    Ok(Link(links))
}

/// Whether probes of one process run in all of its threads. On Linux 6.6 to 6.9 without the fix of 6.10 ("bpf: fix multi-uprobe PID filtering logic") they run in the one by whose
/// number they were made, the main one: worker threads pass them uncounted. The same change has the kernel refuse negative numbers, before it looks at the path, by which
/// libbpf tells as well. `program`: one for probes, where these can be attached at all.
pub(crate) fn runs_in_all_threads(program: RawFd) -> bool {
    let offset: libc::c_ulong = 0;
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        ..Default::default()
    };
    // No file that has probes.
    options.__bindgen_anon_1.uprobe_multi.path = c"/".as_ptr();
    options.__bindgen_anon_1.uprobe_multi.offsets = &raw const offset;
    options.__bindgen_anon_1.uprobe_multi.cnt = 1;
    options.__bindgen_anon_1.uprobe_multi.pid = u32::MAX;
    let kind = libbpf_sys::BPF_TRACE_UPROBE_MULTI;
    // SAFETY: `options` and all that it points to live until the call returns.
    let fd = unsafe { libbpf_sys::bpf_link_create(program, 0, kind, &options) };
    if fd >= 0 {
        // SAFETY: a new descriptor that nobody else owns.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    -fd != libc::EBADF
}

/// `BPF_F_UPROBE_MULTI_RETURN` of linux/bpf.h.
const RETURN_FLAG: u32 = 1;

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        fs,
        time::{Duration, Instant},
    };

    use nodeprof_probes::plan::ProbeState;

    use super::*;
    use crate::{Programs, selfprobe::file_offset};

    fn probe(role: Role) -> Probe {
        Probe {
            symbol: String::new(),
            family: Family::Phases,
            role,
            state: ProbeState::Resolved,
            reason: None,
            address: None,
            offset: None,
            with_return: false,
        }
    }

    fn span(name: &str) -> Probe {
        probe(Role::Span { name: name.into() })
    }

    /// Numbers of the links that this process has open.
    fn open_links() -> Vec<u32> {
        let all = fs::read_dir("/proc/self/fdinfo").unwrap();
        let texts = all.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
        texts.filter_map(|text| number_of_link(&text)).collect()
    }

    fn number_of_link(fdinfo: &str) -> Option<u32> {
        let value = fdinfo
            .lines()
            .find_map(|line| line.strip_prefix("link_id:"))?;
        value.trim().parse().ok()
    }

    fn is_there(link: u32) -> bool {
        // SAFETY: takes an integer; the descriptor is new.
        unsafe {
            let fd = libbpf_sys::bpf_link_get_fd_by_id(link);
            fd >= 0 && libc::close(fd) == 0
        }
    }

    /// The kernel's side, as small as may be.
    pub(crate) fn programs() -> Programs {
        let options = crate::Options {
            count_only: true,
            stacks: false,
            ring_bytes: 1 << 20,
            ..crate::Options::default()
        };
        Programs::load(&options).unwrap()
    }

    /// One probe on a function of this program.
    pub(crate) fn link(programs: &Programs) -> Link {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let address = is_there as fn(u32) -> bool as usize as u64;
        let (path, offset) = file_offset(&maps, address).unwrap();
        let points = AttachPoints::entries([(offset, 0)].into_iter());
        let (entry, exit) = (programs.entry(), programs.exit());
        attach(entry, exit, &path, std::process::id(), &points).unwrap()
    }

    /// Who ends while links wait for their turn has none of them open any more, which it would close one after another.
    #[test]
    #[ignore = "needs root"]
    fn links_that_wait_to_be_left_are_not_open() {
        const LONG: Duration = Duration::from_secs(10);
        let programs = programs();
        let link = || link(&programs);
        let links = [link(), link(), link()];
        let number = |link: &Link| {
            let about = format!("/proc/self/fdinfo/{}", link.0[0].as_raw_fd());
            number_of_link(&fs::read_to_string(about).unwrap()).unwrap()
        };
        let numbers = links.each_ref().map(number);
        assert!(numbers.iter().all(|n| is_there(*n)));
        // Another test may have it for a moment.
        let mut turns = std::iter::repeat_with(alone::to_attach);
        let turn = turns.find(Option::is_some);
        let begun = Instant::now();
        let leaver = std::thread::spawn(move || leave_in_turn(links).is_none());
        while open_links().iter().any(|n| numbers.contains(n)) {
            assert!(begun.elapsed() < LONG, "still open");
        }
        // The kernel has them, until it is their turn, or nobody waits for that any longer.
        let are_there = numbers.iter().all(|n| is_there(*n));
        assert!(are_there || begun.elapsed() >= alone::PATIENCE_TO_DETACH);
        drop(turn);
        assert!(leaver.join().unwrap(), "not all could be left");
        while numbers.iter().any(|n| is_there(*n)) {
            assert!(begun.elapsed() < 2 * LONG, "still there");
        }
    }

    #[test]
    fn what_shows_that_all_probes_are_there_comes_last_and_none_is_lost() {
        let probes = [
            span("main environment"),
            span("node"),
            probe(Role::ToJs),
            span("bootstrap"),
        ];
        let order: Vec<usize> = main_last(&probes).map(|(id, _)| id).collect();
        assert_eq!(order, [2, 3, 1, 0]);
    }
}
