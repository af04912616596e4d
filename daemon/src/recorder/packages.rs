//! Name and version of the packages that a run loaded modules of, read while their files are there.
//!
//! A recording is looked at later and elsewhere. The files are the traced program's, and may be anything: each is read up to
//! a limit, with the rights of the user who runs the program, and all of them for a limited time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::Read as _,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::mpsc,
    time::{Duration, Instant},
};

use nodeprof_profile::{
    modules::{package::installed_directory, script::Script},
    recording::{CompilationUnit, FileOperation, FrameKind, NameId, Package, Recording, RunId},
};
use serde::Deserialize;

use super::{command::Invoker, source_maps::open_regular};

/// Largest package.json that is read. The largest of a million packages on npm have some 500 kB.
const LARGEST: u64 = 1 << 20;
/// Longest name or version; npm allows 214 characters for a name, 256 for a version.
const LONGEST: usize = 256;
/// For all of them. Two thousand files of a warm file system take 40 ms; a file system that does not answer takes no more
/// than this.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is taken from a package.json.
#[derive(Default, Deserialize)]
struct Manifest {
    name: Option<serde_json::Value>,
    version: Option<serde_json::Value>,
}

/// The folders and what their package.json says.
type Found = BTreeMap<Vec<u8>, (Option<String>, Option<String>)>;

/// Adds the packages of the modules of a recording to it.
pub fn add_packages(recording: &mut Recording, run: RunId, invoker: Option<Invoker>) {
    let files = files(recording);
    if files.is_empty() {
        return;
    }
    let (sender, found) = mpsc::channel();
    let reading = std::thread::Builder::new().name("packages".into());
    let reading = reading.spawn(move || {
        // Only this thread: the others go on with the rights that they have.
        if let Some(user) = invoker
            && user.become_thread().is_err()
        {
            return;
        }
        let _ = sender.send(read(&files, Instant::now() + PATIENCE));
    });
    // A thread that hangs in a file system is left behind.
    let Some(found) = reading
        .ok()
        .and_then(|_| found.recv_timeout(PATIENCE + PATIENCE / 4).ok())
    else {
        return;
    };
    let mut names: HashMap<Vec<u8>, NameId> = HashMap::new();
    for (index, name) in recording.names.iter().enumerate() {
        names.entry(name.clone()).or_insert(NameId(index as u32));
    }
    for (directory, (name, version)) in found {
        let id = *names.entry(directory).or_insert_with_key(|directory| {
            recording.names.push(directory.clone());
            NameId((recording.names.len() - 1) as u32)
        });
        recording.packages.push(Package {
            run,
            directory: id,
            name,
            version,
        });
    }
}

/// The files of modules: absolute paths, each once.
fn files(recording: &Recording) -> BTreeSet<Vec<u8>> {
    let compiled = recording.compilations.iter();
    let compiled = compiled
        .filter(|compilation| compilation.unit != CompilationUnit::Builtin)
        .map(|compilation| compilation.path);
    let opened = recording.files.iter();
    let opened = opened
        .filter(|access| access.operation == FileOperation::Open && access.result >= 0)
        .map(|access| access.path)
        .filter(|&path| {
            let path = recording.name(path);
            path.ends_with(b".node") || path.ends_with(b".json")
        });
    let imported = recording.imports.iter().map(|import| import.loaded);
    // What came with a snapshot, or from a cache, was not loaded; its functions run.
    let ran = recording.frames.iter();
    let ran = ran
        .filter(|frame| frame.kind == FrameKind::JavaScript)
        .filter_map(|frame| frame.file);
    let all: BTreeSet<NameId> = compiled.chain(opened).chain(imported).chain(ran).collect();
    all.into_iter()
        .map(|name| Script::of(recording.name(name)).path)
        .filter(|path| path.starts_with(b"/"))
        .collect()
}

/// Reads the package.json of each file's package.
fn read(files: &BTreeSet<Vec<u8>>, deadline: Instant) -> Found {
    let mut found = Found::new();
    // Folders that were looked into, and whether they are a package.
    let mut known: HashMap<PathBuf, bool> = HashMap::new();
    for file in files {
        if Instant::now() > deadline {
            break;
        }
        if let Some(directory) = installed_directory(file) {
            if !found.contains_key(directory)
                && let Some(manifest) = manifest(Path::new(std::ffi::OsStr::from_bytes(directory)))
            {
                found.insert(directory.to_vec(), manifest);
            }
            continue;
        }
        let file = Path::new(std::ffi::OsStr::from_bytes(file));
        for directory in file.ancestors().skip(1) {
            if let Some(&is_package) = known.get(directory) {
                if is_package {
                    break;
                }
                continue;
            }
            // One without a name only tells how its files are to be read (`{"type": "module"}`).
            let manifest = manifest(directory).filter(|(name, _)| name.is_some());
            let is_package = manifest.is_some();
            if let Some(manifest) = manifest {
                found.insert(directory.as_os_str().as_bytes().to_vec(), manifest);
            }
            known.insert(directory.to_path_buf(), is_package);
            if is_package {
                break;
            }
        }
    }
    found
}

