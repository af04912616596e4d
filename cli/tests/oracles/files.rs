//! What the kernel saw, against strace.

use std::{collections::BTreeMap, path::Path};

use nodeprof_profile::{
    Recording,
    recording::{FileAccess, FileOperation, WaitReason},
};

use crate::support::{
    FileOperations, Node, Traced, has_packages, has_tool, list, npm_script, number, on_each_node,
    project, strace, text, trace,
};

on_each_node!(
    files_of_npm_are_those_of_strace,
    files_of_an_application_are_those_of_strace,
    files_of_es_modules_are_those_of_strace,
    files_of_workers_and_children_are_those_of_strace,
    a_descriptor_has_the_path_of_what_it_is,
);

fn files_of_npm_are_those_of_strace(node: &Node) {
    if let Some(npm) = npm_script("npm") {
        compare(node, &[&npm, "--version"]);
    }
}

pub(crate) fn files_of_an_application_are_those_of_strace(node: &Node) {
    if has_packages("examples/express") {
        let traced = compare(node, &[&project("examples/express/app.js")]);
        if let Some(traced) = traced {
            assert!(number(&traced.run["package_json"]["opens"]) > 100);
            assert!(number(&traced.run["package_json"]["lookups"]) > 100);
        }
    }
}

pub(crate) fn files_of_es_modules_are_those_of_strace(node: &Node) {
    if has_packages("examples/esm") {
        compare(node, &[&project("examples/esm/main.js")]);
    }
}

fn files_of_workers_and_children_are_those_of_strace(node: &Node) {
    compare(node, &[&project("examples/workers/main.js"), "3"]);
    compare(node, &[&project("examples/children/main.js")]);
}

