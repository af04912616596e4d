//! `make install` and `make uninstall`, as a packager types them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that fails says where"
)]

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "not every test file uses all of it"
)]
mod support;

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use support::{NODEPROF, folder, project, write};

/// Files below a folder, as paths from there.
fn files(top: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![top.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => found.push(path.strip_prefix(top).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

/// `make TARGET` of the tree, into a folder, of the programs in another.
fn make(target: &str, root: &Path, built: &Path) -> Output {
    let mut command = Command::new("make");
    command
        .args(["--directory", &project("."), target])
        .arg(format!("DESTDIR={}", root.display()))
        .env("CARGO_TARGET_DIR", built);
    // This test may be run by make.
    for inherited in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS"] {
        command.env_remove(inherited);
    }
    command.output().unwrap()
}

fn has_make() -> bool {
    let is = Command::new("make").arg("--version").output().is_ok();
    if !is {
        println!("skipped: make is not installed");
    }
    is
}

/// Files that Markdown files link to, outside of code, and that are not there.
fn dangling(top: &Path) -> Vec<String> {
    let mut dangling = Vec::new();
    for file in files(top) {
        if file.extension().is_none_or(|e| e != "md") {
            continue;
        }
        let text = fs::read_to_string(top.join(&file)).unwrap();
        for prose in text.split("```").step_by(2) {
            for link in prose.split("](").skip(1) {
                let link = link.split([')', '#']).next().unwrap();
                let linked = top.join(&file).with_file_name(link);
                if !link.is_empty() && !link.contains(':') && !linked.exists() {
                    dangling.push(format!("{}: {link}", file.display()));
                }
            }
        }
    }
    dangling
}

#[test]
fn what_is_not_built_is_not_built_by_an_installation() {
    if !has_make() {
        return;
    }
    let here = folder();
    let (root, built) = (here.path().join("root"), here.path().join("not built"));
    let output = make("install", &root, &built);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("type make build first"), "{said}");
    assert!(!root.exists() && !built.exists());
}

/// One for each program and each command, with its options.
fn has_manual_pages(top: &Path) {
    let page = |path: &str| fs::read_to_string(top.join(path)).expect(path);
    let help = Command::new(NODEPROF).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let listed = help.split("Commands:\n").nth(1).unwrap();
    let listed = listed.lines().take_while(|line| !line.is_empty());
    let commands: Vec<_> = listed
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 15, "{commands:?}");
    for command in &commands {
        let text = page(&format!("man1/nodeprof-{command}.1"));
        assert!(
            text.contains(&format!(".TH nodeprof-{command} 1")),
            "{text}"
        );
    }
    assert!(page("man1/nodeprof-trace.1").contains("\\-\\-freq"));
    assert!(page("man1/nodeprof-service.1").contains("nodeprof\\-service\\-runs(1)"));
    assert!(page("man1/nodeprof.1").contains("nodeprof\\-trace(1)"));
    assert!(page("man8/nodeprofd.8").contains("\\-\\-config"));
    assert!(page("man8/nodeprof-holder.8").contains("man8/nodeprofd.8"));
    // What is not for users is not described.
    assert!(!top.join("man1/nodeprof-manual.1").exists());
    assert!(!page("man8/nodeprofd.8").contains("tracer"));
}

/// As bash asks when somebody types `nodeprof tr` and Tab.
fn completes(script: &Path) {
    let asked = "source \"$1\"; COMP_WORDS=(nodeprof tr); COMP_CWORD=1; _nodeprof nodeprof tr nodeprof; echo \"${COMPREPLY[@]}\"";
    let asked = Command::new("bash")
        .args(["-c", asked, "bash"])
        .arg(script)
        .output();
    let answer = String::from_utf8(asked.unwrap().stdout).unwrap();
    assert!(answer.split_whitespace().any(|w| w == "trace"), "{answer}");
}

#[test]
fn what_is_installed_is_uninstalled_and_a_configuration_stays() {
    if !has_make() {
        return;
    }
    let here = folder();
    // With spaces: everything is quoted.
    let (built, root) = (
        here.path().join("what is built"),
        here.path().join("a root"),
    );
    fs::create_dir(&built).unwrap();
    symlink(Path::new(NODEPROF).parent().unwrap(), built.join("release")).unwrap();
    let make = |target: &str| {
        let output = make(target, &root, &built);
        assert!(output.status.success(), "{output:?}");
    };
    make("install");
    for program in ["nodeprof", "nodeprofd", "nodeprof-holder"] {
        let installed = root.join("usr/local/bin").join(program);
        let mode = fs::metadata(&installed).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "{program}");
        let source = Path::new(NODEPROF).with_file_name(program);
        assert!(fs::read(installed).unwrap() == fs::read(source).unwrap());
    }
    let units = fs::read_dir(project("systemd")).unwrap();
    let units: Vec<_> = units
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|e| e == "service" || e == "socket")
        })
        .collect();
    assert!(units.len() > 1);
    for unit in units {
        let installed = root.join("etc/systemd/system");
        let installed = installed.join(unit.file_name().unwrap());
        let mode = fs::metadata(&installed).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "{unit:?}");
        assert_eq!(
            fs::read_to_string(installed).unwrap(),
            fs::read_to_string(unit).unwrap()
        );
    }
    let configuration = [
        PathBuf::from("etc/default/nodeprofd"),
        PathBuf::from("etc/nodeprof/nodeprofd.toml"),
    ];
    let first = files(&root);
    assert!(configuration.iter().all(|file| first.contains(file)));
    assert!(first.contains(&"usr/lib/sysusers.d/nodeprof.conf".into()));
    let documents = root.join("usr/local/share/doc/nodeprof");
    for file in ["README.md", "LICENSE", "LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(documents.join(file).exists(), "{file}");
    }
    assert_eq!(dangling(&documents), Vec::<String>::new());
    has_manual_pages(&root.join("usr/local/share/man"));
    let shared = root.join("usr/local/share");
    completes(&shared.join("bash-completion/completions/nodeprof"));
    for other in [
        "zsh/site-functions/_nodeprof",
        "fish/vendor_completions.d/nodeprof.fish",
    ] {
        let script = fs::read_to_string(shared.join(other)).unwrap();
        assert!(script.contains("critical-chain"), "{other}");
    }

    write(&root, "etc/nodeprof/nodeprofd.toml", "mode = 'off'\n");
    make("install");
    assert_eq!(files(&root), first);
    let kept = fs::read_to_string(root.join("etc/nodeprof/nodeprofd.toml")).unwrap();
    assert_eq!(kept, "mode = 'off'\n");

    make("uninstall");
    assert_eq!(files(&root), configuration);
}
