//! Node binaries whose next start is held: those that the configuration names, those on PATH, those that ran before, and those that run now.
//!
//! Any of them may lie in a file system that does not answer, where who looks waits in the kernel, maybe for ever. So a process of its own looks
//! ([`Looking`]), and makes the plans; this one list is what all holders and tracers get. What does not answer in time is left out, and told; when it does answer its plan
//! is made, and its next start is met as that of a binary which nobody knew.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ffi::OsString,
    fs, io,
    os::{fd::RawFd, unix::fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    time::{Duration, Instant},
};

use nodeprof_bpf::looking::{Looking, News};
use nodeprof_probes::{is_node_binary, is_node_binary_at_a_glance};
use serde::{Deserialize, Serialize};

use super::{Happening, config::Config};
use crate::recorder::{
    find_program, forget_nodes, guess_node, is_met_node, load_plan, met_nodes, on_path,
};

/// A file that has not answered for this long is left out.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The same while there is no holder: starts come late meanwhile.
pub(super) const SHORT_PATIENCE: Duration = Duration::from_secs(1);
/// Processes that wait for files which do not answer. Each has files of its own.
const MOST_LOOKS: usize = 4;
/// A process that looks, and says nothing for so long besides what one file may take, hangs itself.
const HANGS: Duration = Duration::from_secs(5);
/// How often somebody else is told of while it is waited for.
const TURN: Duration = Duration::from_millis(100);

/// Why somebody looks at a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// The configuration names it.
    Named,
    /// It lies in a folder of PATH: a node binary, or a script that leads to one.
    OnPath,
    /// It ran before.
    Met,
    /// A process executes it: `/proc/PID/exe`.
    Runs,
}

/// A file to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sought {
    why: Why,
    path: PathBuf,
    /// As messages have it.
    name: PathBuf,
}

/// What came of it.
#[derive(Default, Serialize, Deserialize)]
struct Seen {
    /// A node binary is here.
    node: Option<OsString>,
    /// It cannot be probed, and why.
    unusable: Option<String>,
    /// It was here, and is not any more.
    is_gone: bool,
}

/// A look at some files.
struct Look {
    looking: Looking,
    files: Vec<Sought>,
    /// Those that have not been seen.
    unseen: BTreeSet<usize>,
    /// Those of them that somebody waits for.
    awaited: BTreeSet<usize>,
}

/// See the head of this file.
#[derive(Default)]
pub(super) struct Nodes {
    found: Vec<PathBuf>,
    /// The one that is under way, and others with files that do not answer.
    looks: Vec<Look>,
    /// Those that nobody waits for any more, and that have not ended.
    left: Vec<Looking>,
    /// Files that are wanted and do not answer, as messages have them.
    silent: BTreeSet<PathBuf>,
}

impl Nodes {
    /// Those of somebody who has looked.
    pub(super) fn found_by_another(found: Vec<PathBuf>) -> Nodes {
        Nodes {
            found,
            ..Nodes::default()
        }
    }

    /// That answer.
    pub(super) fn found(&self) -> &[PathBuf] {
        &self.found
    }

    /// That do not.
    pub(super) fn silent(&self) -> &BTreeSet<PathBuf> {
        &self.silent
    }

