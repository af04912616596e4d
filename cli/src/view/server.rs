//! Requests and answers.

use std::{
    convert::Infallible,
    io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use axum::{
    Router,
    extract::{Query, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::get,
};
use nodeprof_flamegraphs::web::{self, Place};
use nodeprof_profile::{diff::Diff, groups::Selector, recording::RunId};
use notify::Watcher as _;
use serde_json::json;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
};
use tokio_stream::{Stream, StreamExt as _, wrappers::WatchStream};

use super::{
    Folder, starts,
    turns::{Failure, Turns, Work},
};
use crate::args::{Listen, store::Store};
use crate::commands::{diff::Loaded, diff::derived, report, source};
use crate::{http, token::same};

/// Files change several times while they are written: the list is made anew when they are quiet.
const QUIET: Duration = Duration::from_millis(200);

/// Bytes that runs of a store take which a request loads, about: what is made of them takes as much again twice, and the unit allows 1 GB (`MemoryMax`).
pub(super) const MOST_LOADED: u64 = 256 << 20;

/// What is served.
#[derive(Debug)]
pub enum Serves {
    /// Recordings.
    Folder(Folder),
    /// The store of the service.
    Store(Store),
}

/// What every request needs.
#[derive(Debug)]
pub(super) struct Shared {
    folder: Folder,
    pub(super) store: Store,
    token: String,
    /// The values of `Host` that are ours.
    hosts: Vec<String>,
    changes: watch::Receiver<u64>,
    turns: Turns,
    /// Bytes of the runs of a request: [`MOST_LOADED`].
    pub(super) most_loaded: u64,
}

/// Where pages are served, and to whom.
#[derive(Debug)]
pub struct Served {
    /// Where.
    pub listen: Listen,
    /// What the address of each page must have.
    pub token: String,
    /// Names by which browsers reach it, besides its address.
    pub hosts: Vec<String>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Listens, tells `ready` the address, and serves until the process ends.
pub fn serve(
    serves: Serves,
    served: Served,
    ready: impl FnOnce(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the server")?;
    runtime.block_on(async {
        let (listener, mut hosts) = listen(&served.listen).await?;
        // What speaks to a socket of this machine is reached by the name of whatever stands before it.
        match listener {
            Listener::Unix(_) => hosts.splice(0..0, served.hosts).for_each(drop),
            Listener::Tcp(_) => hosts.extend(served.hosts),
        }
        let (folder, store, routes) = match serves {
            Serves::Folder(folder) => (folder, Store::default(), recordings()),
            Serves::Store(store) => {
                let path = source::path(&store);
                let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
                (Folder::new(folder, Vec::new()), store, starts::router())
            }
        };
        // Of a store nobody is told of changes.
        let of_folder = !store.store;
        let (_watcher, changes) = match of_folder {
            true => watched(&folder).map(|(watcher, changes)| (Some(watcher), changes))?,
            false => (None, watch::channel(0).1),
        };
        let token = served.token;
        let host = hosts.first().cloned().unwrap_or_default();
        let url = format!("http://{host}/?token={token}");
        let shared = Arc::new(Shared {
            folder,
            store,
            token,
            hosts,
            changes,
            turns: Turns::default(),
            most_loaded: MOST_LOADED,
        });
        ready(&url)?;
        let routes = guarded(routes, shared);
        match listener {
            Listener::Tcp(listener) => http::serve(listener, routes).await,
            Listener::Unix(listener) => http::serve(listener, routes).await,
        }
        Ok(())
    })
}

/// Returns the names that a request may be for, too; the first is the one to show.
async fn listen(at: &Listen) -> anyhow::Result<(Listener, Vec<String>)> {
    let address = match at {
        Listen::Tcp(address) => *address,
        Listen::Unix(path) => {
            let shown = path.display();
            // One that a killed server has left.
            let is_left = std::fs::symlink_metadata(path)
                .is_ok_and(|meta| meta.file_type().is_socket())
                && std::os::unix::net::UnixStream::connect(path).is_err();
            if is_left {
                std::fs::remove_file(path).with_context(|| format!("replacing {shown}"))?;
            }
            let listener = UnixListener::bind(path)
                .with_context(|| format!("listening on {shown}; needed: a path where nothing is, in a folder that may be written to"))?;
            // Whoever may look into its folder connects; who is answered, the token decides.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
                .with_context(|| format!("opening {shown} to others"))?;
            return Ok((Listener::Unix(listener), vec!["localhost".into()]));
        }
    };
    let port = address.port();
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "port {port} is in use by another program; needed: a free one; type: --port 0 for any"
        ),
        io::ErrorKind::PermissionDenied => anyhow::anyhow!(
            "port {port} is not open to this user; needed: one above 1023; type: --port 0 for any free one"
        ),
        _ => anyhow::Error::new(error).context(format!("listening on {address}")),
    })?;
    let address = listener.local_addr()?;
    let port = address.port();
    let mut hosts = vec![address.to_string()];
    for name in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
        if !hosts.contains(&name) {
            hosts.push(name);
        }
    }
    hosts.extend(without_default_port(&hosts));
    Ok((Listener::Tcp(listener), hosts))
}

