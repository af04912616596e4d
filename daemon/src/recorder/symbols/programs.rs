//! Node binaries that start again and again: the symbols of one are read once, by a thread of its own, and are for all starts that execute it.
//!
//! A start has those of the program only that it executes itself, of which anybody may read the content: its process could read that, too
//! (`/proc/self/exe`), wherever the file lies.

use rustc_hash::FxHashMap as HashMap;
use std::{
    cell::{Cell, RefCell},
    fs::File,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::PathBuf,
    rc::Rc,
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
    time::{Duration, Instant},
};

use blazesym::symbolize::Symbolizer;

use super::{
    files::Layout,
    readable::{Copy, copy_of},
    symbolize, symbolizer,
};

/// So many have their symbols here, or are being read.
const MOST: usize = 3;
/// Bytes of the symbols of one. Node's are 17 MB.
const MOST_BYTES: u64 = 32 << 20;
/// One that has not started for so long makes room.
const UNUSED: Duration = Duration::from_secs(60);
/// Bytes of the names that are kept of one: a start asks for some hundreds, and they are mostly the same.
const MOST_OF_NAMES: usize = 4 << 20;
/// What a name takes besides its text.
const NAME: usize = 64;

/// Symbols of a node binary, in memory: its file need not be there any more.
pub struct ProgramSymbols {
    inode_and_size: (u64, u64),
    layout: Layout,
    is_node: bool,
    symbolizer: Symbolizer,
    /// Where its copy lies.
    path: PathBuf,
    _copy: Copy,
    /// By offset in the file.
    names: RefCell<HashMap<u64, Option<Rc<str>>>>,
    bytes_of_names: Cell<usize>,
}

impl ProgramSymbols {
    /// Whether it is the file of this inode and size.
    pub(super) fn is(&self, inode_and_size: Option<(u64, u64)>) -> bool {
        inode_and_size == Some(self.inode_and_size)
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn is_node(&self) -> bool {
        self.is_node
    }

    /// The name of the function at this offset in the file, as it is written there.
    pub(super) fn name(&self, offset: u64) -> Option<Rc<str>> {
        let mut names = self.names.borrow_mut();
        if let Some(known) = names.get(&offset) {
            return known.clone();
        }
        let found = symbolize(&self.symbolizer, &self.path, offset);
        let name: Option<Rc<str>> = found.ok().flatten().map(Rc::from);
        let bytes = self.bytes_of_names.get() + NAME + name.as_ref().map_or(0, |name| name.len());
        if bytes <= MOST_OF_NAMES {
            self.bytes_of_names.set(bytes);
            names.insert(offset, name.clone());
        }
        name
    }

    fn new(read: Read) -> ProgramSymbols {
        ProgramSymbols {
            inode_and_size: read.inode_and_size,
            layout: read.layout,
            is_node: read.is_node,
            symbolizer: symbolizer(),
            path: read.copy.path(),
            _copy: read.copy,
            names: RefCell::default(),
            bytes_of_names: Cell::default(),
        }
    }
}

/// What is read of a file.
struct Read {
    inode_and_size: (u64, u64),
    layout: Layout,
    is_node: bool,
    copy: Copy,
}

impl Read {
    /// `opened`: as a place (`O_PATH`), with more rights than this thread has, which decide who may read what is in it.
    fn of(opened: &OwnedFd) -> Option<Read> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        let file = File::open(&path).ok()?;
        let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(Read {
            inode_and_size: (meta.ino(), meta.len()),
            layout: Layout::read(&path)?,
            is_node: nodeprof_probes::is_node_binary(&path),
            copy: copy_of(&file, MOST_BYTES)?,
        })
    }
}

enum State {
    Reading(Receiver<Option<Read>>),
    Known(Rc<ProgramSymbols>),
    /// They are not to be read.
    Unreadable,
}

/// All of them, by the index that the holder gives, of which serial, and when one started last.
#[derive(Default)]
pub struct SymbolsOfPrograms {
    all: HashMap<u8, (u32, Instant, State)>,
}

impl SymbolsOfPrograms {
    /// What is known of the binary of this index and serial, which is about to be executed. If nothing is it is read, without waiting for that: it is known to a
    /// later start. `open` opens it as a place (`O_PATH`).
    pub fn of(
        &mut self,
        (index, serial): (u8, u32),
        open: impl FnOnce() -> Option<OwnedFd>,
    ) -> Option<Rc<ProgramSymbols>> {
        let now = Instant::now();
        // The holder has given the index to another binary.
        if self.all.get(&index).is_some_and(|(of, ..)| *of != serial) {
            self.all.remove(&index);
        }
        if let Some((_, used, state)) = self.all.get_mut(&index) {
            *used = now;
            if let State::Reading(read) = state {
                *state = match read.try_recv() {
                    Err(TryRecvError::Empty) => return None,
                    Ok(Some(read)) => State::Known(Rc::new(ProgramSymbols::new(read))),
                    Ok(None) | Err(TryRecvError::Disconnected) => State::Unreadable,
                };
            }
            return match state {
                State::Known(program) => Some(program.clone()),
                _ => None,
            };
        }
        // What is not found, for its process has ended with its file system, a later start may find.
        if self.has_room(now)
            && let Some(read) = open().and_then(start)
        {
            self.all.insert(index, (serial, now, State::Reading(read)));
        }
        None
    }

