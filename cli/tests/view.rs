//! `nodeprof view` as a browser, a foreign site and a program on the same machine meet it.

#![allow(clippy::expect_used, reason = "a test that fails says where")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        net::UnixStream,
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::{Duration, Instant},
};

use nodeprof_flamegraphs::web;
use nodeprof_profile::{Profile, Recording, SaveOptions, store::database::Database};
use serde_json::{Value, json};

const NODEPROF: &str = env!("CARGO_BIN_EXE_nodeprof");

/// A file of the project.
fn project(path: &str) -> String {
    format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))
}

/// A server that ends with the test.
struct Server {
    process: Child,
    _output: BufReader<ChildStdout>,
    /// As it was printed.
    url: String,
    port: u16,
    token: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(NODEPROF);
    command
        .args(["view", "--no-open"])
        .args(arguments)
        .current_dir(folder);
    command
}

impl Server {
    /// `None`: this nodeprof has no page, which was said.
    fn start(folder: &Path, arguments: &[&str]) -> Option<Server> {
        if !web::is_built() {
            println!("skipped: nodeprof was built without its page; run make test");
            return None;
        }
        let mut process = command(folder, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("nodeprof starts");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut url = String::new();
        output.read_line(&mut url).expect("an address");
        let url = url.trim().to_owned();
        let rest = url
            .strip_prefix("http://127.0.0.1:")
            .expect("on this machine");
        let (port, rest) = rest.split_once('/').expect("a path");
        let (_, token) = rest.split_once("token=").expect("a token");
        Some(Server {
            port: port.parse().expect("a port"),
            token: token.to_owned(),
            process,
            _output: output,
            url,
        })
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).expect("a timeout");
        stream
    }

    /// Status and body.
    fn ask(&self, target: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut stream = self.connect();
        let mut request = format!("GET {target} HTTP/1.1\r\nConnection: close\r\n");
        let host = format!("127.0.0.1:{}", self.port);
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request.push_str(&format!("Host: {host}\r\n"));
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        stream
            .write_all((request + "\r\n").as_bytes())
            .expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer.get(9..12).and_then(|status| status.parse().ok());
        (status.expect("a status"), answer)
    }

    /// With the token.
    fn get(&self, path: &str) -> (u16, String) {
        let mark = if path.contains('?') { '&' } else { '?' };
        self.ask(&format!("{path}{mark}token={}", self.token), &[])
    }
}

fn save(folder: &Path, name: &str) {
    let options = SaveOptions { overwrite: true };
    let recording = Recording::synthetic(500);
    recording
        .save(folder.join(name), options)
        .expect("a recording");
}

fn fails(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("nodeprof starts");
    assert_eq!(status.code(), Some(125));
    String::from_utf8_lossy(&stderr).into_owned()
}

#[test]
fn it_serves_the_list_a_report_and_a_comparison() {
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), "a b.nodeprof");
    save(folder.path(), "c.nodeprof");
    fs::write(folder.path().join("bad.nodeprof"), "nothing").expect("a file");
    let Some(server) = Server::start(folder.path(), &[]) else {
        return;
    };
    let (status, list) = server.get("/");
    assert_eq!(status, 200, "{list}");
    assert!(list.contains("connect-src 'self'"));
    let (status, report) = server.get("/report?file=a%20b.nodeprof");
    assert_eq!(status, 200, "{report}");
    assert!(report.contains("frame-ancestors 'none'"));
    let (status, diff) = server.get("/diff?file=a+b.nodeprof&file=c.nodeprof");
    assert_eq!(status, 200, "{diff}");
    let (status, error) = server.get("/report?file=bad.nodeprof");
    assert_eq!(status, 422, "{error}");
    assert!(error.contains("bad.nodeprof"), "{error}");
}

