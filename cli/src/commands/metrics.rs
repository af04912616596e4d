//! `nodeprof service metrics --listen`: a process without any right of its own that asks the service and tells whoever asks it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use nodeprofd::control::Client;
use tokio::{net::TcpListener, sync::Semaphore};

use crate::{
    http, terminal,
    token::{self, same},
    view::without_default_port,
};

/// As the specification of OpenMetrics names it.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Requests that the service is asked for at a time; of more, each waits.
const AT_A_TIME: usize = 2;

struct Shared {
    client: Client,
    token: Option<String>,
    /// The values of `Host` that are ours, where there is no token.
    hosts: Vec<String>,
    turns: Semaphore,
}

/// Serves until the process ends.
pub fn serve(client: Client, address: SocketAddr, token: Option<&Path>) -> anyhow::Result<()> {
    let token = token.map(token::read).transpose()?;
    if token.is_none() && !address.ip().is_loopback() {
        bail!(
            "found: --listen {address}, which other machines can reach; needed: a secret that Prometheus sends; type: --token-file FILE, or --listen {}:{}",
            Ipv4Addr::LOCALHOST,
            address.port()
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("starting the server")?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("listening on {address}; needed: a free port of this machine; type for example: --listen 127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let port = address.port();
        let mut hosts = vec![
            address.to_string(),
            format!("localhost:{port}"),
            format!("{}:{port}", Ipv4Addr::LOCALHOST),
        ];
        hosts.extend(without_default_port(&hosts));
        let shared = Arc::new(Shared {
            client,
            token,
            hosts,
            turns: Semaphore::new(AT_A_TIME),
        });
        terminal::print(&format!("http://{address}/metrics\n"))?;
        let routes = Router::new().route("/metrics", get(metrics)).with_state(shared);
        http::serve(listener, routes).await;
        Ok(())
    })
}

/// Why a request is refused.
fn refusal(shared: &Shared, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match &shared.token {
        Some(token) => {
            let sent = text(header::AUTHORIZATION).and_then(|sent| sent.strip_prefix("Bearer "));
            let fits = sent.is_some_and(|sent| same(sent.trim().as_bytes(), token.as_bytes()));
            (!fits).then_some((
                StatusCode::UNAUTHORIZED,
                "found: no token, or another one; needed: that of --token-file as `Authorization: Bearer`\n",
            ))
        }
        // A page of another site that has its name resolved to this machine.
        None => {
            let host = text(header::HOST);
            let ours = host.is_some_and(|host| shared.hosts.iter().any(|ours| ours == host));
            (!ours).then_some((
                StatusCode::FORBIDDEN,
                "found: a request for another host; needed: the address that nodeprof printed\n",
            ))
        }
    }
}

async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if let Some(refused) = refusal(&shared, &headers) {
        return refused.into_response();
    }
    let Ok(_turn) = shared.turns.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let client = shared.client.clone();
    let failed = |why: String| (StatusCode::SERVICE_UNAVAILABLE, why + "\n").into_response();
    match tokio::task::spawn_blocking(move || client.metrics()).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Ok(Err(error)) => failed(error.to_string()),
        Err(error) => failed(error.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn shared(token: Option<&str>) -> Shared {
        Shared {
            client: Client::new(Path::new("/no/such/socket")),
            token: token.map(str::to_owned),
            hosts: ["127.0.0.2:1", "localhost:1", "127.0.0.1:1"]
                .map(str::to_owned)
                .to_vec(),
            turns: Semaphore::new(1),
        }
    }

    fn sent(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn only_who_has_the_token_is_answered() {
        let of = shared(Some("0123456789abcdef"));
        let status = |headers| refusal(&of, &headers).map(|(status, _)| status);
        let no = Some(StatusCode::UNAUTHORIZED);
        assert_eq!(
            status(sent(header::AUTHORIZATION, "Bearer 0123456789abcdef")),
            None
        );
        for bad in [
            "Bearer 0123456789abcde",
            "Basic 0123456789abcdef",
            "Bearer ",
            "0123456789abcdef",
        ] {
            assert_eq!(status(sent(header::AUTHORIZATION, bad)), no, "{bad}");
        }
        assert_eq!(status(sent(header::HOST, "localhost:1")), no);
    }

    #[test]
    fn without_a_token_only_our_own_names_are_answered() {
        let of = shared(None);
        for (host, refused) in [
            ("localhost:1", false),
            ("127.0.0.2:1", false),
            ("evil.test:1", true),
            ("localhost", true),
        ] {
            assert_eq!(
                refusal(&of, &sent(header::HOST, host)).is_some(),
                refused,
                "{host}"
            );
        }
        assert!(refusal(&of, &HeaderMap::new()).is_some());
    }
}