/// Name and version by the package.json in a folder; `None` if there is none that can be read.
fn manifest(directory: &Path) -> Option<(Option<String>, Option<String>)> {
    let file = open_regular(&directory.join("package.json"))?;
    let size = file.metadata().ok()?.len();
    if size > LARGEST {
        return None;
    }
    let mut text = Vec::with_capacity(size as usize);
    // It may grow while it is read.
    file.take(LARGEST).read_to_end(&mut text).ok()?;
    // Node takes a byte order mark, JSON does not.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    let manifest: Manifest = serde_json::from_slice(text).ok()?;
    let string = |value: Option<serde_json::Value>| match value {
        Some(serde_json::Value::String(text)) if !text.is_empty() && text.len() <= LONGEST => {
            Some(text)
        }
        _ => None,
    };
    Some((string(manifest.name), string(manifest.version)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use nodeprof_profile::recording::{Compilation, Frame, Nanoseconds, ProcessId, ThreadId};

    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Tree {
            Tree(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, content: &[u8]) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), content).unwrap();
        }

        /// What is found for a module at each of these places, by folder below this one.
        fn packages(&self, modules: &[&str]) -> Vec<(String, Option<String>, Option<String>)> {
            let root = self.0.path().as_os_str().as_bytes();
            let files = modules.iter().map(|name| {
                let path = self.path(name);
                path.as_os_str().as_bytes().to_vec()
            });
            let found = read(&files.collect(), Instant::now() + PATIENCE);
            found
                .into_iter()
                .map(|(directory, (name, version))| {
                    let inside = directory.strip_prefix(root).unwrap();
                    (String::from_utf8(inside.to_vec()).unwrap(), name, version)
                })
                .collect()
        }
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn packages_are_found_where_they_lie() {
        let tree = Tree::new();
        tree.write("package.json", br#"{"name":"root","version":"1.0.0"}"#);
        tree.write(
            "node_modules/a/package.json",
            br#"{"name":"a","version":"2.0.0"}"#,
        );
        // Neither the nested one without a name nor one with a name makes a package of its own there.
        tree.write("node_modules/a/esm/package.json", br#"{"type":"module"}"#);
        tree.write("node_modules/a/hooks/package.json", br#"{"name":"hooks"}"#);
        tree.write(
            "node_modules/.pnpm/b@3/node_modules/@s/b/package.json",
            b"\xef\xbb\xbf{\"name\":\"@s/b\",\"version\":\"3.0.0\"}",
        );
        tree.write("packages/w/package.json", br#"{"name":"w"}"#);
        tree.write("packages/w/src/package.json", br#"{"type":"commonjs"}"#);
        assert_eq!(
            tree.packages(&[
                "lib/deep/main.js",
                "node_modules/a/esm/x.js",
                "node_modules/a/hooks/x.js",
                "node_modules/.pnpm/b@3/node_modules/@s/b/i.js",
                "packages/w/src/i.ts",
            ]),
            [
                (String::new(), some("root"), some("1.0.0")),
                (
                    "/node_modules/.pnpm/b@3/node_modules/@s/b".into(),
                    some("@s/b"),
                    some("3.0.0")
                ),
                ("/node_modules/a".into(), some("a"), some("2.0.0")),
                ("/packages/w".into(), some("w"), None),
            ]
        );
    }

    /// With CAP_SYS_PTRACE such a link leads into any folder of any user.
    #[test]
    fn no_package_is_looked_for_by_way_of_a_process() {
        use std::os::fd::AsRawFd as _;
        let tree = Tree::new();
        tree.write("package.json", br#"{"name":"theirs","version":"1.0.0"}"#);
        let folder = fs::File::open(tree.path("")).unwrap();
        let by_process = format!("/proc/self/fd/{}", folder.as_raw_fd());
        assert!(manifest(&tree.path("")).is_some());
        assert_eq!(manifest(Path::new(&by_process)), None);
    }

    #[test]
    fn a_package_json_that_is_none_is_left_alone() {
        let tree = Tree::new();
        let broken: [(&str, &[u8]); 7] = [
            ("text", b"name: a"),
            ("list", b"[1]"),
            ("cut", br#"{"name":"a""#),
            ("empty", b""),
            ("deep", &b"[".repeat(300_000)),
            (
                "large",
                &[br#"{"name":"a"}"#.as_slice(), &b" ".repeat(2 << 20)].concat(),
            ),
            ("latin", b"{\"name\":\"\xff\"}"),
        ];
        for (name, content) in broken {
            tree.write(&format!("node_modules/{name}/package.json"), content);
            assert_eq!(
                tree.packages(&[&format!("node_modules/{name}/i.js")]),
                [],
                "{name}"
            );
        }
        let long = format!(r#"{{"name":"{}","version":"1"}}"#, "x".repeat(5_000));
        tree.write("node_modules/long/package.json", long.as_bytes());
        tree.write(
            "node_modules/odd/package.json",
            br#"{"name":7,"version":["1"]}"#,
        );
        assert_eq!(
            tree.packages(&["node_modules/long/i.js", "node_modules/odd/i.js"]),
            [
                ("/node_modules/long".into(), None, some("1")),
                ("/node_modules/odd".into(), None, None),
            ]
        );
    }

    #[test]
    fn pipes_folders_and_devices_do_not_block() {
        let tree = Tree::new();
        for name in ["pipe", "folder", "endless"] {
            fs::create_dir_all(tree.path(&format!("node_modules/{name}"))).unwrap();
        }
        let pipe = tree.path("node_modules/pipe/package.json");
        let pipe = std::ffi::CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        fs::create_dir(tree.path("node_modules/folder/package.json")).unwrap();
        symlink("/dev/zero", tree.path("node_modules/endless/package.json")).unwrap();
        let begun = Instant::now();
        assert_eq!(
            tree.packages(&[
                "node_modules/pipe/i.js",
                "node_modules/folder/i.js",
                "node_modules/endless/i.js",
            ]),
            []
        );
        assert!(begun.elapsed() < Duration::from_secs(1));
    }

    #[test]
    fn a_deadline_that_is_over_ends_the_search() {
        let tree = Tree::new();
        tree.write("node_modules/a/package.json", br#"{"name":"a"}"#);
        let path = tree.path("node_modules/a/i.js");
        let files = BTreeSet::from([path.as_os_str().as_bytes().to_vec()]);
        let over = Instant::now() - Duration::from_millis(1);
        assert!(read(&files, over).is_empty());
    }

    #[test]
    fn a_recording_gets_the_packages_of_what_it_loaded() {
        let tree = Tree::new();
        tree.write(
            "node_modules/a/package.json",
            br#"{"name":"a","version":"2.0.0"}"#,
        );
        let url = format!("file://{}", tree.path("node_modules/a/i.mjs").display());
        let mut recording = Recording {
            names: vec![url.into_bytes(), b"node:fs".to_vec()],
            ..Recording::default()
        };
        for (path, unit) in [(0, CompilationUnit::Module), (1, CompilationUnit::Builtin)] {
            recording.compilations.push(Compilation {
                process: ProcessId(0),
                thread: ThreadId(1),
                start: Nanoseconds(0),
                duration: None,
                self_time: None,
                path: NameId(path),
                unit,
                cached: false,
                stack: None,
            });
        }
        // What came with a start-up snapshot is not compiled; it runs.
        tree.write("node_modules/b/package.json", br#"{"name":"b"}"#);
        for name in ["node_modules/b/i.js", "node"] {
            let path = tree.path(name).into_os_string().into_encoded_bytes();
            recording.names.push(path);
        }
        for (kind, file) in [(FrameKind::JavaScript, 2), (FrameKind::Native, 3)] {
            let frame = Frame::new(kind, NameId(1), Some(NameId(file)));
            recording.frames.push(frame);
        }
        add_packages(&mut recording, RunId(0), None);
        let name = |at: usize| recording.packages[at].name.as_deref();
        assert_eq!([name(0), name(1)], [Some("a"), Some("b")]);
        assert_eq!(recording.packages.len(), 2);
        let package = &recording.packages[0];
        assert_eq!(package.version.as_deref(), Some("2.0.0"));
        let directory = tree.path("node_modules/a");
        assert_eq!(
            recording.name(package.directory),
            directory.as_os_str().as_bytes()
        );
    }

    /// As root: a user's package.json that only root may read stays unread.
    #[test]
    #[ignore = "needs root"]
    fn files_are_read_with_the_rights_of_the_user() {
        use std::os::unix::fs::PermissionsExt as _;
        let tree = Tree::new();
        tree.write("node_modules/open/package.json", br#"{"name":"open"}"#);
        tree.write("node_modules/secret/package.json", br#"{"name":"secret"}"#);
        let secret = tree.path("node_modules/secret/package.json");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(tree.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut recording = Recording::default();
        for name in ["open", "secret"] {
            let path = tree.path(&format!("node_modules/{name}/i.js"));
            recording.names.push(path.as_os_str().as_bytes().to_vec());
            recording.compilations.push(Compilation {
                process: ProcessId(0),
                thread: ThreadId(1),
                start: Nanoseconds(0),
                duration: None,
                self_time: None,
                path: NameId((recording.names.len() - 1) as u32),
                unit: CompilationUnit::Function,
                cached: false,
                stack: None,
            });
        }
        let mut as_nobody = recording.clone();
        add_packages(
            &mut as_nobody,
            RunId(0),
            Some(Invoker::for_test(65_534, 65_534)),
        );
        let names: Vec<_> = as_nobody
            .packages
            .iter()
            .map(|p| p.name.as_deref())
            .collect();
        assert_eq!(names, [Some("open")]);
        // This thread has kept its own.
        add_packages(&mut recording, RunId(0), None);
        assert_eq!(recording.packages.len(), 2);
    }
}
