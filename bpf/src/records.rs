//! Decoding: from the bytes of the ring buffer to typed records. Pure; no kernel needed.

use serde::{Deserialize, Serialize};

use crate::{skeleton::types as raw, wire};

/// What every record begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Process (thread group) in the pid namespace of nodeprof.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Milestones that the thread's environment had passed; from 0x80 on those of a node that was executed in the first one's place.
    pub phase: u8,
    /// CLOCK_MONOTONIC, ns: when the thing began.
    pub time: u64,
    /// Number of the stack (of a [`Record::Walk`]) where it happened; 0: none.
    pub stack: u32,
}

/// What a frame of a stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameCode {
    /// Machine code at this address, which is not a JavaScript function's.
    Machine(u64),
    /// A JavaScript function in the interpreter.
    Interpreted {
        /** Number of its [`Record::Function`]. */
        function: u32,
        /** Into its bytecode array, from the array's first byte plus one. */
        offset: u32,
    },
    /// In code of the baseline compiler, or in code that was optimised while a loop of it ran.
    Baseline {
        /** Number of its [`Record::Function`]. */
        function: u32,
        /** Where it stood in its machine code. */
        address: u64,
        /** The address is that of a call: not the frame that ran. */
        calling: bool,
    },
    /// In optimised code, or a builtin of V8 with a closure of its own.
    Compiled {
        /** Number of its [`Record::Function`]. */
        function: u32,
        /** Where it stood in its machine code. */
        address: u64,
        /** The address is that of a call: not the frame that ran. */
        calling: bool,
    },
}

/// Code, as V8 made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRecord {
    /// Number that what belongs to it uses; 0: it is not optimised, and nothing does.
    pub number: u32,
    /// Number of the [`Record::Function`] that was compiled, if it is optimised. Not the number that frames use.
    pub function: u32,
    /// Address of its first instruction.
    pub start: u64,
    /// Bytes.
    pub size: u32,
    /// Bytes before its exits into less optimised code.
    pub exits: u32,
    /// Opcodes of its translations, where these tell the functions at a call; 0: its positions do.
    pub opcodes: u16,
    /// How many functions are inlined in it, if its translations tell where.
    pub inlined: u16,
}

/// A part of what V8 keeps to leave optimised code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TranslationsPart {
    /// What lies behind the instructions: a safepoint table first.
    Safepoints,
    /// The exits after calls, three words each.
    Exits {
        /// Other exits, which come before them.
        before: u32,
    },
    /// What stands for the frames at each exit.
    Translations,
}

/// Baseline code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaselineRecord {
    /// Number that what belongs to it uses.
    pub number: u32,
    /// Number of its [`Record::Function`], which frames use.
    pub function: u32,
    /// Address of its first instruction.
    pub start: u64,
    /// Bytes.
    pub size: u32,
}

/// A part of what tells where in its bytecode baseline code calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselinePart {
    /// How many of its bytes each instruction of the bytecode became, what comes before them first.
    Offsets,
    /// The bytecode.
    Bytecode,
}

/// A function that is inlined in optimised code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlinedRecord {
    /// Number of its [`CodeRecord`].
    pub code: u32,
    /// By which positions name it.
    pub index: u32,
    /// Number of its [`Record::Function`]; 0 if it could not be read.
    pub function: u32,
    /// Where it is called: V8's `SourcePosition`.
    pub position: u64,
}

/// A JavaScript function, as V8 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRecord {
    /// Number that frames use.
    pub number: u32,
    /// Number of its [`Record::Script`]; 0 for a builtin.
    pub script: u32,
    /// Number of the function literal in the script: 0 is the script itself.
    pub literal: u32,
    /// Flags of the `SharedFunctionInfo`.
    pub flags: u32,
    /// Its own name, or one that V8 inferred; empty if there is none.
    pub name: Vec<u8>,
    /// Where it begins in the source, in characters.
    pub position: Option<u32>,
}

/// What is told of a WebAssembly module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WasmEvent {
    /// It is there. What was told before of the same address was of another one.
    Module,
    /// Machine code of a function of it will lie there.
    Code {
        /// Its number in the module.
        function: u32,
        /// Address of its first instruction.
        start: u64,
        /// Bytes.
        size: u64,
    },
    /// The names of its functions: the content of the part with the id 1 of its section `name`.
    Names(Piece),
    /// V8 names it by this script.
    Script {
        /// Number of its [`Record::Script`].
        script: u32,
    },
}

