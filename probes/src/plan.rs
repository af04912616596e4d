//! The answer of this crate: which addresses of one binary to probe, and what each means.

use serde::{Deserialize, Serialize};

use crate::v8::V8Layout;

/// Version of the serialised [`AttachPlan`]; a cached plan of another version is rebuilt.
pub const PLAN_SCHEMA: u32 = 11;

/// An address as the linker wrote it into the ELF file (`st_value`), before any load bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Address(pub u64);

/// An offset into the binary file: what the kernel wants for a uprobe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileOffset(pub u64);

/// Half-open range of link-time addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    /// First address of the range.
    pub start: Address,
    /// First address after the range.
    pub end: Address,
}

/// The GNU build-id note, as lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BuildId(pub String);

/// A group of probes that is switched on, or fails, as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Milestones and spans of a start.
    Phases,
    /// Calls between JavaScript and C++.
    Crossings,
    /// What Node asks of its package.json reader.
    PackageJson,
    /// File operations (syscall tracepoints: no probe in the binary).
    Files,
    /// Values made or read by C++.
    Serialization,
    /// Scripts and modules compiled.
    Compile,
    /// fork, exec and exit (scheduler tracepoints: no probe in the binary).
    Processes,
    /// What walking mixed stacks needs to know.
    Stacks,
    /// Entry probes on every binding callback: a check of `Crossings`, off unless asked for.
    Verify,
}

/// A general-purpose register that holds a value at a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Register {
    Rax = 0,
    Rcx = 1,
    Rdx = 2,
    Rbx = 3,
    Rsp = 4,
    Rbp = 5,
    Rsi = 6,
    Rdi = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
    R11 = 11,
    R12 = 12,
    R13 = 13,
    R14 = 14,
    R15 = 15,
}

impl Register {
    /// Every register, in the order of its number.
    pub const ALL: [Self; 16] = [
        Self::Rax,
        Self::Rcx,
        Self::Rdx,
        Self::Rbx,
        Self::Rsp,
        Self::Rbp,
        Self::Rsi,
        Self::Rdi,
        Self::R8,
        Self::R9,
        Self::R10,
        Self::R11,
        Self::R12,
        Self::R13,
        Self::R14,
        Self::R15,
    ];
}

/// Where the path of a lookup or of a compilation is found at function entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathSource {
    /// `std::string_view` passed in two registers: not NUL-terminated.
    StringView {
        /** Length in bytes. */
        length: Register,
        /** First byte. */
        pointer: Register,
    },
    /// NUL-terminated C string in a register.
    CString(Register),
    /// `v8::Local<v8::Value>` (address of a handle of a V8 string) in a register.
    V8Handle(Register),
    /// Argument `index` of the `v8::FunctionCallbackInfo` in the register, a V8 string.
    CallbackArgument {
        /** Holds `FunctionCallbackInfo*`. */
        info: Register,
        /** From 0. */
        index: u8,
    },
    /// `v8::ScriptCompiler::Source*` in the register: its `resource_name` at +8, a handle of a V8 string.
    CompilerSource(Register),
    /// No path can be had at this probe.
    None,
}

/// How many bytes (or characters) one serialization call handles, read at entry or at return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeSource {
    /// Value of a register at entry, as a signed 32-bit number; negative means "until NUL" (then as `ReturnedString`).
    LengthArgument(Register),
    /// Value of a register at entry, as an unsigned 64-bit number.
    SizeArgument(Register),
    /// Length of the V8 string whose handle is returned in `rax`.
    ReturnedString,
    /// Length of the V8 string whose handle is in the register at entry (`this` or an argument).
    StringArgument(Register),
    /// The number returned in `rax`.
    ReturnedSize,
    /// First word of the object in the register at entry, read at return (`MaybeStackBuffer::length_`, `Utf8Value::length_`): offset in bytes.
    FieldAtReturn {
        /** `this`. */
        object: Register,
        /** Of the 64-bit length within it. */
        offset: u8,
    },
    /// Not known.
    Unknown,
}