/// The list as a person sees it: every figure that of the recordings, accessible, and what is clicked opens.
#[test]
fn the_list_is_what_the_folder_has_in_a_browser() {
    if !Path::new(&project("flamegraphs/page/node_modules")).is_dir() {
        println!("skipped: flamegraphs/page has no node_modules; run make test");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), "a b.nodeprof");
    save(folder.path(), "c.nodeprof");
    fs::write(folder.path().join("bad.nodeprof"), "nothing").expect("a file");
    let hostile = "<img src=x onerror=globalThis.injected=1>.nodeprof";
    save(folder.path(), hostile);
    let mut server = Recording::synthetic(500);
    server.runs[0].exit_status = None;
    server.runs[0].ended_by = "idle".into();
    let path = folder.path().join("server.nodeprof");
    server
        .save(path, SaveOptions { overwrite: true })
        .expect("a recording");
    let Some(server) = Server::start(folder.path(), &[]) else {
        return;
    };
    let names = [
        "a b.nodeprof",
        "c.nodeprof",
        "bad.nodeprof",
        "server.nodeprof",
        hostile,
    ];
    let listed = names.map(|name| {
        let path = folder.path().join(name);
        let report = Command::new(NODEPROF)
            .args(["report", "--format", "json"])
            .arg(&path)
            .output()
            .expect("nodeprof starts");
        let bytes = fs::metadata(&path).expect("a file").len();
        let Ok(report) = serde_json::from_slice::<Value>(&report.stdout) else {
            return json!({ "name": name, "node": null, "runs": 0, "time": null, "bytes": bytes });
        };
        let runs = report["runs"].as_array().expect("runs");
        let to_exec = runs[0]["start_to_exec_ns"].as_i64().expect("a time");
        let loop_start = runs[0]["milestones"]["loop_start"].as_i64();
        let time = match name {
            "server.nodeprof" => json!(loop_start.expect("a milestone") + to_exec),
            _ => runs[0]["time"]["wall_ns"].clone(),
        };
        json!({
            "name": name,
            "node": runs[0]["node"]["version"],
            "runs": runs.len(),
            "time": time,
            "bytes": bytes,
        })
    });
    let expected = folder.path().join("expected.json");
    fs::write(&expected, Value::from(listed.to_vec()).to_string()).expect("a file");
    let output = Command::new("node")
        .arg(project("flamegraphs/page/test/drive.mjs"))
        .args([&server.url, "--axe", "--recordings"])
        .arg(&expected)
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .expect("node starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    // 77: it said why it was skipped.
    let fine = output.status.success() || output.status.code() == Some(77);
    assert!(fine, "{said}{complaint}");
}

#[test]
fn the_only_recording_is_opened_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), "a b.nodeprof");
    if let Some(server) = Server::start(folder.path(), &["a b.nodeprof"]) {
        let beginning = format!(
            "http://127.0.0.1:{}/report?file=a%20b.nodeprof&token=",
            server.port
        );
        assert!(server.url.starts_with(&beginning), "{}", server.url);
        let target = server.url.split_once(&server.port.to_string());
        let target = target.expect("a path").1;
        let (status, page) = server.ask(target, &[]);
        assert_eq!(status, 200, "{page}");
        let (status, _) = server.ask(&format!("{target}&run=1"), &[]);
        assert_eq!(status, 200);
        for number in ["0", "2", "x", ""] {
            let (status, why) = server.ask(&format!("{target}&run={number}"), &[]);
            let expected =
                format!("found: run={number} of a recording with 1 run; needed: run=NUMBER");
            assert_eq!(status, 422, "{why}");
            assert!(why.contains(&expected), "{why}");
        }
    }
}