    /// To poll.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.looks.iter().map(|look| look.looking.descriptor())
    }

    /// Begins to look. Takes no time: whoever wants the outcome [waits](Nodes::wait) for it. `makes_plans`: so that no start has to wait for one.
    pub(super) fn begin(
        &mut self,
        config: &Config,
        makes_plans: bool,
        patience: Duration,
    ) -> Begun {
        let eyes = Eyes {
            cache: config.cache.clone(),
            makes_plans,
            planned: Mutex::default(),
            running_until: OnceLock::new(),
        };
        self.begin_with(sought(config), patience, move |file| eyes.look(file))
    }

    fn begin_with(
        &mut self,
        all: Vec<Sought>,
        patience: Duration,
        look: impl Fn(&Sought) -> Seen + Send + Sync + 'static,
    ) -> Begun {
        self.left.retain_mut(|looking| !looking.has_ended());
        if self.looks.len() >= MOST_LOOKS {
            let mut oldest = self.looks.remove(0).looking;
            oldest.kill();
            self.left.push(oldest);
        }
        // Of a file that somebody waits for already nothing more is known.
        let awaited = self.looks.iter().flat_map(|look| look.named(&look.awaited));
        let awaited: BTreeSet<&Sought> = awaited.collect();
        let (awaited, files): (Vec<Sought>, Vec<Sought>) =
            all.into_iter().partition(|file| awaited.contains(file));
        let mut begun = Begun {
            found: BTreeMap::new(),
            silent: awaited.into_iter().map(|file| file.name).collect(),
            gone: Vec::new(),
            is_under_way: false,
        };
        let of_child = files.clone();
        let look = move |number: usize| {
            let seen = of_child.get(number).map(&look);
            (serde_json::to_vec(&seen).unwrap_or_default(), None)
        };
        // Each of those that are left cannot be ended: so there may be no more.
        let started = (self.left.len() < MOST_LOOKS)
            .then(|| Looking::start(files.len(), patience, look).ok())
            .flatten();
        match started {
            Some(looking) => {
                begun.is_under_way = true;
                self.looks.push(Look {
                    looking,
                    unseen: (0..files.len()).collect(),
                    awaited: BTreeSet::new(),
                    files,
                });
            }
            None => begun.silent.extend(files.into_iter().map(|file| file.name)),
        }
        begun
    }

    /// Waits until each file has answered or is left out.
    pub(super) fn wait(
        &mut self,
        mut begun: Begun,
        config: &Config,
        tell: &mut dyn FnMut(Happening<'_>),
    ) {
        let mut heard = Instant::now();
        while begun.is_under_way {
            tell(Happening::Alive);
            let Some(look) = self.looks.last_mut() else {
                break;
            };
            match look.looking.next(TURN) {
                Some(News::Seen(number, (body, _))) => {
                    if let Some((file, seen)) = look.take(number, &body) {
                        tell_unusable(&file, &seen, config, tell);
                        begun.gone.extend(seen.is_gone.then_some(file.path));
                        let node = seen.node.map(|node| (number, PathBuf::from(node)));
                        begun.found.extend(node);
                    }
                }
                Some(News::Silent(number)) => drop(look.awaited.insert(number)),
                Some(News::Behind(_)) => {}
                Some(News::AllTold | News::Gone) => break,
                None if heard.elapsed() > PATIENCE + HANGS => break,
                None => continue,
            }
            heard = Instant::now();
        }
        if begun.is_under_way
            && let Some(look) = self.looks.last()
        {
            let unseen = look.named(&look.unseen);
            begun.silent.extend(unseen.map(|file| file.name.clone()));
        }
        forget_nodes(&config.cache, &begun.gone);
        self.found = begun.found.into_values().collect();
        for path in begun.silent.difference(&self.silent) {
            tell(Happening::Silent {
                path: Path::new(&config.redaction.words(&path.to_string_lossy())),
            });
        }
        self.silent = begun.silent;
    }

    /// What comes of files that were silent.
    pub(super) fn hear(&mut self, config: &Config, tell: &mut dyn FnMut(Happening<'_>)) {
        let mut over = Vec::new();
        for (index, look) in self.looks.iter_mut().enumerate() {
            loop {
                match look.looking.next(Duration::ZERO) {
                    Some(News::Seen(number, (body, _))) => {
                        let Some((file, seen)) = look.take(number, &body) else {
                            continue;
                        };
                        if !self.silent.remove(&file.name) {
                            continue; // nobody wants it any more
                        }
                        tell_unusable(&file, &seen, config, tell);
                        if let Some(node) = seen.node {
                            let node = PathBuf::from(node);
                            if seen.unusable.is_none() {
                                tell(Happening::Answers {
                                    path: Path::new(
                                        &config.redaction.words(&file.name.to_string_lossy()),
                                    ),
                                });
                            }
                            self.found.push(node);
                        }
                    }
                    Some(News::Silent(number)) => drop(look.awaited.insert(number)),
                    Some(News::Behind(_) | News::AllTold) => {}
                    Some(News::Gone) => {
                        over.push(index);
                        break;
                    }
                    None => break,
                }
            }
        }
        for index in over.into_iter().rev() {
            self.left.push(self.looks.remove(index).looking);
        }
        self.left.retain_mut(|looking| !looking.has_ended());
    }
}

/// What a look has led to so far.
pub(super) struct Begun {
    /// In the order in which they are sought.
    found: BTreeMap<usize, PathBuf>,
    silent: BTreeSet<PathBuf>,
    gone: Vec<PathBuf>,
    is_under_way: bool,
}

impl Look {
    fn take(&mut self, number: usize, body: &[u8]) -> Option<(Sought, Seen)> {
        self.unseen.remove(&number);
        self.awaited.remove(&number);
        let seen: Option<Seen> = serde_json::from_slice(body).ok()?;
        Some((self.files.get(number)?.clone(), seen?))
    }

    fn named<'a>(&'a self, numbers: &'a BTreeSet<usize>) -> impl Iterator<Item = &'a Sought> {
        numbers.iter().filter_map(|number| self.files.get(*number))
    }
}

fn tell_unusable(file: &Sought, seen: &Seen, config: &Config, tell: &mut dyn FnMut(Happening<'_>)) {
    if let Some(why) = &seen.unusable {
        tell(Happening::Unusable {
            path: Path::new(&config.redaction.words(&file.name.to_string_lossy())),
            why: config.redaction.words(why),
        });
    }
}

/// What there is to look at. Nothing of it is looked at here, but for `/proc` and the service's own folder.
fn sought(config: &Config) -> Vec<Sought> {
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let named = config.nodes.iter().cloned().map(|path| (Why::Named, path));
    let on_path = on_path("node".as_ref()).into_iter();
    let on_path = on_path.map(|path| (Why::OnPath, path));
    let met = met_nodes(&config.cache)
        .into_iter()
        .map(|path| (Why::Met, path));
    let by_path = named.chain(on_path).chain(met).map(|(why, path)| {
        let path = absolute(path);
        Sought {
            why,
            name: path.clone(),
            path,
        }
    });
    let mut seen = HashSet::new();
    let by_path = by_path.filter(|file| seen.insert(file.path.clone()));
    by_path.chain(running()).collect()
}

/// What processes execute, each program once: those of a container have paths of its own.
fn running() -> impl Iterator<Item = Sought> {
    let mut seen = HashSet::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
    });
    numbers.filter_map(move |entry| {
        let path = entry.path().join("exe");
        // Links of the kernel's, which tell of a file without asking for it.
        let name = fs::read_link(&path).ok()?;
        let namespace = fs::read_link(entry.path().join("ns/mnt")).ok();
        seen.insert((namespace, name.clone())).then_some(Sought {
            why: Why::Runs,
            path,
            name,
        })
    })
}