/// The same hosts as clients name them that leave out the port of HTTP.
pub fn without_default_port(hosts: &[String]) -> Vec<String> {
    let names = hosts.iter().filter_map(|host| host.strip_suffix(":80"));
    names.map(str::to_owned).collect()
}

/// Counts changes of the folder for as long as the watcher lives.
fn watched(folder: &Folder) -> anyhow::Result<(notify::RecommendedWatcher, watch::Receiver<u64>)> {
    let (sender, changes) = watch::channel(0u64);
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let relevant = event.is_ok_and(|event| !event.kind.is_access());
        if relevant {
            sender.send_modify(|count| *count = count.wrapping_add(1));
        }
    });
    let mut watcher = watcher.context("watching for new recordings")?;
    let path = folder.path();
    watcher
        .watch(path, notify::RecursiveMode::NonRecursive)
        .with_context(|| format!("watching {} for new recordings", path.display()))?;
    Ok((watcher, changes))
}

fn recordings() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(list))
        .route("/report", get(recording))
        .route("/diff", get(comparison))
        .route("/events", get(events))
}

fn guarded(routes: Router<Arc<Shared>>, shared: Arc<Shared>) -> Router {
    routes
        .layer(middleware::from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

/// Lets only pages of our own in, and lets nothing but these use the answer.
async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&shared, request.headers(), request.uri().query()) {
        Some(reason) => (StatusCode::FORBIDDEN, reason).into_response(),
        None => next.run(request).await,
    };
    let headers = [
        // The page's own policy is stricter: it names the hash of its script.
        (
            header::CONTENT_SECURITY_POLICY,
            "frame-ancestors 'none'; object-src 'none'; base-uri 'none'; form-action 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in headers {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Why a request is refused.
fn refusal(shared: &Shared, headers: &HeaderMap, query: Option<&str>) -> Option<&'static str> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_ours = |host: &str| {
        let mut hosts = shared.hosts.iter();
        hosts.any(|ours| ours.eq_ignore_ascii_case(host))
    };
    if !text(header::HOST).is_some_and(is_ours) {
        return Some(
            "found: a request for another host; needed: the address that nodeprof view printed\n",
        );
    }
    let origin = text(header::ORIGIN);
    if origin.is_some_and(|origin| {
        // A web server in front may speak TLS.
        let host = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        !host.is_some_and(is_ours)
    }) {
        return Some(
            "found: a request of another site; needed: one of nodeprof view's own pages\n",
        );
    }
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    // A link that somebody follows elsewhere, as in a chat, opens a page of its own: with the token it may.
    let is = |name, wanted: &[u8]| headers.get(name).map(HeaderValue::as_bytes) == Some(wanted);
    let followed = is("sec-fetch-mode", b"navigate") && is("sec-fetch-dest", b"document");
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") && !followed {
        return Some(
            "found: a request of another site; needed: one of nodeprof view's own pages\n",
        );
    }
    let pairs = query.unwrap_or_default().split('&');
    let token = { pairs }.find_map(|pair| pair.strip_prefix("token="));
    // As a browser may write what base64 has in it.
    let token = token.map(|token| {
        token
            .replace("%2B", "+")
            .replace("%2F", "/")
            .replace("%3D", "=")
            .replace("%7E", "~")
    });
    if !token.is_some_and(|token| same(token.as_bytes(), shared.token.as_bytes())) {
        return Some(
            "found: no token, or another one; needed: the address that nodeprof view printed, with its token\n",
        );
    }
    None
}

/// Reads and reckons in its turn, and where it keeps no other request waiting; what comes of it is the answer.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    work: Work,
    kind: &'static str,
    page: impl FnOnce(&Shared) -> anyhow::Result<Vec<u8>> + Send + 'static,
) -> Result<Response, Failure> {
    let turn = shared.turns.next(work).await?;
    let shared = shared.clone();
    let bytes = blocking(move || {
        // Also if who has asked is gone, it is this one's turn until the end.
        let _turn = turn;
        Ok(shared.turns.sends(page(&shared)?))
    })
    .await??;
    Ok(([(header::CONTENT_TYPE, kind)], bytes).into_response())
}

/// The same of a page.
pub(super) async fn page(
    shared: &Arc<Shared>,
    work: Work,
    page: impl FnOnce(&Shared) -> anyhow::Result<String> + Send + 'static,
) -> Result<Response, Failure> {
    let bytes = |shared: &Shared| page(shared).map(String::into_bytes);
    answer(shared, work, "text/html; charset=utf-8", bytes).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(Failure(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.to_string(),
        )),
    }
}

fn listed(folder: &Folder) -> anyhow::Result<serde_json::Value> {
    let shown = folder.path().display().to_string();
    let recordings = folder
        .list()
        .with_context(|| format!("reading the folder {shown}"))?;
    Ok(json!({ "folder": shown, "recordings": recordings }))
}