/// The kernel tells a tracer the exits of such calls alone.
#[test]
#[ignore = "needs root"]
fn what_a_seccomp_filter_refuses_has_failed_in_both_modes() {
    let Some(node) = Node::find("22.23.3").filter(|_| has_tool("python3")) else {
        return;
    };
    // access(2) fails with EPERM, and so does io_uring_setup(2).
    let filter = "
import ctypes, os, struct, sys
rule = lambda code, yes, no, k: struct.pack('HBBI', code, yes, no, k)
rules = rule(0x20, 0, 0, 0) + rule(0x15, 1, 0, 21) + rule(0x15, 0, 1, 425) \\
    + rule(0x06, 0, 0, 0x00050001) + rule(0x06, 0, 0, 0x7fff0000)
text = ctypes.create_string_buffer(rules)
program = struct.pack('HxxxxxxQ', 5, ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
os.execv(sys.argv[1], sys.argv[1:])
";
    let folder = crate::support::folder();
    let script = crate::support::write(
        folder.path(),
        "a.js",
        "const fs = require('fs');
         const refused = () => { try { fs.accessSync('/'); } catch (e) { return e.code === 'EPERM'; } };
         for (let i = 0; i < 100; i++) if (!refused()) process.exit(3);
         fs.readFile('/proc/version', () => {});",
    );
    let path = node.path.to_str().expect("UTF-8");
    let mut both = Vec::new();
    for mode in ["count", "full"] {
        let program = [
            "env",
            "UV_USE_IO_URING=1",
            "python3",
            "-c",
            filter,
            path,
            &script,
        ];
        let traced = trace(&["--mode", mode], program.map(str::to_owned));
        traced.succeeded();
        traced.lost_nothing();
        let access = &traced.run["files"]["access"];
        assert!(number(&access["failed"]) >= 100, "{mode}: {access}");
        both.push((number(&access["calls"]), number(&access["failed"])));
        let notes = traced.run.to_string();
        assert!(!notes.contains("io_uring"), "{mode}: {notes}");
    }
    assert_eq!(both[0], both[1]);
}

/// Descriptors that a child inherits, or whose numbers are given again at once by other threads.
fn a_descriptor_has_the_path_of_what_it_is(node: &Node) {
    let folder = crate::support::folder();
    let place = |name: &str| folder.path().join(name).display().to_string();
    for i in 0..40 {
        std::fs::write(place(&format!("f{i}")), "x".repeat(i + 1)).expect("a file");
    }
    let child = crate::support::write(
        folder.path(),
        "child.js",
        "const fs = require('fs');
         const bytes = Buffer.alloc(100);
         for (let i = 0; i < 3; i++) fs.readSync(0, bytes, 0, 100, 0);
         fs.readSync(4, bytes, 0, 100, 0);
         try { fs.readSync(5, bytes, 0, 100, 0); } catch {}",
    );
    let script = crate::support::write(
        folder.path(),
        "main.js",
        "const fs = require('fs');
         const file = (n) => `${process.argv[2]}/f${n}`;
         const { spawnSync } = require('child_process');
         const given = fs.openSync(file(7)), other = fs.openSync(file(9));
         spawnSync(process.execPath, [process.argv[3]], { stdio: [given, 1, 2, 'ignore', other] });
         // By four threads of the pool and the main one.
         let left = 2000;
         const one = () => { if (left-- > 0) fs.readFile(file(left % 20), one); };
         for (let i = 0; i < 8; i++) one();
         let n = 0;
         (function here() {
           for (let i = 0; i < 20; i++) fs.readFileSync(file(20 + n++ % 20));
           if (left > 0) setImmediate(here);
         })();",
    );
    let here = folder.path().display().to_string();
    let traced = trace(
        &["--families", "files"],
        node.command([&script, &here, &child]),
    );
    let recording = Recording::load(&traced.recording).expect("a recording");
    let path = |file: &FileAccess| String::from_utf8_lossy(recording.name(file.path)).into_owned();
    let of = |root: bool| {
        let files = recording.files.iter();
        files.filter(move |file| (file.process.0 == 0) == root)
    };
    // A file has one byte more than its number: what was read tells which it was.
    let mut reads = BTreeMap::new();
    for file in of(true).filter(|file| file.operation == FileOperation::Read) {
        let path = path(file);
        if let Some(number) = path
            .strip_prefix(&place("f"))
            .and_then(|n| n.parse::<i64>().ok())
        {
            assert!(
                [0, number + 1].contains(&file.result),
                "{path}: {} bytes",
                file.result
            );
            *reads.entry(number).or_insert(0u64) += u64::from(file.result > 0);
        }
    }
    assert_eq!(reads.len(), 40, "{reads:?}");
    assert_eq!(reads.range(..20).map(|(_, n)| n).sum::<u64>(), 2_000);
    // What no open has made: standard streams, pipes, descriptors of the event loop.
    let without = of(true).filter(|file| file.operation == FileOperation::Close);
    let without: Vec<String> = without.map(path).filter(|p| p.starts_with("fd:")).collect();
    assert!(without.len() < 60, "{}: {without:?}", without.len());
    let inherited = |number: u64| {
        let name = place(&format!("f{number}"));
        let reads = of(false).filter(|file| file.operation == FileOperation::Read);
        reads.filter(|file| path(file) == name).count()
    };
    assert_eq!((inherited(7), inherited(9)), (3, 1));
}

fn compare(node: &Node, arguments: &[&str]) -> Option<Traced> {
    if !has_tool("strace") {
        return None;
    }
    let program = node.command(arguments);
    let traced = trace(&[], &program);
    let (mut ours, mut theirs) = (traced.file_operations(), strace(&program));
    // The report adds up what the recording holds.
    for operation in ["stat", "open", "read", "readlink", "access", "close"] {
        let reported = number(&traced.run["files"][operation]["calls"]);
        assert_eq!(reported, total(&ours, operation), "{operation}");
    }
    // V8 maps its own code from the executable again, if it lies too far from where the heap came to be.
    let executable = std::fs::canonicalize(&node.path).expect("the build");
    for operations in [&mut ours, &mut theirs] {
        operations.retain(|(_, path), _| Path::new(path) != executable);
    }

    let differences: Vec<String> = repeatable(&ours)
        .keys()
        .chain(repeatable(&theirs).keys())
        .filter(|key| ours.get(key) != theirs.get(key))
        .map(|key| {
            format!(
                "{} {}: {:?} and strace's {:?}",
                key.0,
                key.1,
                ours.get(key),
                theirs.get(key)
            )
        })
        .collect();
    assert!(differences.is_empty(), "{program:?}: {differences:#?}");

    let package_json = &traced.run["package_json"];
    for (figure, operation) in [("opens", "open"), ("stats", "stat"), ("reads", "read")] {
        let by_path: BTreeMap<&str, u64> = list(&package_json["files"])
            .iter()
            .map(|file| (text(&file["path"]), number(&file[figure])))
            .filter(|(_, count)| *count > 0)
            .collect();
        let expected: BTreeMap<&str, u64> = theirs
            .iter()
            .filter(|((o, path), _)| *o == operation && path.ends_with("/package.json"))
            .map(|((_, path), count)| (path.as_str(), *count))
            .collect();
        assert_eq!(by_path, expected, "{program:?}: {figure}");
        assert_eq!(
            number(&package_json[figure]),
            expected.values().sum::<u64>(),
            "{figure}"
        );
    }
    Some(traced)
}

/// Operations that are the same in every run: not those of the allocator and the threads (/proc, /sys, eventfd), and those on
/// descriptors that have no path.
fn repeatable(operations: &FileOperations) -> FileOperations {
    operations
        .iter()
        .filter(|((_, path), _)| {
            path.starts_with('/')
                && !["/proc/", "/sys/", "/dev/"]
                    .iter()
                    .any(|p| path.starts_with(p))
        })
        .map(|(key, count)| (key.clone(), *count))
        .collect()
}

fn total(operations: &FileOperations, operation: &str) -> u64 {
    operations
        .iter()
        .filter(|((o, _), _)| *o == operation)
        .map(|(_, count)| count)
        .sum()
}

/// A program that the system calls of 32-bit programs alone make: it writes a line, reads 10 descriptors and opens, checks and removes files by the numbers of i386, waits for
/// 20 ms and ends. Its instructions mean the same in 32 and in 64 bits.
fn with_calls_of_i386(bits: u32) -> Vec<u8> {
    const AT: u32 = 0x0800_0000;
    const HEADERS: u32 = 0x100;
    const CODE: u32 = 0x400;
    /// "ran" and a line feed, a path, and a time.
    const DATA: &[u8] = b"ran\n/\0\0\0\0\0\0\0\x00\x2d\x31\x01";
    let data = AT + HEADERS + CODE;
    let (line, path, time) = (data, data + 4, data + 8);
    let mut code = Vec::new();
    let mut call = |number: u32, b: u32, c: u32, d: u32| {
        for (opcode, value) in [(0xb8, number), (0xbb, b), (0xb9, c), (0xba, d)] {
            code.push(opcode); // mov eax|ebx|ecx|edx, value
            code.extend(value.to_le_bytes());
        }
        code.extend([0xcd, 0x80]); // int 0x80
    };
    // Of x86-64: stat, read, close, fstat, access and mremap, munmap.
    call(4, 1, line, 4); // write
    call(3, 1000, 0, 0); // read
    call(5, path, 0, 0); // open
    call(6, 1000, 0, 0); // close
    call(33, path, 0, 0); // access
    call(11, 0, 0, 0); // execve of nothing
    call(9, 0, 0, 0); // link of nothing
    call(162, time, 0, 0); // nanosleep
    call(1, 0, 0, 0); // exit
    assert!(code.len() <= CODE as usize);
    code.resize(CODE as usize, 0x90);

    let mut file = vec![0x7f, b'E', b'L', b'F', (bits / 32) as u8, 1, 1];
    file.resize(16, 0);
    let half = |file: &mut Vec<u8>, values: &[u16]| {
        values.iter().for_each(|v| file.extend(v.to_le_bytes()));
    };
    let word = |file: &mut Vec<u8>, values: &[u32]| {
        values.iter().for_each(|&v| match bits {
            32 => file.extend(v.to_le_bytes()),
            _ => file.extend(u64::from(v).to_le_bytes()),
        });
    };
    // An executable program of i386 or x86-64.
    half(&mut file, &[2, if bits == 32 { 3 } else { 62 }, 1, 0]);
    let (header, segment) = if bits == 32 { (52, 32) } else { (64, 56) };
    // The entry, the place of the program headers, and that there are no sections.
    word(&mut file, &[AT + HEADERS, u32::from(header), 0]);
    half(&mut file, &[0, 0, header, segment, 1, 0, 0, 0]);
    let size = HEADERS + CODE + DATA.len() as u32;
    // One segment, to be loaded and executed.
    match bits {
        32 => word(&mut file, &[1, 0, AT, AT, size, size, 5, 0x1000]),
        _ => {
            half(&mut file, &[1, 0, 5, 0]);
            word(&mut file, &[0, AT, AT, size, size, 0x1000]);
        }
    }
    file.resize(HEADERS as usize, 0);
    file.extend(code);
    file.extend(DATA);
    file
}

/// Their numbers are those of others of x86-64.
#[test]
#[ignore = "needs root"]
fn system_calls_of_i386_are_not_taken_for_those_of_x86_64() {
    let Some(node) = Node::find("24.21.0") else {
        return;
    };
    let folder = crate::support::folder();
    let mut script = String::new();
    for bits in [32, 64] {
        let (made, program) = (
            folder.path().join(format!("made-{bits}")),
            folder.path().join(format!("of-{bits}-bits")),
        );
        std::fs::write(&made, with_calls_of_i386(bits)).expect("a file");
        crate::support::copy_program(&made, &program);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).expect("a mode");
        let alone = std::process::Command::new(&program).output();
        if !alone.is_ok_and(|alone| alone.stdout == b"ran\n" && alone.status.success()) {
            println!("skipped: this kernel has no system calls of i386 (CONFIG_IA32_EMULATION)");
            return;
        }
        script += &format!("'{}' && ", program.display());
    }
    script += &format!("'{}' -e 0", node.path.display());
    let traced = trace(&[], ["sh", "-c", &script]);
    assert_eq!(traced.stdout(), "ran\nran\n");
    let recording = Recording::load(&traced.recording).expect("a recording");
    for bits in [32, 64] {
        let name = format!("of-{bits}-bits");
        let process = traced.process(&name, |p| text(&p["command"][0]).ends_with(&name));
        assert_eq!(number(&process["file_operations"]), 0, "{process}");
        let pid = number(&process["pid"]) as u32;
        let of_it = |w: &&nodeprof_profile::recording::Wait| w.thread.0 == pid;
        let waits: Vec<_> = recording.waits.iter().filter(of_it).collect();
        let slept = waits.iter().max_by_key(|wait| wait.duration);
        let slept = slept.unwrap_or_else(|| panic!("{name}: no wait"));
        assert!(slept.duration.0 >= 20_000_000, "{name}: {waits:?}");
        assert_eq!(slept.syscall, None, "{name}: {waits:?}");
        assert_eq!(slept.reason, WaitReason::Other, "{name}: {waits:?}");
    }
}