#[test]
fn other_hosts_other_sites_and_those_without_the_token_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), "a.nodeprof");
    let Some(server) = Server::start(folder.path(), &[]) else {
        return;
    };
    for path in ["/", "/report", "/diff", "/events", "/nothing"] {
        let right = format!("{path}?token={}&file=a.nodeprof", server.token);
        let port = server.port;
        let refused: [(&str, &str, &str); 7] = [
            (&right, "Host", "evil.example"),
            (&right, "Host", &format!("evil.example:{port}")),
            (&right, "Origin", "http://evil.example"),
            (&right, "Origin", "null"),
            (&right, "Sec-Fetch-Site", "cross-site"),
            (path, "Accept", "*/*"),
            (&format!("{path}?token=0"), "Accept", "*/*"),
        ];
        for (target, name, value) in refused {
            let (status, answer) = server.ask(target, &[(name, value)]);
            assert_eq!(status, 403, "{target}, {name}: {value}: {answer}");
            assert!(answer.contains("needed:"), "{answer}");
            assert!(!answer.contains("access-control-allow-origin"), "{answer}");
        }
    }
    let ours = format!("http://localhost:{}", server.port);
    let host = format!("localhost:{}", server.port);
    let target = format!("/?token={}", server.token);
    let (status, _) = server.ask(&target, &[("Host", &host), ("Origin", &ours)]);
    assert_eq!(status, 200);
    // A link with the token that somebody follows from another site opens a page; a frame or a script of that site does not.
    let followed = |dest| {
        let site = ("Sec-Fetch-Site", "cross-site");
        let mode = ("Sec-Fetch-Mode", "navigate");
        let headers = [
            ("Host", host.as_str()),
            site,
            mode,
            ("Sec-Fetch-Dest", dest),
        ];
        (server.ask(&target, &headers).0, server.ask("/", &headers).0)
    };
    assert_eq!(followed("document"), (200, 403));
    assert_eq!(followed("iframe"), (403, 403));
}

#[test]
fn files_beside_the_list_are_not_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).expect("a folder");
    save(folder.path(), "outside.nodeprof");
    save(&inside, "a.nodeprof");
    let Some(server) = Server::start(&inside, &[]) else {
        return;
    };
    for name in [
        "../outside.nodeprof",
        "..%2Foutside.nodeprof",
        "/etc/passwd",
        "%00",
        "",
    ] {
        let (status, answer) = server.get(&format!("/report?file={name}"));
        assert_eq!(status, 404, "{name}: {answer}");
    }
}