/// A script, as V8 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptRecord {
    /// Number that functions use.
    pub number: u32,
    /// Its name; `None` if it has none that could be read.
    pub name: Option<Vec<u8>>,
    /// It is the body of a function with given arguments: a CommonJS module.
    pub wrapped: bool,
    /// Where its source lies in the program's memory; 0 if it is not in one piece.
    pub source: u64,
    /// Characters of the source.
    pub length: u64,
    /// They take two bytes each.
    pub two_byte: bool,
    /// Lines before the first one, by whoever compiled it: that one's number from 0.
    pub line_offset: i32,
    /// Columns before the first one of the first line.
    pub column_offset: i32,
}

/// What is told of an asynchronous request. Requests and scopes by their addresses, which are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinuationEvent {
    /// It was made.
    Requested {
        /** The request. */
        resource: u64,
    },
    /// Node calls back for it: all that runs from here on is its consequence.
    Begun {
        /** Node's callback scope. */
        scope: u64,
        /** The request. */
        resource: u64,
    },
    /// All that it led to has run, promises included. Of a scope that is not known, or that has ended already: nothing.
    Ended {
        /** Node's callback scope. */
        scope: u64,
    },
}

/// A piece of a text that is too long for one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies in the whole, bytes.
    pub offset: u64,
    /// Length of the whole, bytes.
    pub whole: u64,
    /// Empty if it could not be read.
    pub bytes: Vec<u8>,
}

/// Which probe of which binary wrote a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Index given to [`AttachPoints::new`](crate::AttachPoints::new).
    pub binary: u8,
    /// Index into the plan's probes.
    pub probe: u32,
}

/// Which C++ function a crossing reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Callee {
    /// Run-time address in the traced process.
    Address(u64),
    /// Index into the plan's callbacks.
    Index(u32),
}

impl Callee {
    fn new(wire_value: u64) -> Option<Callee> {
        match wire_value {
            0 => None,
            v if v & wire::CALLBACK_BY_INDEX != 0 => Some(Callee::Index(v as u32)),
            v => Some(Callee::Address(v)),
        }
    }
}

/// The end of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitRecord {
    /// As `wait(2)` tells it.
    pub exit_code: i32,
    /// None of its process is left: of several threads that end at once each may be it.
    pub last: bool,
    /// User time by ticks, ns.
    pub user: u64,
    /// System time by ticks, ns.
    pub system: u64,
    /// Exact CPU time of the thread, ns.
    pub runtime: u64,
    /// Peak resident set of the process, pages; only at the last thread.
    pub max_rss_pages: u64,
}

/// A time off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitRecord {
    /// Until it ran again, ns.
    pub duration: u64,
    /// Of it: from the wake-up on, ns.
    pub runnable: u64,
    /// The system call it was in.
    pub syscall: Option<u16>,
    /// It could have run on: another thread took the CPU.
    pub preempted: bool,
    /// In a page fault, not in a system call.
    pub fault: bool,
    /// For a block device.
    pub disk: bool,
    /// Where the program was, or where it called the kernel.
    pub ip: u64,
}

/// How a file came to be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingKind {
    /// By mmap: the offset of its first byte in the file.
    Mmap {
        /// In bytes.
        offset: u64,
    },
    /// By an exec: the range is that of the program's code, and the addresses of two more ELF headers are told (0: none).
    Exec {
        /// The dynamic linker's.
        interpreter: u64,
        /// The kernel's own code in the process.
        vdso: u64,
    },
}

/// Code of a file in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingRecord {
    /// How it came there.
    pub kind: MappingKind,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Inode number.
    pub inode: u64,
    /// Size of the file.
    pub file_size: u64,
    /// Path from the root of its mount namespace; `None` if it is too long.
    pub path: Option<Vec<u8>>,
}