    /// Makes room, if there is none, by what has not started for long.
    fn has_room(&mut self, now: Instant) -> bool {
        let takes = |state: &State| !matches!(state, State::Unreadable);
        let taken = self.all.values().filter(|(.., state)| takes(state)).count();
        if taken < MOST {
            return true;
        }
        let taking = (self.all.iter()).filter(|(_, (.., state))| takes(state));
        let oldest = taking.min_by_key(|(_, (_, used, _))| *used);
        let oldest = oldest.filter(|(_, (_, used, _))| now.duration_since(*used) >= UNUSED);
        let oldest = oldest.map(|(index, _)| *index);
        oldest.is_some_and(|index| self.all.remove(&index).is_some())
    }
}

/// Reads a file in a thread, which has the rights of this one.
fn start(opened: OwnedFd) -> Option<Receiver<Option<Read>>> {
    let (done, read) = channel();
    let thread = thread::Builder::new().name("symbols".into());
    let act = move || drop(done.send(Read::of(&opened)));
    thread.spawn(act).ok().map(|_| read)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::{
        super::readable::tests::{FUNCTION, library},
        *,
    };

    fn known(all: &mut SymbolsOfPrograms, of: (u8, u32)) -> Rc<ProgramSymbols> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let program = all.of(of, || panic!("it was opened before"));
            if let Some(program) = program {
                return program;
            }
            assert!(Instant::now() < until, "it is not read");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_program_is_read_once_for_all_of_its_starts() {
        let file = library(0x3000, 48);
        let opened = || Some(file.reopen().unwrap().into());
        let mut all = SymbolsOfPrograms::default();
        assert!(all.of((1, 7), opened).is_none(), "nobody waits for it");
        let program = known(&mut all, (1, 7));
        file.as_file().set_len(0).unwrap();
        assert_eq!(program.name(FUNCTION + 1).as_deref(), Some("main"));
        assert!(Rc::ptr_eq(&program, &known(&mut all, (1, 7))));
        let meta = file.as_file().metadata().unwrap();
        assert!(program.is(Some((meta.ino(), 0x3000))));
        assert!(!program.is(Some((meta.ino(), 0x3001))));
        // Another one has its index. It is empty by now.
        assert!(all.of((1, 8), opened).is_none());
        assert!(!matches!(all.all[&1].2, State::Known(_)));
    }

    #[test]
    fn so_many_programs_are_known_and_what_has_not_started_for_long_makes_room() {
        let file = library(0x3000, 48);
        let opened = || Some(file.reopen().unwrap().into());
        let mut all = SymbolsOfPrograms::default();
        for index in 0..MOST as u8 {
            assert!(all.of((index, 0), opened).is_none());
            known(&mut all, (index, 0));
        }
        let another = MOST as u8;
        assert!(all.of((another, 0), || panic!("no room")).is_none());
        all.all.get_mut(&1).unwrap().1 -= UNUSED;
        assert!(all.of((another, 0), opened).is_none());
        assert!(!all.all.contains_key(&1));
        // Nobody has asked since whether it is read: it makes room as well.
        all.all.get_mut(&another).unwrap().1 -= UNUSED;
        assert!(all.of((another + 1, 0), opened).is_none());
        assert!(!all.all.contains_key(&another));
        all.all.get_mut(&(another + 1)).unwrap().1 -= UNUSED;
        assert!(all.of((another, 0), opened).is_none());
        known(&mut all, (another, 0));
        // What is not there is looked for again, and what cannot be read takes no room.
        all.all.get_mut(&2).unwrap().1 -= UNUSED;
        assert!(all.of((1, 0), || None).is_none());
        let is_empty = || Some(tempfile::tempfile().unwrap().into());
        assert!(all.of((1, 0), is_empty).is_none());
        let until = Instant::now() + Duration::from_secs(20);
        while !matches!(all.all[&1].2, State::Unreadable) {
            assert!(all.of((1, 0), || panic!("once")).is_none());
            assert!(Instant::now() < until, "it is not read");
        }
        assert!(all.of((2, 0), opened).is_none());
        known(&mut all, (2, 0));
    }
}