/// What happens at a probe: the contract between this crate and the BPF programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Just before V8 calls a callback through a pointer; every path to that call passes here, and leads to it.
    ///
    /// Only `callback` is certain to be set. In the builtins `rbp` is the frame of the call, the same as at
    /// [`Role::CallExit`], except where the probe stands on `push %rbp`: there the frame is `rsp − 8`.
    CallEnter {
        /** Of the call. */
        kind: CallKind,
        /** Holds the callback's address. */
        callback: Register,
        /** If there is one: the register is the frame pointer, and the word this many bytes from it, a negative multiple of 8, holds the address. */
        slot: Option<i32>,
    },
    /// Just after that call, on every path that returns.
    CallExit {
        /** Of the call. */
        kind: CallKind,
    },
    /// Tells what the next `CallEnter` of kind [`CallKind::ByMark`] on this thread is; one without a mark before it is a
    /// call.
    CallMark {
        /** Holds a `bool is_construct`. */
        flag: Register,
    },
    /// A V8 Fast API function; a call whose return address is in node's C++ code is not a crossing.
    FastEntry {
        /** Index into [`AttachPlan::callbacks`]. */
        callback: u32,
    },
    /// A property callback; a call whose return address lies in `Builtins_CallApiGetter` is seen there already.
    PropertyEntry {
        /** Index into [`AttachPlan::callbacks`]. */
        callback: u32,
        /** Those that go on in one another, from 1; 0: it is none of them. */
        group: u8,
        /** It jumps to another one, or calls it: an entry of that with the same return address, or one in here, is no call of its own. */
        goes_on: bool,
    },
    /// Entry of a binding callback (family [`Family::Verify`]).
    CallbackEntry {
        /** Index into [`AttachPlan::callbacks`]. */
        callback: u32,
        /** Those that go on in one another, from 1; 0: it is none of them. */
        group: u8,
        /** It is but a jump to another one, whose entry is no call of its own. */
        goes_on: bool,
    },
    /// Entry and return of a C++ → JavaScript call.
    ToJs,
    /// `PerformanceState::Mark(this, milestone, timestamp)`.
    Milestone {
        /** Number of the milestone. */
        number: Register,
        /** CLOCK_MONOTONIC, ns. */
        timestamp: Register,
    },
    /// Entry (and, if the probe has a return, return) of a function that is a step of the start.
    Span {
        /** Name shown, for example `snapshot`. */
        name: String,
    },
    /// Node asks its package.json reader for a file.
    Lookup {
        /** Where the path is. */
        path: PathSource,
    },
    /// A value is made or read by C++.
    Serialization {
        /** Name shown, for example `String::NewFromUtf8`. */
        function: String,
        /** How to tell its size. */
        size: SizeSource,
    },
    /// A script or module is compiled. A unit of V8 (function, module) inside one of [`CompileUnit::Builtin`] on the same
    /// thread is the same compilation, seen from V8.
    Compile {
        /** Where its path is. */
        path: PathSource,
        /** Which compiler entry. */
        unit: CompileUnit,
    },
    /// V8 takes code from a cache inside the compilation that is under way.
    CodeCacheHit,
    /// V8 parses a whole script inside the compilation that is under way: there was no code for it in a cache, or V8 has rejected it.
    Parse,
    /// V8 makes machine code; a handle of it is returned in `rax`. The first word of what `rdi` points to is the isolate.
    Code,
    /// V8 has the bytes of a WebAssembly module, before it makes code of it.
    WasmModule {
        /** Points to what V8 keeps of the module (`NativeModule`). */
        module: Register,
        /** Points to where the bytes lie, and how many there are. */
        bytes: Register,
    },
    /// V8 is about to put the machine code of a WebAssembly function in its place.
    WasmCode {
        /** As for [`Role::WasmModule`]. */
        module: Register,
        /** Number of the function in its module. */
        index: Register,
        /** Where the code will lie, and its size: how many words from the stack pointer these stand. */
        slot: u8,
    },
    /// V8 makes a script of a WebAssembly module, to name it by; a handle of it is returned in `rax`.
    WasmScript {
        /** Points to a pointer to what V8 keeps of the module. */
        module: Register,
    },
    /// V8 has moved machine code: `rdi` points to its object.
    CodeMoved {
        /** How far, in bytes; signed. */
        delta: Register,
    },
    /// Node makes an asynchronous request.
    Request {
        /// Points to it.
        resource: Register,
    },
    /// Node is about to call back for a request: the next callback scope is of it.
    Resume {
        /** Points to it. */
        resource: Register,
    },
    /// A callback scope begins.
    CallbackScope {
        /// Points to it.
        scope: Register,
    },
    /// The callback scope of a request begins.
    RequestScope {
        /// Points to it.
        scope: Register,
        /// Points to the request.
        resource: Register,
    },
    /// A callback scope ends, when this returns: promises that were settled in it have been seen to.
    CallbackScopeEnd {
        /// Points to it.
        scope: Register,
    },
    /// V8 begins to collect garbage: until it has, objects move and cannot be read.
    CollectionBegin,
    /// V8 has collected garbage: objects may lie elsewhere.
    CollectionEnd,
    /// A thread takes over an isolate, in which another one may have collected garbage.
    IsolateTaken,
    /// V8 asks node for the module that an import statement means; a handle of it is returned in `rax`.
    Import {
        /** `v8::Local<v8::Module>` of the module with the statement. */
        referrer: Register,
    },
    /// Node makes an ES module, or asks the dynamic linker for an add-on: what it is to hold.
    Load {
        /** Where its URL or its path is. */
        name: PathSource,
    },
}

