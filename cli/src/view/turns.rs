//! What requests may take of this process together: those that load recordings do it one after another, and there is an end to what waits to be sent.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Requests that load recordings, at a time: each takes several times [`MOST_LOADED`](super::server::MOST_LOADED) at most, and the unit gives one processor.
const LOADING: usize = 1;
/// Requests that only look for runs, at a time.
const LISTING: usize = 4;
/// For its turn to come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Seconds that a client that was refused is told to wait.
const AGAIN: &str = "10";
/// KiB of the pages that are on their way to clients, which may take their time: a quarter of what the unit allows (`MemoryMax`).
const MOST_SENT: u32 = 256 << 10;

/// What a request does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// It loads recordings.
    Loads,
    /// It looks for runs of the store.
    Lists,
}

/// Who may work now.
#[derive(Debug)]
pub(super) struct Turns {
    loading: Arc<Semaphore>,
    listing: Arc<Semaphore>,
    sent: Arc<Semaphore>,
    patience: Duration,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns::new(PATIENCE, MOST_SENT)
    }
}

impl Turns {
    fn new(patience: Duration, most_sent: u32) -> Turns {
        Turns {
            loading: Arc::new(Semaphore::new(LOADING)),
            listing: Arc::new(Semaphore::new(LISTING)),
            sent: Arc::new(Semaphore::new(most_sent as usize)),
            patience,
        }
    }

    /// Waits for a turn, not for ever.
    pub(super) async fn next(&self, work: Work) -> Result<OwnedSemaphorePermit, Failure> {
        let turns = match work {
            Work::Loads => &self.loading,
            Work::Lists => &self.listing,
        };
        let turn = timeout(self.patience, turns.clone().acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            busy(format!(
                "found: other requests, which {} s were not enough for; needed: some patience, or requests for fewer runs; ask again",
                self.patience.as_secs()
            ))
        })
    }

    /// A page that counts until it is sent.
    pub(super) fn sends(&self, page: Vec<u8>) -> Result<Bytes, Failure> {
        let kib = u32::try_from(page.len().div_ceil(1024)).unwrap_or(u32::MAX);
        // One that is larger than all may be goes alone.
        match self.sent.clone().try_acquire_many_owned(kib.min(MOST_SENT)) {
            Ok(room) => Ok(Bytes::from_owner(Sent { page, _room: room })),
            Err(_) => Err(busy(format!(
                "found: a page of {kib} KiB, and others that clients have not taken yet; needed: at most {} KiB of all; ask again, or for fewer runs",
                MOST_SENT
            ))),
        }
    }
}

struct Sent {
    page: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.page
    }
}

/// A failure as a page's answer.
#[derive(Debug)]
pub(super) struct Failure(pub(super) StatusCode, pub(super) String);

fn busy(why: String) -> Failure {
    Failure(StatusCode::SERVICE_UNAVAILABLE, why)
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.0, self.1 + "\n").into_response();
        if self.0 == StatusCode::SERVICE_UNAVAILABLE {
            let again = HeaderValue::from_static(AGAIN);
            response.headers_mut().insert(header::RETRY_AFTER, again);
        }
        response
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure(StatusCode::UNPROCESSABLE_ENTITY, format!("{error:#}"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_too_long_is_told_when_to_ask_again() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let turns = Turns::new(Duration::from_millis(1), 1);
            let first = turns.next(Work::Loads).await.unwrap();
            // Not for those who only look.
            drop(turns.next(Work::Lists).await.unwrap());
            let refused = turns.next(Work::Loads).await.unwrap_err().into_response();
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(refused.headers()[header::RETRY_AFTER], AGAIN);
            drop(first);
            drop(turns.next(Work::Loads).await.unwrap());
        });
    }

    #[test]
    fn pages_that_nobody_takes_have_a_limit_together() {
        let turns = Turns::new(PATIENCE, 3);
        let page = |bytes| turns.sends(vec![0; bytes]);
        let first = page(2048).unwrap();
        let second = page(1).unwrap();
        assert_eq!((first.len(), second.len()), (2048, 1));
        let refused = page(1).unwrap_err();
        assert_eq!(refused.0, StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        page(1025).unwrap();
        assert_eq!(page(4096).unwrap_err().0, refused.0);
    }
}