/// What looks, in a process of its own.
struct Eyes {
    cache: PathBuf,
    makes_plans: bool,
    /// Files whose plans are made, or are about to be.
    planned: Mutex<HashSet<(u64, u64)>>,
    /// Until when programs that run are read which do not tell at once what they are.
    running_until: OnceLock<Instant>,
}

impl Eyes {
    fn look(&self, file: &Sought) -> Seen {
        let path = &file.path;
        let node = match file.why {
            Why::Named => Some(path.clone()),
            Why::OnPath => find_program(path.as_os_str())
                .ok()
                .and_then(|program| guess_node(&program)),
            Why::Met => is_met_node(path).then(|| path.clone()),
            Why::Runs => self.is_node(path).then(|| path.clone()),
        };
        let unusable = node.as_ref().and_then(|node| self.plan(node, file.why));
        let is_missing = |e: io::Error| e.kind() == io::ErrorKind::NotFound;
        Seen {
            is_gone: file.why == Why::Met
                && node.is_none()
                && fs::symlink_metadata(path).is_err_and(is_missing),
            node: node.map(PathBuf::into_os_string),
            unusable,
        }
    }

    /// Most files tell at once what they are. Anybody may run files that do not, 0.2 s each: some of them are looked at, and what the others are their next exec
    /// tells.
    fn is_node(&self, exe: &Path) -> bool {
        const MOST: Duration = Duration::from_secs(1);
        let until = *self.running_until.get_or_init(|| Instant::now() + MOST);
        let at_a_glance = is_node_binary_at_a_glance(exe);
        at_a_glance.unwrap_or_else(|| Instant::now() < until && is_node_binary(exe))
    }

    /// Makes a plan, or says why there can be none.
    fn plan(&self, node: &Path, why: Why) -> Option<String> {
        if !self.makes_plans {
            return None;
        }
        let file = fs::metadata(node).map(|meta| (meta.dev(), meta.ino())).ok();
        let mut planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_some_and(|file| !planned.insert(file)) {
            return None;
        }
        drop(planned);
        let unusable = load_plan(node, None, Some(&self.cache), true).err()?;
        // One that has gone in between is none that anybody misses.
        (why == Why::Named || node.exists()).then_some(unusable)
    }
}