/// One observation, as it comes from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Record {
    /// A crossing. `kind`: 0 slow, 1 fast, 2 getter, 3 construct, 4 to JavaScript.
    Call {
        header: Header,
        kind: u8,
        duration: Option<u64>,
        inner: u64,
        callee: Option<Callee>,
        /** Index of the node binary that the caller ran. */
        binary: u8,
        parent: Option<Callee>,
        unfinished: bool,
    },
    /// A value made or read by C++.
    Serialization {
        header: Header,
        origin: Origin,
        duration: Option<u64>,
        inner: u64,
        bytes: Option<u64>,
        parent: Option<Callee>,
        nested: bool,
    },
    /// `PerformanceState::Mark`.
    Milestone {
        header: Header,
        origin: Origin,
        number: u32,
        timestamp: u64,
    },
    /// A step of the start.
    Span {
        header: Header,
        origin: Origin,
        duration: Option<u64>,
    },
    /// Node asks for a package.json, or (`is_load`) for what a module or an add-on is to be made of; `None` if the path could not be read.
    Lookup {
        header: Header,
        origin: Origin,
        is_load: bool,
        path: Option<Vec<u8>>,
    },
    /// A compilation begins.
    CompileEnter {
        header: Header,
        origin: Origin,
        path: Option<Vec<u8>>,
    },
    /// A compilation ends (or never did).
    Compile {
        header: Header,
        origin: Origin,
        duration: Option<u64>,
        inner: u64,
        cached: bool,
    },
    /// A file operation: number of the syscall, its result, descriptor or directory, path.
    File {
        header: Header,
        syscall: u32,
        duration: u64,
        result: i64,
        descriptor: i32,
        /** Which open file the descriptor is, of an open the one that it made; 0: not told. */
        file: u32,
        path: Option<Vec<u8>>,
    },
    /// A new process or thread.
    Fork {
        header: Header,
        child_pid: u32,
        child_tid: u32,
        /** Of the child's process: another one that had its number had another round. */
        round: u8,
    },
    /// A new program: the user that it runs as, path, then the arguments; `truncated` if they were longer.
    Exec {
        header: Header,
        user: u32,
        path: Vec<u8>,
        arguments: Vec<Vec<u8>>,
        truncated: bool,
    },
    /// The environment of a new program; `None` if it could not be read. Of a service only.
    Environment {
        header: Header,
        text: Option<Vec<u8>>,
    },
    /// A thread ends.
    Exit { header: Header, exit: ExitRecord },
    /// Stacks: frames that were seen for the first time below their callers.
    Walk {
        header: Header,
        /** Number of the outermost of them; the others count on inwards. */
        first: u32,
        /** Number of the stack around them; `None` if there is none. */
        base: Option<u32>,
        /** From the outermost inwards. */
        frames: Vec<FrameCode>,
        /** Frames outside of the outermost one are missing. */
        cut: bool,
    },
    /// A JavaScript function that frames name.
    Function {
        header: Header,
        function: FunctionRecord,
    },
    /// The name of a function, where it lies in pieces.
    FunctionName {
        header: Header,
        function: u32,
        name: Option<Vec<u8>>,
    },
    /// A script that functions name.
    Script {
        header: Header,
        script: ScriptRecord,
    },
    /// V8's table of source positions of a function.
    Positions {
        header: Header,
        function: u32,
        /** Offset of the first bytecode in its array. */
        bytecode_at: u32,
        table: Piece,
    },
    /// Optimised code was made.
    Code { header: Header, code: CodeRecord },
    /// A function is inlined in it.
    Inlined {
        header: Header,
        inlined: InlinedRecord,
    },
    /// V8's table of source positions of optimised code.
    CodePositions {
        header: Header,
        /** Number of its [`CodeRecord`]. */
        code: u32,
        table: Piece,
    },
    /// A part of what V8 keeps to leave optimised code that has no table of positions.
    CodeTranslations {
        header: Header,
        /** Number of its [`CodeRecord`]. */
        code: u32,
        part: TranslationsPart,
        piece: Piece,
    },
    /// Baseline code was seen on a stack.
    Baseline {
        header: Header,
        code: BaselineRecord,
    },
    /// A part of what tells where in its bytecode baseline code calls.
    BaselineOffsets {
        header: Header,
        /** Number of its [`BaselineRecord`]. */
        code: u32,
        part: BaselinePart,
        piece: Piece,
    },
    /// Something about a WebAssembly module.
    Wasm {
        header: Header,
        /** What V8 keeps of it, by its address. */
        module: u64,
        event: WasmEvent,
    },
    /// Code was moved by the garbage collector.
    CodeMoved {
        header: Header,
        /** Address of its first instruction until then. */
        from: u64,
        /** And since. */
        to: u64,
    },
    /// The text of a script that is in no file.
    Source {
        header: Header,
        script: u32,
        /** Its characters take two bytes each, else one (Latin-1). */
        two_byte: bool,
        text: Piece,
    },
    /// An import statement was linked to a module.
    Import {
        header: Header,
        /** Number of the script with the statement. */
        requirer: u32,
        /** Number of the script that it means. */
        loaded: u32,
    },
    /// Something about an asynchronous request.
    Continuation {
        header: Header,
        event: ContinuationEvent,
    },
    /// The process sets up an io_uring: operations through it are not seen by the syscall tracepoints.
    IoUring { header: Header },
    /// A thread was running at this moment. `weight`: CPU time it stands for, ns; `ip`: where the program was, or where
    /// it called the kernel; `kernel`: addresses, innermost first.
    Sample {
        header: Header,
        weight: u64,
        ip: u64,
        kernel: Vec<u64>,
    },
    /// A thread was off the CPU.
    Wait { header: Header, wait: WaitRecord },
    /// Executable code of a file was mapped.
    Mapping {
        header: Header,
        mapping: MappingRecord,
    },
    /// A range was unmapped, or moved: start, size, new start and new size (0: nowhere).
    Unmap {
        header: Header,
        range: (u64, u64),
        to: (u64, u64),
    },
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the type needs.
    #[error("record of type {kind} has {found} bytes and needs {needed}")]
    Short {
        /** Its type. */
        kind: u8,
        /** Bytes there. */
        found: usize,
        /** Bytes needed. */
        needed: usize,
    },
    /// A type that this program does not know.
    #[error("unknown record type {0}")]
    Unknown(u8),
}

