//! `nodeprof view`.

use std::{
    env,
    fs::{self, File, Permissions},
    io::{self, Write as _},
    net::Ipv4Addr,
    os::unix::{
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, fchown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use nodeprof_flamegraphs::web::{self, PageError};
use nodeprof_profile::Recording;
use tempfile::TempDir;

use crate::{
    args::{Listen, View},
    terminal, token,
    view::{self, Folder, Serves, serve},
};

/// Serves recordings until it is interrupted.
pub fn run(args: &View) -> anyhow::Result<ExitCode> {
    if !web::is_built() {
        return Err(PageError::NotBuilt.into());
    }
    let (serves, page) = match args.store.store {
        true if !args.files.is_empty() => anyhow::bail!(
            "found: --store and files; needed: the store, or recordings; type: nodeprof view --store"
        ),
        true => {
            view::check(&args.store)?;
            (Serves::Store(args.store.clone()), None)
        }
        false => {
            let (folder, page) = what(&args.files)?;
            (Serves::Folder(folder), page)
        }
    };
    let listen = args
        .listen
        .clone()
        .unwrap_or(Listen::Tcp((Ipv4Addr::LOCALHOST, args.port).into()));
    if let Listen::Tcp(address) = listen
        && !address.ip().is_loopback()
        && args.token_file.is_none()
    {
        anyhow::bail!(
            "found: --listen {address}, which other machines can reach; needed: a secret of your own, that does not change when this ends; type: --token-file FILE, or --listen {}:{}",
            Ipv4Addr::LOCALHOST,
            address.port()
        );
    }
    let token = match &args.token_file {
        Some(file) => token::read_or_make(file)?,
        None => token::random()?,
    };
    let served = view::Served {
        listen,
        token,
        hosts: args.hosts.clone(),
    };
    let opens = !args.no_open && args.token_file.is_none() && has_display();
    let leading = match opens {
        true => Leading::until_the_end()?,
        false => Leading::default(),
    };
    let outcome = serve(serves, served, |url| {
        if let Some(file) = &args.token_file {
            // It may be logged: without the secret.
            let url = url.split("token=").next().unwrap_or_default();
            terminal::print(&format!("{url}token=…\n"))?;
            say!("the token is in {}", file.display());
            return Ok(());
        }
        let url = match &page {
            Some(page) => url.replace("/?", &format!("/{page}&")),
            None => url.to_owned(),
        };
        terminal::print(&format!("{url}\n"))?;
        say!("on this machine only, for who has this address; Ctrl-C ends it");
        if opens {
            match leading.make(&url, User::of_browser()) {
                Ok(page) => open(&page),
                Err(error) => say!(
                    "no browser was opened (a page that leads to the address could not be written: {error}); open the address above in one"
                ),
            }
        }
        Ok(())
    });
    leading.remove();
    outcome?;
    Ok(ExitCode::SUCCESS)
}

/// What to serve, and which page to begin with: that of the only recording.
fn what(files: &[PathBuf]) -> anyhow::Result<(Folder, Option<String>)> {
    let (folders, recordings): (Vec<&PathBuf>, Vec<&PathBuf>) =
        files.iter().partition(|path| path.is_dir());
    let folder = match folders.as_slice() {
        [] => recordings
            .first()
            .and_then(|path| path.parent())
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
            .to_owned(),
        [folder] => folder.to_path_buf(),
        _ => anyhow::bail!(
            "found: {} folders; needed: one to watch at most, and any number of recordings",
            folders.len()
        ),
    };
    let folder = folder
        .canonicalize()
        .with_context(|| format!("reading the folder {}", folder.display()))?;
    for path in &recordings {
        // Refused here, where the reason is seen, and not in a page.
        Recording::load(path)?;
    }
    let page = match recordings.as_slice() {
        [only] => {
            let name = only.file_name().unwrap_or(only.as_os_str());
            Some(format!("report?file={}", encoded(&name.to_string_lossy())))
        }
        _ => None,
    };
    let recordings = recordings.into_iter().cloned().collect();
    Ok((Folder::new(folder, recordings), page))
}

/// A value of a query.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

fn has_display() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"]
        .iter()
        .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Who typed the command, also under sudo.
#[derive(Clone, Copy)]
struct User {
    uid: u32,
    /// Another one than this process has, and the group.
    is_other: Option<u32>,
}

impl User {
    /// The browser is this user's: as root it refuses to run, or leaves files of root's.
    fn of_browser() -> User {
        let number = |name| env::var(name).ok()?.parse::<u32>().ok();
        // SAFETY: it only asks.
        let own = unsafe { libc::geteuid() };
        match number("SUDO_UID").zip(number("SUDO_GID")) {
            Some((uid, gid)) if own == 0 => User {
                uid,
                is_other: Some(gid),
            },
            _ => User {
                uid: own,
                is_other: None,
            },
        }
    }
}

/// A page that leads a browser to the address. The address has the token in it, and all users of a machine can read command lines: a browser is
/// told the name of this page, which nobody else can read.
#[derive(Clone, Default)]
struct Leading(Arc<Mutex<Option<TempDir>>>);

impl Leading {
    /// One that is removed when a signal ends this process. To be called before there are other threads: all shall leave the signals alone.
    fn until_the_end() -> io::Result<Leading> {
        let leading = Leading::default();
        // SAFETY: plain system calls on live structs.
        let signals = unsafe {
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut signals);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                let mut now: libc::sigaction = std::mem::zeroed();
                let asked = libc::sigaction(signal, std::ptr::null(), &raw mut now);
                // Under nohup it is to be ignored still.
                if asked == 0 && now.sa_sigaction != libc::SIG_IGN {
                    libc::sigaddset(&raw mut signals, signal);
                }
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()) {
                0 => signals,
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        };
        let to_remove = leading.clone();
        std::thread::spawn(move || {
            let mut signal = 0;
            // SAFETY: live structs; what ends the process is what would have, so that a shell is told so.
            unsafe {
                while libc::sigwait(&raw const signals, &raw mut signal) != 0 {}
                to_remove.remove();
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut());
                libc::raise(signal);
            }
        });
        Ok(leading)
    }

    /// Writes the page for this user.
    fn make(&self, url: &str, user: User) -> io::Result<PathBuf> {
        let folder = tempfile::Builder::new()
            .prefix("nodeprof-view-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(folder_of(user))?;
        let path = folder.path().join("open.html");
        let mut page = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        page.write_all(leading_to(url).as_bytes())?;
        if let Some(gid) = user.is_other {
            fchown(&page, Some(user.uid), Some(gid))?;
            // Last: what is in a folder of the user's may be anything.
            chown(folder.path(), Some(user.uid), Some(gid))?;
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder);
        Ok(path)
    }

    fn remove(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Where a user's programs keep what is for the user alone, and gone when nobody is logged in; else that for temporary files.
fn folder_of(user: User) -> PathBuf {
    if user.is_other.is_some() {
        // Root writes nothing into a folder of a user's, who could lead it elsewhere meanwhile: sudo may hand over variables that name one.
        return "/tmp".into();
    }
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // It may be another user's, after su.
    let is_own = |folder: &PathBuf| {
        folder.is_absolute()
            && fs::metadata(folder).is_ok_and(|meta| meta.is_dir() && meta.uid() == user.uid)
    };
    runtime.filter(is_own).unwrap_or_else(env::temp_dir)
}

/// The page: no script, and nothing that tells the address where it came from.
fn leading_to(url: &str) -> String {
    let url = url
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;");
    format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>nodeprof view</title>
</head>
<body><p><a href="{url}">nodeprof view</a></p></body>
</html>
"#
    )
}

/// Opens a page in a browser of the user's.
fn open(page: &Path) {
    let user = User::of_browser();
    let mut last = io::Error::other("no program for it");
    for mut command in open::commands(page) {
        if let Some(gid) = user.is_other {
            command.gid(gid).uid(user.uid);
        }
        match started(&mut command) {
            Ok(()) => {
                say!(
                    "if the browser that opens may not read files outside of its sandbox, open this address in it"
                );
                return;
            }
            Err(error) => last = error,
        }
    }
    say!("no browser could be opened ({last}); open the address above in one");
}

fn started(command: &mut Command) -> io::Result<()> {
    let quiet = || Stdio::null();
    command.stdin(quiet()).stdout(quiet()).stderr(quiet());
    let mut child = command.spawn()?;
    // It is ours to wait for, but not to hold anything up.
    std::thread::spawn(move || child.wait());
    Ok(())
}