/// Kinds of a call from JavaScript to C++ seen at a call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallKind {
    /// Ordinary binding call.
    Slow,
    /// Accessor.
    Getter,
    /// `new` of a function template.
    Construct,
    /// The site serves both calls and constructions: see [`Role::CallMark`].
    ByMark,
    /// The site serves both: a construction if its function was called from [`AttachPlan::constructor`], so if the return
    /// address, at `rbp + 8`, lies there.
    ByCaller,
}

/// What is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompileUnit {
    /// One of Node's own JavaScript modules.
    Builtin,
    /// A function around a CommonJS module.
    Function,
    /// An ES module.
    Module,
    /// A script (`vm.Script`, eval, JSON …).
    Script,
}

/// What came of one wish of the catalogue in this binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeState {
    /// Can be attached.
    Resolved,
    /// Attached, but on an instruction that the kernel single-steps (some 15 µs a hit in a VM).
    SlowInstruction,
    /// This version of Node has no such function.
    Absent,
    /// The function exists, but the probe could crash or miscount: not attached.
    Unsafe,
}

/// One wish of the catalogue and what came of it in this binary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Demangled name of the function, or the catalogue's pattern where none was found.
    pub symbol: String,
    /// Which family needs it.
    pub family: Family,
    /// What a hit means.
    pub role: Role,
    /// Whether it can be attached.
    pub state: ProbeState,
    /// Why not, why slow, why without a return probe, or why some bytes behind the function's entry; `None` where the wish
    /// was fulfilled to the letter. Registers in `role` are those at the probed instruction.
    pub reason: Option<String>,
    /// Link-time address of the probed instruction. It is not always the function's first: see `reason`.
    pub address: Option<Address>,
    /// File offset of the probed instruction.
    pub offset: Option<FileOffset>,
    /// Whether a return probe belongs to it, proven safe (never on a function V8 calls from JavaScript, nor one reached by a tail jump from such).
    pub with_return: bool,
}

impl Probe {
    /// Whether this probe is to be attached.
    pub fn is_attachable(&self) -> bool {
        matches!(
            self.state,
            ProbeState::Resolved | ProbeState::SlowInstruction
        ) && self.offset.is_some()
    }
}

/// A C++ function that JavaScript can call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// Link-time address of its entry.
    pub address: Address,
    /// C++ module reached by `internalBinding`, derived from the C++ namespace or class, for example `fs`.
    pub binding: String,
    /// Name within the binding, for example `InternalModuleStat`.
    pub function: String,
    /// Whether it is a function, property or Fast API callback.
    pub sort: CallbackSort,
}