/// Reads a plain C struct. `T` must consist of integers only: every bit pattern is then a value.
fn read<T: Copy>(bytes: &[u8], kind: u8) -> Result<T, DecodeError> {
    if bytes.len() < size_of::<T>() {
        return Err(DecodeError::Short {
            kind,
            found: bytes.len(),
            needed: size_of::<T>(),
        });
    }
    // SAFETY: the length was checked, alignment is not assumed, and T has no invalid bit patterns.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The fixed part of `struct record_text`.
#[derive(Clone, Copy)]
struct TextHead {
    flags: u8,
    duration: u64,
    result: i64,
    descriptor: i32,
}

const HEADER: usize = size_of::<raw::record_header>();
/// `TEXT_OFFSET` of records.h: header, duration, result, descriptor, length.
const TEXT_OFFSET: usize = HEADER + 8 + 8 + 4 + 4;

fn text(bytes: &[u8], kind: u8) -> Result<(TextHead, Option<Vec<u8>>), DecodeError> {
    let header: raw::record_header = read(bytes, kind)?;
    let at = |offset: usize| bytes.get(offset..).unwrap_or_default();
    let length = read::<u32>(at(HEADER + 20), kind)? as usize;
    let head = TextHead {
        flags: header.flags,
        duration: read(at(HEADER), kind)?,
        result: read(at(HEADER + 8), kind)?,
        descriptor: read(at(HEADER + 16), kind)?,
    };
    let Some(content) = bytes.get(TEXT_OFFSET..TEXT_OFFSET.saturating_add(length)) else {
        return Err(DecodeError::Short {
            kind,
            found: bytes.len(),
            needed: TEXT_OFFSET.saturating_add(length),
        });
    };
    let content = if header.flags & wire::RECORD_NO_TEXT as u8 != 0 {
        None
    } else if header.flags & wire::RECORD_PIECES as u8 != 0 {
        Some(join_pieces(content))
    } else if header.flags & wire::RECORD_TWO_BYTE as u8 != 0 {
        Some(utf16(content))
    } else if header.flags & wire::RECORD_LATIN1 as u8 != 0 {
        Some(latin1(content))
    } else {
        Some(content.to_vec())
    };
    Ok((head, content))
}

fn piece(head: &TextHead, bytes: Option<Vec<u8>>) -> Piece {
    Piece {
        offset: head.result as u64,
        whole: head.duration,
        bytes: bytes.unwrap_or_default(),
    }
}

/// What precedes the frames of a `struct record_walk`.
const WALK_HEAD: usize = HEADER + 4 * 4;

fn walk(bytes: &[u8], kind: u8, header: Header, cut: bool) -> Result<Record, DecodeError> {
    let at = |offset: usize| bytes.get(offset..).unwrap_or_default();
    let base: u32 = read(at(HEADER + 4), kind)?;
    let count = read::<u32>(at(HEADER + 8), kind)? as usize;
    let needed = count.saturating_mul(16).saturating_add(WALK_HEAD);
    let Some(frames) = bytes.get(WALK_HEAD..needed) else {
        return Err(DecodeError::Short {
            kind,
            found: bytes.len(),
            needed,
        });
    };
    let frames = frames.chunks_exact(16).map(|frame| {
        let (code, position) = (frame.first_chunk(), frame.last_chunk());
        let code = u64::from_le_bytes(*code.unwrap_or(&[0; 8]));
        let position = u64::from_le_bytes(*position.unwrap_or(&[0; 8]));
        let function = code as u32;
        let address = position & ((1 << wire::WALK_KIND_SHIFT) - 1);
        let kind = (position >> wire::WALK_KIND_SHIFT) as u32;
        let calling = kind & wire::FRAME_CALLING != 0;
        match kind & !wire::FRAME_CALLING {
            wire::FRAME_INTERPRETED => FrameCode::Interpreted {
                function,
                offset: position as u32,
            },
            wire::FRAME_BASELINE => FrameCode::Baseline {
                function,
                address,
                calling,
            },
            wire::FRAME_COMPILED => FrameCode::Compiled {
                function,
                address,
                calling,
            },
            _ => FrameCode::Machine(code),
        }
    });
    Ok(Record::Walk {
        header,
        first: read(at(HEADER), kind)?,
        base: (base != wire::STACK_NONE).then_some(base),
        frames: frames.collect(),
        cut,
    })
}

/// Little-endian UTF-16 as UTF-8.
fn utf16(bytes: &[u8]) -> Vec<u8> {
    let units = bytes
        .chunks_exact(2)
        .map(|c| u16::from_le_bytes([c[0], c[1]]));
    let text: String = char::decode_utf16(units)
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    text.into_bytes()
}

/// V8's one-byte characters as UTF-8.
fn latin1(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .map(|&b| char::from(b))
        .collect::<String>()
        .into_bytes()
}

/// The pieces of a V8 string, each after its `struct piece`.
fn join_pieces(mut bytes: &[u8]) -> Vec<u8> {
    let mut joined = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([head[0], head[1]])).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        if head[2] != 0 {
            joined.extend(utf16(piece))
        } else {
            joined.extend(latin1(piece))
        }
        bytes = rest;
    }
    joined
}

