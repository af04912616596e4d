//! `nodeprof view` as a browser, a foreign site and a program on the same machine meet it.

#![allow(clippy::expect_used, reason = "a test that fails says where")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::Duration,
};

use nodeprof_flamegraphs::web;
use nodeprof_profile::{Recording, SaveOptions};

const NODEPROF: &str = env!("CARGO_BIN_EXE_nodeprof");

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
        let (status, page) = server.ask(target.expect("a path").1, &[]);
        assert_eq!(status, 200, "{page}");
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