async fn list(State(shared): State<Arc<Shared>>) -> Result<Response, Failure> {
    page(&shared, Work::Loads, |shared| {
        Ok(web::list(&listed(&shared.folder)?)?)
    })
    .await
}

pub(super) type Pairs = Vec<(String, String)>;

/// The recordings that a request names, in its order.
fn named(folder: &Folder, query: &Pairs) -> Result<Vec<(String, PathBuf)>, Failure> {
    let files = folder
        .files()
        .with_context(|| format!("reading the folder {}", folder.path().display()))?;
    let names = query.iter().filter(|(key, _)| key == "file");
    names
        .map(|(_, name)| match files.get(name) {
            Some(path) => Ok((name.clone(), path.clone())),
            None => Err(Failure(
                StatusCode::NOT_FOUND,
                format!("found: no recording {name:?}; needed: one of the list"),
            )),
        })
        .collect()
}

async fn recording(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<Pairs>,
) -> Result<Response, Failure> {
    let mut files = named(&shared.folder, &query)?.into_iter();
    let (Some((name, path)), None) = (files.next(), files.next()) else {
        return Err(Failure(
            StatusCode::BAD_REQUEST,
            "found: not one recording; needed: file=NAME once".into(),
        ));
    };
    let run = query.iter().find(|(key, _)| key == "run");
    let run = run.map(|(_, number)| number.clone());
    page(&shared, Work::Loads, move |shared| {
        shared.folder.may_open([path.as_path()])?;
        let (recording, profile) = derived(nodeprof_profile::Recording::load(&path)?);
        let run = run.map(|number| numbered(&number, recording.runs.len()));
        let run = run.transpose()?;
        report::html(&name, &recording, &profile, run, Place::Server)
    })
    .await
}

/// A run by the number that an address has.
fn numbered(number: &str, runs: usize) -> anyhow::Result<RunId> {
    let index = number.parse::<u32>().ok().and_then(|n| n.checked_sub(1));
    match index.filter(|index| (*index as usize) < runs) {
        Some(index) => Ok(RunId(index)),
        None => anyhow::bail!(
            "found: run={number} of a recording with {}; needed: run=NUMBER, counted from 1, or none",
            nodeprof_profile::wording::counted(runs as u64, "# run[|s]")
        ),
    }
}

async fn comparison(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<Pairs>,
) -> Result<Response, Failure> {
    let files = named(&shared.folder, &query)?;
    let paths: Vec<PathBuf> = files.into_iter().map(|(_, path)| path).collect();
    let mut files = paths.iter().cloned().map(Selector::all);
    let (Some(base), head, None) = (files.next(), files.next(), files.next()) else {
        return Err(Failure(
            StatusCode::BAD_REQUEST,
            "found: not two recordings; needed: file=BASE, then file=HEAD".into(),
        ));
    };
    drop(files);
    page(&shared, Work::Loads, move |shared| {
        shared.folder.may_open(paths.iter().map(PathBuf::as_path))?;
        let loaded = Loaded::load(&base, head.as_ref(), &Store::default())?;
        let diff = Diff::new(&loaded.base_side(), &loaded.head_side());
        let (base, head) = loaded.pages();
        Ok(web::comparison(&base, &head, &diff, Place::Server)?)
    })
    .await
}

/// The list, each time that it changes.
async fn events(
    State(shared): State<Arc<Shared>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let changes = WatchStream::from_changes(shared.changes.clone());
    let lists = changes.then(move |_| {
        let shared = shared.clone();
        async move {
            tokio::time::sleep(QUIET).await;
            let list = match shared.turns.next(Work::Lists).await {
                Ok(turn) => {
                    blocking(move || {
                        let _turn = turn;
                        listed(&shared.folder)
                    })
                    .await
                }
                Err(busy) => Err(busy),
            };
            let event = Event::default().event("recordings");
            // What cannot be read now is told by the next change.
            Ok(match list {
                Ok(list) => event.data(list.to_string()),
                Err(Failure(_, reason)) => Event::default().comment(reason.replace('\n', " ")),
            })
        }
    });
    Sse::new(lists).keep_alive(KeepAlive::default())
}

#[cfg(test)]
impl Shared {
    /// For the runs of a store, of which a request may load so much.
    pub(super) fn of_store(path: PathBuf, most_loaded: u64) -> Shared {
        Shared {
            folder: Folder::new("/".into(), Vec::new()),
            store: Store {
                store: true,
                store_path: Some(path),
            },
            token: String::new(),
            hosts: Vec::new(),
            changes: watch::channel(0).1,
            turns: Turns::default(),
            most_loaded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_on_the_port_of_http_need_not_name_it() {
        let hosts = ["127.0.0.1:80", "localhost:80", "[::1]:80", "127.0.0.1:8080"];
        let without = without_default_port(&hosts.map(str::to_owned));
        assert_eq!(without, ["127.0.0.1", "localhost", "[::1]"]);
    }
}