fn mapping(bytes: &[u8], kind: u8) -> Result<MappingRecord, DecodeError> {
    let r: raw::record_mapping = read(bytes, kind)?;
    let how = match u32::from(r.header.kind) {
        wire::MAPPING_MMAP => MappingKind::Mmap { offset: r.offset },
        _ => MappingKind::Exec {
            interpreter: r.interpreter,
            vdso: r.vdso,
        },
    };
    let text = bytes.get(std::mem::offset_of!(raw::record_mapping, text)..);
    let text = text.and_then(|t| t.get(..r.length as usize));
    Ok(MappingRecord {
        kind: how,
        start: r.start,
        size: r.size,
        inode: r.inode,
        file_size: r.file_size,
        path: text.filter(|_| r.whole != 0).map(path_of_components),
    })
}

/// `/a/b` of `b\0a\0`.
fn path_of_components(text: &[u8]) -> Vec<u8> {
    let components = text.strip_suffix(b"\0").unwrap_or(text).rsplit(|&b| b == 0);
    components.flat_map(|c| [b"/", c].concat()).collect()
}

impl Record {
    /// Process of a record, from its bytes.
    ///
    /// # Errors
    /// [`DecodeError`] if there are too few.
    pub fn process(bytes: &[u8]) -> Result<u32, DecodeError> {
        let header: raw::record_header = read(bytes, bytes.first().copied().unwrap_or(0))?;
        Ok(header.pid)
    }

    /// The user that a process runs as from now on, if this record is of its exec.
    pub fn new_user(bytes: &[u8]) -> Option<u32> {
        let is_exec = bytes.first() == Some(&(wire::RECORD_EXEC as u8));
        is_exec.then(|| read(bytes.get(HEADER + 16..).unwrap_or_default(), bytes[0]).ok())?
    }

    /// Whether only a process that has executed its program writes this record: one whose exec failed forks and ends, too.
    pub fn is_of_program(bytes: &[u8]) -> bool {
        let others = [wire::RECORD_EXEC, wire::RECORD_FORK, wire::RECORD_EXIT];
        bytes.len() >= HEADER && !others.map(|kind| kind as u8).contains(&bytes[0])
    }

