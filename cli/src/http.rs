//! How both servers answer: a connection has a short time for each request, and there are so many at a time.
//! [`axum::serve`] waits for ever, and for any number of them.

use std::{sync::Arc, time::Duration};

use axum::{Router, serve::Listener};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::sync::Semaphore;

/// Connections at a time; of more, each waits. Pages that are open have one.
const MOST: usize = 64;
/// For the head of a request to be there, whole, from the connection or the answer before on.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that are read of a connection before they are looked at; a head has to fit.
const LONGEST_HEAD: usize = 64 << 10;

/// Answers until the process ends.
pub async fn serve(listener: impl Listener, routes: Router) {
    serve_within(listener, routes, MOST, PATIENCE).await;
}

async fn serve_within(
    mut listener: impl Listener,
    routes: Router,
    most: usize,
    patience: Duration,
) {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(LONGEST_HEAD);
    let places = Arc::new(Semaphore::new(most));
    while let Ok(place) = places.clone().acquire_owned().await {
        let (stream, _) = listener.accept().await;
        let answers = TowerToHyperService::new(routes.clone());
        let connection = server.serve_connection(TokioIo::new(stream), answers);
        tokio::spawn(async move {
            // One that is gone, or too slow, has no use for an answer.
            let _ = connection.await;
            drop(place);
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
    };

    use axum::routing::get;

    use super::*;

    #[test]
    fn connections_that_say_nothing_are_closed_and_keep_nobody_out() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = runtime.block_on(listener).unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().route("/", get(|| async { "here" }));
        let patience = Duration::from_millis(20);
        runtime.spawn(serve_within(listener, routes, 2, patience));
        let connect = || {
            let stream = TcpStream::connect(address).unwrap();
            // Far more than it takes: without it the test would hang.
            let most = Some(Duration::from_secs(60));
            stream.set_read_timeout(most).unwrap();
            stream
        };
        let mut idle: Vec<TcpStream> = (0..2).map(|_| connect()).collect();
        idle[0].write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
        let mut asks = connect();
        asks.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        // The connection that was answered says nothing more, either.
        let mut answer = String::new();
        asks.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.ends_with("here"), "{answer}");
        for mut stream in idle {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            assert!(!rest.starts_with(b"HTTP/1.1 200"), "{rest:?}");
        }
    }
}
