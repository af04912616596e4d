//! How both servers answer: a connection has a short time for each request and to take its answer, and there are so many at a time.
//! [`axum::serve`] waits for ever, and for any number of them.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{Router, serve::Listener};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Semaphore,
    time::{Sleep, sleep},
};

/// Connections at a time; of more, each waits. Pages that are open have one.
const MOST: usize = 64;
/// For the head of a request to be there, whole, from the connection or the answer before on.
const PATIENCE: Duration = Duration::from_secs(5);
/// For a client to take [`LEAST`] bytes of an answer, or its end. On a slow line the kernel tells of room only when a third of what it keeps has gone.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes: whoever takes fewer in that time takes a page of 1 MB in eight minutes, and somebody else's place.
const LEAST: usize = 64 << 10;
/// Bytes that are read of a connection before they are looked at; a head has to fit.
const LONGEST_HEAD: usize = 64 << 10;

/// Answers until the process ends.
pub async fn serve(listener: impl Listener, routes: Router) {
    serve_within(listener, routes, MOST, PATIENCE, WRITE_PATIENCE).await;
}

async fn serve_within(
    mut listener: impl Listener,
    routes: Router,
    most: usize,
    patience: Duration,
    write_patience: Duration,
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
        let stream = Taken::new(stream, write_patience);
        let connection = server.serve_connection(TokioIo::new(stream), answers);
        tokio::spawn(async move {
            // One that is gone, or too slow, has no use for an answer.
            let _ = connection.await;
            drop(place);
        });
    }
}

/// A connection whose client has to take what is written.
struct Taken<S> {
    stream: S,
    patience: Duration,
    /// Until when, while something waits.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes that went since it was set.
    gone: usize,
}

impl<S> Taken<S> {
    fn new(stream: S, patience: Duration) -> Taken<S> {
        Taken {
            stream,
            patience,
            deadline: None,
            gone: 0,
        }
    }

    /// What became of a write, and an error if it has waited for too long.
    fn within(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(done) = written {
            self.gone = self.gone.saturating_add(*done.as_ref().unwrap_or(&0));
            if self.gone >= LEAST {
                self.deadline = None;
            }
            return Poll::Ready(done);
        }
        if self.deadline.is_none() {
            self.gone = 0;
        }
        let patience = self.patience;
        let deadline = (self.deadline).get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Taken<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Taken<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.within(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Nothing waits to be written when this is asked for.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.deadline = None;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{SocketAddr, TcpStream},
    };

    use axum::routing::get;
    use tokio::runtime::Runtime;

    use super::*;

    /// Far more than it takes: without it a test would hang.
    const MOST_WAITED: Duration = Duration::from_secs(60);

    /// A server of two connections at a time, and where it is.
    fn server(runtime: &Runtime) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = runtime.block_on(listener).unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new()
            .route("/", get(|| async { "here" }))
            // More than the kernel keeps of a connection.
            .route("/large", get(|| async { vec![b'x'; 64 << 20] }));
        let patience = Duration::from_millis(20);
        runtime.spawn(serve_within(listener, routes, 2, patience, patience));
        address
    }

    fn runtime() -> Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(MOST_WAITED)).unwrap();
        stream
    }

    #[test]
    fn clients_that_do_not_take_their_answer_keep_nobody_out() {
        let runtime = runtime();
        let address = server(&runtime);
        let ask = |path: &str| {
            let mut stream = connect(address);
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            stream
        };
        // More than there are places, and none of them reads.
        let stuck: Vec<TcpStream> = (0..5).map(|_| ask("/large")).collect();
        let mut answer = String::new();
        ask("/").read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("here"), "{answer}");
        drop(stuck);
    }

    /// A stream that has room for so many bytes at each second time, and else none.
    struct Narrow(usize, bool);

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.1 = !self.1;
            context.waker().wake_by_ref();
            match self.1 {
                true => Poll::Pending,
                false => Poll::Ready(Ok(bytes.len().min(self.0))),
            }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_client_that_takes_an_answer_byte_by_byte_is_too_slow() {
        let mut slow = Taken::new(Narrow(1, false), Duration::from_millis(20));
        let written = runtime().block_on(async {
            let endless = async {
                while std::future::poll_fn(|context| Pin::new(&mut slow).poll_write(context, b"xx"))
                    .await
                    .is_ok()
                {
                    // A client's pace.
                    sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(MOST_WAITED, endless).await
        });
        assert!(written.is_ok());
    }

    #[test]
    fn connections_that_say_nothing_are_closed_and_keep_nobody_out() {
        let runtime = runtime();
        let address = server(&runtime);
        let mut idle: Vec<TcpStream> = (0..2).map(|_| connect(address)).collect();
        idle[0].write_all(b"GET / HTTP/1.1\r\nHost:").unwrap();
        let mut asks = connect(address);
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