    /// Decodes one record.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not what the programs of this build write.
    pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
        let first: raw::record_header = read(bytes, bytes.first().copied().unwrap_or(0))?;
        let kind = first.r#type;
        let header = Header {
            pid: first.pid,
            tid: first.tid,
            phase: first.phase,
            time: first.time,
            stack: first.stack,
        };
        let origin = Origin {
            binary: first.id as u8,
            probe: first.id >> 8,
        };
        let has = |flag: u32| first.flags & flag as u8 != 0;
        let timed = |duration: u64| (!has(wire::RECORD_UNTIMED)).then_some(duration);
        Ok(match u32::from(kind) {
            wire::RECORD_CALL => {
                let r: raw::record_call = read(bytes, kind)?;
                Record::Call {
                    header,
                    kind: first.kind,
                    duration: timed(r.duration),
                    inner: r.inner,
                    callee: Callee::new(r.callback),
                    binary: origin.binary,
                    parent: Callee::new(r.parent),
                    unfinished: has(wire::RECORD_UNFINISHED),
                }
            }
            wire::RECORD_SERIALIZATION => {
                let r: raw::record_serialization = read(bytes, kind)?;
                Record::Serialization {
                    header,
                    origin,
                    duration: timed(r.duration),
                    inner: r.inner,
                    bytes: u64::try_from(r.bytes).ok(),
                    parent: Callee::new(r.parent),
                    nested: has(wire::RECORD_NESTED),
                }
            }
            wire::RECORD_MILESTONE => {
                let r: raw::record_milestone = read(bytes, kind)?;
                Record::Milestone {
                    header,
                    origin,
                    number: r.number,
                    timestamp: r.timestamp,
                }
            }
            wire::RECORD_SPAN => {
                let r: raw::record_span = read(bytes, kind)?;
                Record::Span {
                    header,
                    origin,
                    duration: timed(r.duration).filter(|_| !has(wire::RECORD_UNFINISHED)),
                }
            }
            wire::RECORD_LOOKUP => Record::Lookup {
                header,
                origin,
                is_load: u32::from(first.kind) == wire::LOOKUP_IS_LOAD,
                path: text(bytes, kind)?.1,
            },
            wire::RECORD_COMPILE_ENTER => Record::CompileEnter {
                header,
                origin,
                path: text(bytes, kind)?.1,
            },
            wire::RECORD_COMPILE => {
                let r: raw::record_compile = read(bytes, kind)?;
                Record::Compile {
                    header,
                    origin,
                    duration: Some(r.duration).filter(|_| !has(wire::RECORD_UNFINISHED)),
                    inner: r.inner,
                    cached: has(wire::RECORD_CACHED),
                }
            }
            wire::RECORD_FILE => {
                let (head, path) = text(bytes, kind)?;
                let path =
                    path.filter(|p| !p.is_empty() || head.flags & wire::RECORD_NO_TEXT as u8 != 0);
                Record::File {
                    header,
                    syscall: first.id,
                    duration: head.duration,
                    result: head.result,
                    descriptor: head.descriptor,
                    file: first.extra,
                    path,
                }
            }
            wire::RECORD_FORK => {
                let r: raw::record_fork = read(bytes, kind)?;
                Record::Fork {
                    header,
                    child_pid: r.child_pid,
                    child_tid: r.child_tid,
                    round: first.kind,
                }
            }
            wire::RECORD_EXEC => {
                let (head, content) = text(bytes, kind)?;
                let content = content.unwrap_or_default();
                let arguments_at = usize::try_from(head.result).unwrap_or(0).min(content.len());
                let (path, arguments) = content.split_at(arguments_at);
                let arguments = arguments.strip_suffix(b"\0").unwrap_or(arguments);
                Record::Exec {
                    header,
                    user: head.descriptor as u32,
                    path: path.split(|&b| b == 0).next().unwrap_or_default().to_vec(),
                    arguments: if arguments.is_empty() && head.result as usize >= content.len() {
                        Vec::new()
                    } else {
                        arguments.split(|&b| b == 0).map(<[u8]>::to_vec).collect()
                    },
                    truncated: head.flags & wire::RECORD_TRUNCATED as u8 != 0,
                }
            }
            wire::RECORD_ENVIRONMENT => Record::Environment {
                header,
                text: text(bytes, kind)?.1,
            },
            wire::RECORD_EXIT => {
                let r: raw::record_exit = read(bytes, kind)?;
                let exit = ExitRecord {
                    exit_code: r.exit_code,
                    last: r.last != 0,
                    user: r.user,
                    system: r.system,
                    runtime: r.runtime,
                    max_rss_pages: r.max_rss,
                };
                Record::Exit { header, exit }
            }
            wire::RECORD_IO_URING => Record::IoUring { header },
            wire::RECORD_WALK => walk(bytes, kind, header, has(wire::RECORD_CUT))?,
            wire::RECORD_FUNCTION => {
                let r: raw::record_function = read(bytes, kind)?;
                let name = r.name.map(|c| c as u8);
                let name = name.get(..r.length as usize).unwrap_or_default();
                Record::Function {
                    header,
                    function: FunctionRecord {
                        number: first.id,
                        script: r.script,
                        literal: r.literal,
                        flags: r.flags,
                        name: if has(wire::RECORD_TWO_BYTE) {
                            utf16(name)
                        } else {
                            latin1(name)
                        },
                        position: (r.position & 0xffff_ffff == 0)
                            .then_some((r.position >> 32) as u32),
                    },
                }
            }
            wire::RECORD_IMPORT => {
                let r: raw::record_import = read(bytes, kind)?;
                Record::Import {
                    header,
                    requirer: r.requirer,
                    loaded: r.loaded,
                }
            }
            wire::RECORD_FUNCTION_NAME => Record::FunctionName {
                header,
                function: first.id,
                name: text(bytes, kind)?.1,
            },
            wire::RECORD_SCRIPT => {
                let (head, name) = text(bytes, kind)?;
                Record::Script {
                    header,
                    script: ScriptRecord {
                        number: first.id,
                        name,
                        wrapped: first.kind != 0,
                        source: head.result as u64,
                        length: head.duration >> 1,
                        two_byte: head.duration & 1 != 0,
                        line_offset: head.descriptor,
                        column_offset: first.extra as i32,
                    },
                }
            }
            wire::RECORD_POSITIONS => {
                let (head, table) = text(bytes, kind)?;
                Record::Positions {
                    header,
                    function: first.id,
                    bytecode_at: head.descriptor as u32,
                    table: piece(&head, table),
                }
            }
            wire::RECORD_CODE => {
                let r: raw::record_code = read(bytes, kind)?;
                Record::Code {
                    header,
                    code: CodeRecord {
                        number: first.id,
                        function: r.function,
                        start: r.start,
                        size: r.size,
                        exits: r.exits,
                        opcodes: r.opcodes,
                        inlined: r.inlined,
                    },
                }
            }
            wire::RECORD_INLINED => {
                let r: raw::record_inlined = read(bytes, kind)?;
                Record::Inlined {
                    header,
                    inlined: InlinedRecord {
                        code: first.id,
                        index: r.index,
                        function: r.function,
                        position: r.position,
                    },
                }
            }
            wire::RECORD_CODE_POSITIONS => {
                let (head, table) = text(bytes, kind)?;
                let piece = piece(&head, table);
                let code = first.id;
                match u32::from(first.kind) {
                    wire::CODE_POSITIONS => Record::CodePositions {
                        header,
                        code,
                        table: piece,
                    },
                    kind @ (wire::CODE_OFFSETS | wire::CODE_BYTECODE) => Record::BaselineOffsets {
                        header,
                        code,
                        part: match kind {
                            wire::CODE_OFFSETS => BaselinePart::Offsets,
                            _ => BaselinePart::Bytecode,
                        },
                        piece,
                    },
                    kind => Record::CodeTranslations {
                        header,
                        code,
                        part: match kind {
                            wire::CODE_SAFEPOINTS => TranslationsPart::Safepoints,
                            wire::CODE_EXITS => TranslationsPart::Exits {
                                before: head.descriptor as u32,
                            },
                            _ => TranslationsPart::Translations,
                        },
                        piece,
                    },
                }
            }
            wire::RECORD_BASELINE => {
                let r: raw::record_baseline = read(bytes, kind)?;
                Record::Baseline {
                    header,
                    code: BaselineRecord {
                        number: first.id,
                        function: r.function,
                        start: r.start,
                        size: r.size,
                    },
                }
            }
            wire::RECORD_WASM => {
                let r: raw::record_wasm = read(bytes, kind)?;
                let event = match u32::from(first.kind) {
                    wire::WASM_MODULE => WasmEvent::Module,
                    wire::WASM_CODE => WasmEvent::Code {
                        function: r.number,
                        start: r.start,
                        size: r.size,
                    },
                    _ => WasmEvent::Script { script: r.number },
                };
                Record::Wasm {
                    header,
                    module: r.module,
                    event,
                }
            }
            wire::RECORD_WASM_NAMES => {
                let (head, names) = text(bytes, kind)?;
                Record::Wasm {
                    header,
                    module: u64::from(head.descriptor as u32) << 32 | u64::from(first.id),
                    event: WasmEvent::Names(piece(&head, names)),
                }
            }
            wire::RECORD_CODE_MOVED => {
                let r: raw::record_code_moved = read(bytes, kind)?;
                Record::CodeMoved {
                    header,
                    from: r.from,
                    to: r.to,
                }
            }
            wire::RECORD_CONTINUATION => {
                let r: raw::record_continuation = read(bytes, kind)?;
                let (scope, resource) = (r.scope, r.resource);
                let event = match u32::from(first.kind) {
                    wire::CONTINUATION_REQUESTED => ContinuationEvent::Requested { resource },
                    wire::CONTINUATION_BEGUN => ContinuationEvent::Begun { scope, resource },
                    _ => ContinuationEvent::Ended { scope },
                };
                Record::Continuation { header, event }
            }
            wire::RECORD_SOURCE => {
                let (head, source) = text(bytes, kind)?;
                Record::Source {
                    header,
                    script: first.id,
                    two_byte: first.kind != 0,
                    text: piece(&head, source),
                }
            }
            wire::RECORD_SAMPLE => {
                let r: raw::record_sample = read(bytes, kind)?;
                let depth = (r.depth as usize).min(r.kernel.len());
                Record::Sample {
                    header,
                    weight: r.weight,
                    ip: r.ip,
                    kernel: r.kernel[..depth].to_vec(),
                }
            }
            wire::RECORD_WAIT => {
                let r: raw::record_wait = read(bytes, kind)?;
                let wait = WaitRecord {
                    duration: r.duration,
                    runnable: r.runnable,
                    syscall: u16::try_from(first.id).ok(),
                    preempted: has(wire::WAIT_PREEMPTED),
                    fault: has(wire::WAIT_FAULT),
                    disk: has(wire::WAIT_DISK),
                    ip: r.ip,
                };
                Record::Wait { header, wait }
            }
            wire::RECORD_MAPPING => Record::Mapping {
                header,
                mapping: mapping(bytes, kind)?,
            },
            wire::RECORD_UNMAP => {
                let r: raw::record_unmap = read(bytes, kind)?;
                Record::Unmap {
                    header,
                    range: (r.start, r.size),
                    to: (r.to, r.to_size),
                }
            }
            _ => return Err(DecodeError::Unknown(kind)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_content_and_length_never_panic() {
        // A small multiplicative generator: reproducible without a dependency.
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        for round in 0..200_000usize {
            let mut bytes: Vec<u8> = (0..round % 300).map(|_| next()).collect();
            if let Some(first) = bytes.first_mut() {
                *first %= 27;
            }
            let _ = Record::decode(&bytes);
        }
    }

    #[test]
    fn a_short_record_is_refused_by_name() {
        assert_eq!(
            Record::decode(&[1, 0]),
            Err(DecodeError::Short {
                kind: 1,
                found: 2,
                needed: HEADER
            })
        );
        let mut bytes = [0u8; HEADER];
        bytes[0] = wire::RECORD_CALL as u8;
        assert!(matches!(
            Record::decode(&bytes),
            Err(DecodeError::Short { kind: 1, .. })
        ));
        bytes[0] = 99;
        assert_eq!(Record::decode(&bytes), Err(DecodeError::Unknown(99)));
    }

    #[test]
    fn of_an_exec_the_user_is_told_and_of_others_that_there_was_one() {
        let mut bytes = vec![0u8; TEXT_OFFSET];
        bytes[HEADER + 16..HEADER + 20].copy_from_slice(&65_534u32.to_ne_bytes());
        for (kind, user, is_of_program) in [
            (wire::RECORD_EXEC, Some(65_534), false),
            (wire::RECORD_EXIT, None, false),
            (wire::RECORD_FORK, None, false),
            (wire::RECORD_FILE, None, true),
            (wire::RECORD_MILESTONE, None, true),
        ] {
            bytes[0] = kind as u8;
            assert_eq!(Record::new_user(&bytes), user);
            assert_eq!(Record::is_of_program(&bytes), is_of_program);
        }
        bytes[0] = wire::RECORD_EXEC as u8;
        assert!(matches!(
            Record::decode(&bytes),
            Ok(Record::Exec { user: 65_534, .. })
        ));
        assert_eq!(Record::new_user(&bytes[..HEADER]), None);
        assert!(!Record::is_of_program(&[]));
    }

    #[test]
    fn the_text_lies_where_the_header_says() {
        assert_eq!(TEXT_OFFSET, std::mem::offset_of!(raw::record_text, text));
        assert_eq!(WALK_HEAD, std::mem::offset_of!(raw::record_walk, frames));
        assert_eq!(size_of::<raw::walk_frame>(), 16);
    }

    #[test]
    fn a_path_is_told_from_its_end() {
        assert_eq!(path_of_components(b"node\0bin\0usr\0"), b"/usr/bin/node");
        assert_eq!(path_of_components(b"node\0"), b"/node");
    }

    #[test]
    fn pieces_of_either_width_are_joined() {
        assert_eq!(size_of::<raw::piece>(), 4);
        assert_eq!(join_pieces(b"\x02\0\0\0/a\x04\0\x01\0/\0b\0"), b"/a/b");
        assert_eq!(join_pieces(b"\xff\0\0\0ab"), b"ab");
        assert_eq!(join_pieces(b"\x01"), b"");
        assert_eq!(join_pieces(b"\x01\0\0\0\xe4"), "ä".as_bytes());
    }

    #[test]
    fn two_byte_text_becomes_utf_8() {
        let mut bytes = vec![0u8; TEXT_OFFSET];
        bytes[0] = wire::RECORD_LOOKUP as u8;
        bytes[1] = wire::RECORD_TWO_BYTE as u8;
        bytes[HEADER + 20] = 4;
        bytes.extend([0xe4, 0x00, 0x2f, 0x00]);
        let Ok(Record::Lookup { path, .. }) = Record::decode(&bytes) else {
            panic!("a lookup")
        };
        assert_eq!(path.as_deref(), Some("ä/".as_bytes()));
    }
}
