//! `nodeprof view`.

use std::{
    env, io,
    net::Ipv4Addr,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::Context as _;
use nodeprof_flamegraphs::web::{self, PageError};
use nodeprof_profile::Recording;

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
    serve(serves, served, |url| {
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
        if !args.no_open && has_display() {
            open(&url);
        }
        Ok(())
    })?;
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

/// Opens a browser as the user who typed the command, also under sudo: a browser refuses root, or leaves files of root's.
fn open(url: &str) {
    let number = |name| env::var(name).ok()?.parse::<u32>().ok();
    // SAFETY: it only asks.
    let is_root = unsafe { libc::geteuid() } == 0;
    let user = number("SUDO_UID")
        .zip(number("SUDO_GID"))
        .filter(|_| is_root);
    let mut last = io::Error::other("no program for it");
    for mut command in open::commands(url) {
        if let Some((uid, gid)) = user {
            command.gid(gid).uid(uid);
        }
        match started(&mut command) {
            Ok(()) => return,
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
