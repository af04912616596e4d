//! Decoding: from the bytes of the ring buffer to typed records. Pure; no kernel needed.

use crate::{skeleton::types as raw, wire};

/// What every record begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Process (thread group) in the initial pid namespace.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Milestones that the thread's environment had passed.
    pub phase: u8,
    /// CLOCK_MONOTONIC, ns: when the thing began.
    pub time: u64,
}

/// Which probe of which binary wrote a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Index given to [`AttachPoints::new`](crate::AttachPoints::new).
    pub binary: u8,
    /// Index into the plan's probes.
    pub probe: u32,
}

/// Which C++ function a crossing reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// The last thread of its process.
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
    /// Node asks for a package.json; `None` if the path could not be read.
    Lookup {
        header: Header,
        origin: Origin,
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
        path: Option<Vec<u8>>,
    },
    /// A new process or thread.
    Fork {
        header: Header,
        child_pid: u32,
        child_tid: u32,
    },
    /// A new program: path, then the arguments; `truncated` if they were longer.
    Exec {
        header: Header,
        path: Vec<u8>,
        arguments: Vec<Vec<u8>>,
        truncated: bool,
    },
    /// A thread ends.
    Exit { header: Header, exit: ExitRecord },
    /// The process sets up an io_uring: operations through it are not seen by the syscall tracepoints.
    IoUring { header: Header },
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

impl Record {
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
                    path,
                }
            }
            wire::RECORD_FORK => {
                let r: raw::record_fork = read(bytes, kind)?;
                Record::Fork {
                    header,
                    child_pid: r.child_pid,
                    child_tid: r.child_tid,
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
                    path: path.split(|&b| b == 0).next().unwrap_or_default().to_vec(),
                    arguments: if arguments.is_empty() && head.result as usize >= content.len() {
                        Vec::new()
                    } else {
                        arguments.split(|&b| b == 0).map(<[u8]>::to_vec).collect()
                    },
                    truncated: head.flags & wire::RECORD_TRUNCATED as u8 != 0,
                }
            }
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
                *first %= 16;
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
    fn the_text_lies_where_the_header_says() {
        assert_eq!(TEXT_OFFSET, std::mem::offset_of!(raw::record_text, text));
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