/// Does something with a file that was read a moment ago, and takes no longer unless its file system has ceased to answer: then the thread that does it is left behind.
/// `None`: it has not been done.
pub(super) fn briefly<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    const LIMIT: Duration = Duration::from_secs(3);
    const MOST_BEHIND: usize = 8;
    static BEHIND: AtomicUsize = AtomicUsize::new(0);
    struct Place;
    impl Drop for Place {
        fn drop(&mut self) {
            BEHIND.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let behind = BEHIND.fetch_add(1, Ordering::Relaxed);
    let place = Place;
    if behind >= MOST_BEHIND {
        return None;
    }
    let (sender, done) = channel();
    let work = move || {
        let done = act();
        drop(place);
        let _ = sender.send(done);
    };
    let thread = std::thread::Builder::new().name("reads".into());
    thread.spawn(work).ok()?;
    done.recv_timeout(LIMIT).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    fn config(folder: &Path) -> Config {
        let text = format!("cache = {:?}", folder.join("cache"));
        Config::parse(&text, Path::new("c.toml")).unwrap()
    }

    fn named(path: &Path) -> Sought {
        Sought {
            why: Why::Named,
            path: path.to_owned(),
            name: path.to_owned(),
        }
    }

    /// A pipe that nobody writes to keeps who opens it, as a file system that does not answer.
    fn pipe(folder: &Path, name: &str) -> Sought {
        let path = folder.join(name);
        let made = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a string with its NUL.
        assert_eq!(unsafe { libc::mkfifo(made.as_ptr(), 0o600) }, 0);
        named(&path)
    }

    fn open(file: &Sought) -> Seen {
        Seen {
            node: fs::File::open(&file.path)
                .ok()
                .map(|_| file.path.clone().into()),
            ..Seen::default()
        }
    }

    /// The names of files that are told of.
    fn told(act: impl FnOnce(&mut dyn FnMut(Happening<'_>))) -> Vec<String> {
        let mut told = Vec::new();
        act(&mut |happening| {
            let (what, path) = match happening {
                Happening::Silent { path } => ("silent", path),
                Happening::Answers { path } => ("answers", path),
                _ => return,
            };
            let name = path.file_name().unwrap().to_string_lossy();
            told.push(format!("{what} {name}"));
        });
        told
    }

    #[test]
    fn a_file_that_keeps_who_looks_at_it_is_left_out_until_it_answers() {
        const SHORT: Duration = Duration::from_millis(300);
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let [silent, other] = ["silent", "other"].map(|name| pipe(folder.path(), name));
        let here = named(&folder.path().join("here"));
        fs::write(&here.path, "").unwrap();
        let all = [silent, other, here];
        let mut nodes = Nodes::default();
        let look = |nodes: &mut Nodes, files: &[&Sought]| {
            let files = files.iter().map(|file| (*file).clone()).collect();
            let begun = nodes.begin_with(files, SHORT, open);
            let since = Instant::now();
            let told = told(|tell| nodes.wait(begun, &config, tell));
            assert_eq!(nodes.found(), [all[2].path.clone()]);
            (told, since.elapsed() >= SHORT, nodes.silent().len())
        };
        let [silent, other, here] = &all;
        let first = look(&mut nodes, &[silent, here]);
        assert_eq!(first, (vec!["silent silent".to_owned()], true, 1));
        // Somebody waits for it already.
        assert_eq!(look(&mut nodes, &[silent, here]), (vec![], false, 1));
        let both = look(&mut nodes, &[silent, other, here]);
        assert_eq!(both, (vec!["silent other".to_owned()], true, 2));
        // Nobody wants the first one any more.
        assert_eq!(look(&mut nodes, &[other, here]), (vec![], false, 1));
        let mut late = Vec::new();
        for file in [silent, other] {
            fs::File::options().write(true).open(&file.path).unwrap();
        }
        let since = Instant::now();
        while !(nodes.looks.is_empty() && nodes.left.is_empty()) {
            assert!(since.elapsed() < Duration::from_secs(10), "{late:?}");
            late.extend(told(|tell| nodes.hear(&config, tell)));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(late, ["answers other"]);
        assert_eq!(nodes.found(), [here, other].map(|file| file.path.clone()));
        assert!(nodes.silent().is_empty());
    }

    #[test]
    fn there_is_an_end_of_processes_that_wait() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let mut nodes = Nodes::default();
        for number in 0..MOST_LOOKS + 3 {
            let file = pipe(folder.path(), &number.to_string());
            let begun = nodes.begin_with(vec![file.clone()], TURN, open);
            nodes.wait(begun, &config, &mut |_| {});
            assert!(nodes.silent().contains(&file.path));
            assert!(nodes.looks.len() <= MOST_LOOKS && nodes.left.len() <= MOST_LOOKS);
        }
    }

    #[test]
    fn of_a_file_that_has_many_names_one_plan_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a", "b", "c", "missing"];
        let paths = names.map(|name| folder.path().join(name));
        fs::write(&paths[0], "1").unwrap();
        fs::hard_link(&paths[0], &paths[1]).unwrap();
        fs::write(&paths[2], "1").unwrap();
        let eyes = Eyes {
            cache: folder.path().join("cache"),
            makes_plans: true,
            planned: Mutex::default(),
            running_until: OnceLock::new(),
        };
        let tries = paths.map(|path| eyes.plan(&path, Why::Named).is_some());
        assert_eq!(tries, [true, false, true, true]);
    }
}