#[test]
fn a_new_recording_is_told_to_the_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(server) = Server::start(folder.path(), &[]) else {
        return;
    };
    let mut stream = server.connect();
    let request = format!(
        "GET /events?token={} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n",
        server.token, server.port
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut lines = BufReader::new(stream).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    assert!(line().contains("200"));
    while !line().is_empty() {}
    save(folder.path(), "new.nodeprof");
    // The first list can be from before the file was whole.
    let found = (0..1000).any(|_| line().contains(r#""name":"new.nodeprof""#));
    assert!(found);
}

#[test]
fn errors_say_what_was_found_and_what_to_type() {
    if !web::is_built() {
        println!("skipped: nodeprof was built without its page; run make test");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let busy = fails(command(folder.path(), &["--port", &port]));
    assert!(
        busy.contains(&format!("port {port} is in use")) && busy.contains("--port 0"),
        "{busy}"
    );
    let missing = fails(command(folder.path(), &["no.nodeprof"]));
    assert!(missing.contains("no.nodeprof"), "{missing}");
    fs::write(folder.path().join("bad.nodeprof"), "nothing").expect("a file");
    let bad = fails(command(folder.path(), &["bad.nodeprof"]));
    assert!(bad.contains("bad.nodeprof"), "{bad}");
}

/// A store with three commits of four runs each; the last one has more crossings.
fn store(folder: &Path) -> String {
    let path = folder.join("starts.db");
    let mut database = Database::open(&path).expect("a database");
    for (index, (commit, crossings)) in [("a1", 40), ("b2", 40), ("c3", 55)].iter().enumerate() {
        for run in 0..4 {
            let mut recording = Recording::synthetic(*crossings);
            let one = &mut recording.runs[0];
            one.labels.push(("commit".into(), (*commit).into()));
            one.labels.push((
                "job".into(),
                "<img src=x onerror=globalThis.injected=1>".into(),
            ));
            one.started_unix_ns =
                1_700_000_000_000_000_000 + (index as u64 * 10 + run) * 1_000_000_000;
            database.keep(recording, None).expect("a run");
        }
    }
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_store_is_served_by_run_by_label_and_as_profiles() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = store(folder.path());
    let Some(server) = Server::start(folder.path(), &["--store", "--store-path", &path]) else {
        return;
    };
    for target in [
        "/",
        "/?label=commit%3Da1&figure=crossings.total",
        "/?label=commit%3Dnone&figure=crossings.total",
        "/report?run=1",
        "/diff?base=commit%3Da1&head=commit%3Dc3",
        "/diff?base=1&head=9",
    ] {
        let (status, page) = server.get(target);
        assert_eq!(status, 200, "{target}: {page}");
        assert!(page.contains("frame-ancestors 'none'"), "{target}");
    }
    for (target, status, says) in [
        ("/report?run=77", 422, "has no run 77"),
        ("/diff?base=1,77&head=9", 422, "has no run 77"),
        ("/report", 400, "needed: run=NUMBER"),
        ("/report?run=x", 400, "needed: run=NUMBER"),
        ("/diff?base=1", 400, "needed: base=RUNS and head=RUNS"),
        ("/diff?base=1&head=commit%3Dzz", 422, "commit=c3"),
        ("/?label=commit", 400, "needed: label=KEY=VALUE"),
        ("/?days=0", 400, "a number from 1 to 36500"),
        ("/pprof?run=1&of=nothing", 400, "crossing-time"),
        ("/events", 404, ""),
    ] {
        let (found, said) = server.get(target);
        assert_eq!(found, status, "{target}: {said}");
        assert!(said.contains(says), "{target}: {said}");
    }
    let (status, _) = server.ask("/pprof?run=1", &[]);
    assert_eq!(status, 403);
    // A profile, packed.
    let target = format!("/pprof?run=1&of=crossings&token={}", server.token);
    let mut stream = server.connect();
    let request = format!(
        "GET {target} HTTP/1.0\r\nHost: 127.0.0.1:{}\r\n\r\n",
        server.port
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let body = &answer[at.expect("a body") + 4..];
    assert_eq!(body[..2], [0x1f, 0x8b]);
    // The same as the command writes.
    let written = Command::new(NODEPROF)
        .args(["flame", "--store", "--store-path", &path, "1"])
        .args(["--of", "crossings", "--format", "pprof"])
        .output()
        .expect("nodeprof starts");
    assert_eq!(body, written.stdout);
}

#[test]
fn a_store_in_a_browser_has_its_runs_and_where_a_figure_changed() {
    if !Path::new(&project("flamegraphs/page/node_modules")).is_dir() {
        println!("skipped: flamegraphs/page has no node_modules; run make test");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = store(folder.path());
    let Some(server) = Server::start(folder.path(), &["--store", "--store-path", &path]) else {
        return;
    };
    let crossings = [40, 55].map(|events| {
        let profile = Profile::from_recording(&Recording::synthetic(events));
        profile.runs[0].crossings.total.to_string()
    });
    let output = Command::new("node")
        .arg(project("flamegraphs/page/test/drive.mjs"))
        .args([&server.url, "--axe", "--starts", &crossings.join(",")])
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .expect("node starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    // 77: it said why it was skipped.
    let fine = output.status.success() || output.status.code() == Some(77);
    assert!(fine, "{said}{complaint}");
}

#[test]
fn a_store_that_is_not_there_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    if !web::is_built() {
        println!("skipped: nodeprof was built without its page; run make test");
        return;
    }
    let said = fails(command(
        folder.path(),
        &["--store", "--store-path", "none.db"],
    ));
    assert!(said.contains("there is no database none.db"), "{said}");
    let said = fails(command(folder.path(), &["--store", "a.nodeprof"]));
    assert!(said.contains("--store and files"), "{said}");
}

#[test]
fn behind_a_web_server_it_listens_on_a_socket_and_answers_its_name() {
    if !web::is_built() {
        println!("skipped: nodeprof was built without its page; run make test");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), "a.nodeprof");
    let socket = folder.path().join("view.sock");
    let listen = format!("unix:{}", socket.display());
    let arguments = [
        "--listen",
        &listen,
        "--token-file",
        "token",
        "--host",
        "nodeprof.example",
    ];
    // One that a killed server has left is replaced; so it is started twice.
    for _ in 0..2 {
        let mut process = command(folder.path(), &arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("nodeprof starts");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut url = String::new();
        output.read_line(&mut url).expect("an address");
        assert_eq!(url, "http://nodeprof.example/?token=…\n");
        let token = fs::read_to_string(folder.path().join("token")).expect("a token");
        let token = token.trim();
        let ask = |host: &str, token: &str, origin: &str| {
            let mut stream = UnixStream::connect(&socket).expect("a connection");
            let request = format!(
                "GET /report?file=a.nodeprof&token={token} HTTP/1.1\r\nConnection: close\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).expect("a request");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            answer.get(9..12).map(str::to_owned).expect("a status")
        };
        let own = "https://nodeprof.example";
        assert_eq!(ask("nodeprof.example", token, own), "200");
        assert_eq!(ask("other.example", token, own), "403");
        assert_eq!(ask("nodeprof.example", &token[1..], own), "403");
        assert_eq!(
            ask("nodeprof.example", token, "https://other.example"),
            "403"
        );
        process.kill().expect("it runs");
        process.wait().expect("it ends");
    }
    let open_to_all = command(folder.path(), &["--listen", "0.0.0.0:0"]);
    let said = fails(open_to_all);
    assert!(said.contains("which other machines can reach"), "{said}");
    let no_address = command(folder.path(), &["--listen", "unix:"])
        .output()
        .expect("nodeprof starts");
    assert!(!no_address.status.success());
}

/// `nodeprof view` with a program in the place of a browser's, which notes what it is told.
struct Opened {
    server: Server,
    /// What the program was told.
    command_line: String,
    /// Who it was run as.
    user: String,
}

impl Opened {
    fn start(folder: &Path, set: &[(&str, &str)]) -> Option<Opened> {
        if !web::is_built() {
            println!("skipped: nodeprof was built without its page; run make test");
            return None;
        }
        let programs = folder.join("programs");
        fs::create_dir_all(&programs).expect("a folder");
        let (browser, noted) = (programs.join("xdg-open"), folder.join("noted"));
        let noting = format!(
            "#!/bin/sh\n{{ id -u; tr '\\0' ' ' </proc/$$/cmdline; echo; }} >{0}.new && mv {0}.new {0}\n",
            noted.display()
        );
        fs::write(&browser, noting).expect("a program");
        fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).expect("a program");
        let mut process = Command::new(NODEPROF);
        process
            .args(["view", "--port", "0", "a b.nodeprof"])
            .current_dir(folder)
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("DISPLAY", ":0")
            .env_remove("XDG_RUNTIME_DIR")
            .envs(set.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // The tests may run under nohup, which has SIGHUP ignored.
        // SAFETY: between fork and exec it makes system calls and nothing else.
        unsafe {
            process.pre_exec(|| {
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        let mut process = process.spawn().expect("nodeprof starts");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut url = String::new();
        output.read_line(&mut url).expect("an address");
        let url = url.trim().to_owned();
        let (_, token) = url.split_once("token=").expect("a token");
        let port = url.split([':', '/']).nth(4).expect("a port");
        let server = Server {
            port: port.parse().expect("a port"),
            token: token.to_owned(),
            process,
            _output: output,
            url,
        };
        let until = Instant::now() + Duration::from_secs(30);
        let noted = loop {
            match fs::read_to_string(&noted) {
                Ok(noted) => break noted,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let (user, command_line) = noted.split_once('\n').expect("two lines");
        Some(Opened {
            server,
            command_line: command_line.trim().to_owned(),
            user: user.to_owned(),
        })
    }

    /// What it is to open.
    fn page(&self) -> PathBuf {
        let page = self.command_line.split(' ').next_back();
        page.expect("an argument").into()
    }

    fn permissions(path: &Path) -> u32 {
        let meta = fs::symlink_metadata(path).expect("it is there");
        meta.permissions().mode() & 0o7777
    }

    /// Ends it by this signal; what it opened is gone with it.
    fn end(mut self, signal: i32) {
        let page = self.page();
        let kill = Command::new("kill")
            .args([format!("-{signal}"), self.server.process.id().to_string()])
            .status();
        assert!(kill.expect("kill starts").success());
        let status = self.server.process.wait().expect("it ends");
        assert_eq!(status.signal(), Some(signal));
        assert!(!page.exists() && !page.parent().expect("a folder").exists());
    }
}

/// All users of a machine can read command lines.
#[test]
fn the_token_is_in_no_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), "a b.nodeprof");
    let place = folder.path().join("place");
    fs::create_dir(&place).expect("a folder");
    let place_text = place.to_str().expect("UTF-8");
    for (variable, signal) in [("XDG_RUNTIME_DIR", 2), ("TMPDIR", 15), ("TMPDIR", 1)] {
        let _ = fs::remove_file(folder.path().join("noted"));
        let Some(opened) = Opened::start(folder.path(), &[(variable, place_text)]) else {
            return;
        };
        let (told, token) = (&opened.command_line, &opened.server.token);
        assert!(!told.contains(token.as_str()), "{told}");
        let page = opened.page();
        assert!(page.starts_with(&place), "{told}");
        assert_eq!(Opened::permissions(&page), 0o600);
        let around = page.parent().expect("a folder");
        assert_eq!(Opened::permissions(around), 0o700);
        let text = fs::read_to_string(&page).expect("a page");
        let leads = opened.server.url.replace('&', "&amp;");
        let refresh = format!(r#"<meta http-equiv="refresh" content="0; url={leads}">"#);
        assert!(text.contains(&refresh), "{text}");
        assert!(
            text.contains(r#"<meta name="referrer" content="no-referrer">"#),
            "{text}"
        );
        assert!(!text.contains("<script"), "{text}");
        assert_eq!(opened.user, own_user());
        opened.end(signal);
    }
}

fn own_user() -> String {
    let output = Command::new("id").arg("-u").output().expect("id starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
#[ignore = "needs root"]
fn under_sudo_the_page_is_the_users() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("a folder");
    save(folder.path(), "a b.nodeprof");
    // Where a user could lead what root writes elsewhere.
    let lure = folder.path().to_str().expect("UTF-8");
    let set = [
        ("SUDO_UID", "65534"),
        ("SUDO_GID", "65534"),
        ("XDG_RUNTIME_DIR", lure),
        ("TMPDIR", lure),
    ];
    let Some(opened) = Opened::start(folder.path(), &set) else {
        return;
    };
    let page = opened.page();
    assert!(page.starts_with("/tmp") && !page.starts_with(lure));
    for path in [&*page, page.parent().expect("a folder")] {
        assert_eq!(fs::metadata(path).expect("it is there").uid(), 65534);
    }
    assert_eq!(Opened::permissions(&page), 0o600);
    assert_eq!(opened.user, "65534");
    opened.end(2);
}

/// As a browser does it, with all that its own rules say of a page that leads from a file to a server.
#[test]
fn a_browser_comes_to_the_recording_by_the_page() {
    let chromium = ["chromium", "chromium-browser", "google-chrome"];
    let has = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let Some(chromium) = chromium.into_iter().find(has) else {
        println!("skipped: Chromium is not installed");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), "a b.nodeprof");
    let place = folder.path().to_str().expect("UTF-8");
    let Some(opened) = Opened::start(folder.path(), &[("XDG_RUNTIME_DIR", place)]) else {
        return;
    };
    let output = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=10000",
            "--dump-dom",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .arg(opened.page())
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .expect("Chromium starts");
    let page = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    // Of the report alone: the page that leads there has the name as an address writes it, and a refusal has none.
    let shown: String = page.chars().take(500).collect();
    assert!(page.contains("a b.nodeprof"), "{shown}{complaint}");
    opened.end(2);
}