/// Kinds of C++ callbacks by their signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallbackSort {
    /// `void (FunctionCallbackInfo<Value> const&)`.
    Function,
    /// Takes a `PropertyCallbackInfo`: getter, setter, interceptor.
    Property,
    /// V8 Fast API function.
    Fast,
}

/// What is known of the binary as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinaryIdentity {
    /// Path it was read from.
    pub path: std::path::PathBuf,
    /// `None` if the linker wrote none: such a plan is not cached.
    pub build_id: Option<BuildId>,
    /// `x86_64`, or another architecture by its ELF name.
    pub arch: String,
    /// For example `v20.20.2`, from the binary's own data.
    pub node_version: Option<String>,
    /// For example `11.3.244.8-node.38`.
    pub v8_version: Option<String>,
    /// Position-independent: addresses need the load bias.
    pub pie: bool,
}

/// Everything needed to attach to one binary. No kernel was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachPlan {
    /// [`PLAN_SCHEMA`].
    pub schema: u32,
    /// Which binary.
    pub binary: BinaryIdentity,
    /// Executable segment(s) of the binary that hold C++ and builtins.
    pub text: AddressRange,
    /// V8's embedded builtins (`Builtins_*`), a part of `text`.
    pub builtins: AddressRange,
    /// V8's C++ function that makes objects of function templates, where a site of kind [`CallKind::ByCaller`] has to know.
    pub constructor: Option<AddressRange>,
    /// Load segments: (virtual address, file offset, size in the file) of each PT_LOAD that is executable.
    pub segments: Vec<Segment>,
    /// Every wish of the catalogue, attachable or not. The index is the probe's id.
    pub probes: Vec<Probe>,
    /// Functions that JavaScript can call, by ascending address.
    pub callbacks: Vec<Callback>,
    /// V8 instance types below this are strings (`v8dbg_FirstNonstringType`); `None`: the binary does not tell,
    /// then no string is read.
    pub first_nonstring_type: Option<u16>,
    /// What names JavaScript frames; or why they stay nameless.
    pub v8_layout: Result<V8Layout, String>,
    /// Bytes of each instruction of V8's bytecode, by opcode: with operands of one byte, then of two, then of four. Empty if the binary does not tell.
    pub bytecode_sizes: Vec<u8>,
    /// Whether it can move its own code to large pages (`--use-largepages`), breakpoints included.
    pub moves_code: bool,
    /// Milestone numbers of `PerformanceState::Mark` → name, for example 0 → `environment`; the first number differs by
    /// version. Empty if the binary does not tell: the first one marked is `environment`.
    pub milestones: Vec<(u32, String)>,
}

impl AttachPlan {
    /// Leaves out the exits, which only tell times and nesting. Those of compilations stay: they also tell what came from a code
    /// cache, and that V8's compiler was called by node's loader. So do those that stacks need, which samples may have.
    pub fn keep_counts_only(&mut self) {
        for probe in &mut self.probes {
            probe.with_return &=
                matches!(probe.role, Role::Compile { .. }) || probe.family == Family::Stacks;
            // What only modules need, which are not known where calls have no stacks.
            let is_for_modules = matches!(
                probe.role,
                Role::Import { .. }
                    | Role::Load { .. }
                    | Role::Request { .. }
                    | Role::Resume { .. }
                    | Role::CallbackScope { .. }
                    | Role::RequestScope { .. }
                    | Role::CallbackScopeEnd { .. }
            );
            if is_for_modules {
                probe.state = ProbeState::Absent;
                probe.reason = Some("count mode knows no modules".into());
            }
            if matches!(probe.role, Role::CallExit { .. }) {
                probe.state = ProbeState::Absent;
                probe.reason = Some("count mode measures no times".into());
            }
        }
    }
}

/// An executable PT_LOAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// `p_vaddr`.
    pub address: Address,
    /// `p_offset`.
    pub offset: FileOffset,
    /// `p_filesz`, in bytes.
    pub size: u64,
}
