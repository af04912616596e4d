//! The store of the service as pages: its runs by label, command, package and time; one of them; two groups side by side; a figure
//! from commit to commit; profiles for pprof.

use std::{sync::Arc, time::SystemTime};

use anyhow::bail;
use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use nodeprof_flamegraphs::{
    export::pprof,
    fold::{Metric, Request},
    web::{self, Place},
};
use nodeprof_profile::{
    diff::{Diff, sides::Side},
    groups::Group,
    recording::RunId,
    store::database::{Filter, Labels},
    trend::Trend,
};
use serde_json::json;

use super::server::{Failure, Pairs, Shared, blocking};
use crate::{
    args::store::Store,
    commands::{
        diff::{Loaded, derived},
        report,
        source::{self, Runs},
    },
};

/// Runs that the page lists.
const LISTED: usize = 500;
const DAY_NS: u64 = 86_400_000_000_000;

/// What is served of a store.
pub fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(starts))
        .route("/report", get(run))
        .route("/diff", get(comparison))
        .route("/pprof", get(profile))
}

fn asked<'a>(query: &'a Pairs, key: &str) -> Option<&'a str> {
    let found = query.iter().find(|(name, _)| name == key);
    found
        .map(|(_, value)| value.as_str())
        .filter(|value| !value.is_empty())
}

fn bad(text: String) -> Failure {
    Failure(StatusCode::BAD_REQUEST, text)
}

fn filter(query: &Pairs) -> Result<Filter, Failure> {
    let labels = query
        .iter()
        .filter(|(key, value)| key == "label" && !value.is_empty());
    let labels = labels.map(|(_, label)| {
        let pair = label.split_once('=').filter(|(key, _)| !key.is_empty());
        let pair = pair.map(|(key, value)| (key.to_owned(), value.to_owned()));
        pair.ok_or_else(|| bad(format!("found: label={label}; needed: label=KEY=VALUE")))
    });
    let since = asked(query, "days").map(|days| -> Result<u64, Failure> {
        let days: u64 = days
            .parse()
            .ok()
            .filter(|days| (1..=36_500).contains(days))
            .ok_or_else(|| {
                bad(format!(
                    "found: days={days}; needed: a number from 1 to 36500"
                ))
            })?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        Ok(now.saturating_sub(days * DAY_NS))
    });
    Ok(Filter {
        labels: labels.collect::<Result<_, Failure>>()?,
        command: asked(query, "command").map(str::to_owned),
        package: asked(query, "package").map(str::to_owned),
        since_unix_ns: since.transpose()?,
        most: Some(LISTED),
        ..Filter::default()
    })
}

async fn starts(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<Pairs>,
) -> Result<Html<String>, Failure> {
    let filter = filter(&query)?;
    let figure = asked(&query, "figure").map(str::to_owned);
    let by = asked(&query, "by").unwrap_or("commit").to_owned();
    blocking(move || {
        let reader = Runs::open(&shared.store)?;
        let runs = reader.find(&filter)?;
        let (trend, trend_error) = match figure {
            None => (None, None),
            // The list says so.
            Some(_) if runs.is_empty() => (None, None),
            Some(figure) => {
                let numbers: Vec<u32> = runs.iter().map(|run| run.id).collect();
                let (recording, profile) = derived(reader.load(&numbers)?);
                let group = Group::all(&recording, "");
                let side = Side {
                    recording: &recording,
                    profile: &profile,
                    group,
                };
                match Trend::new(&side, &figure, &by) {
                    Ok(trend) => (Some(trend), None),
                    Err(error) => (None, Some(error.to_string())),
                }
            }
        };
        let Labels { labels, left_out } = reader.labels()?;
        let starts = json!({
            "store": reader.shown(),
            "total": reader.count()?,
            "listed": LISTED,
            "runs": runs,
            "labels": labels,
            "labels_left_out": left_out,
            "trend": trend,
            "trend_error": trend_error,
        });
        Ok(Html(web::starts(&starts)?))
    })
    .await
}

/// The number of one run.
fn number(query: &Pairs) -> Result<u32, Failure> {
    let found = asked(query, "run").and_then(|number| number.parse().ok());
    found.ok_or_else(|| bad("found: no run; needed: run=NUMBER, one of the list".into()))
}

async fn run(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<Pairs>,
) -> Result<Html<String>, Failure> {
    let number = number(&query)?;
    blocking(move || {
        let (_, recording) = source::of_store(&shared.store, &[&number.to_string()])?;
        let (recording, profile) = derived(recording);
        let name = format!("run {number}");
        Ok(Html(report::html(
            &name,
            &recording,
            &profile,
            None,
            Place::Server,
        )?))
    })
    .await
}

async fn comparison(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<Pairs>,
) -> Result<Html<String>, Failure> {
    let side = |key: &str| {
        let text = asked(&query, key).map(str::to_owned);
        text.ok_or_else(|| {
            bad(
                "found: not two sides; needed: base=RUNS and head=RUNS, numbers or KEY=VALUE"
                    .into(),
            )
        })
    };
    let (base, head) = (side("base")?, side("head")?);
    let through = filter(&query)?;
    blocking(move || {
        let reader = Runs::open(&shared.store)?;
        let found = source::of(&reader, &[&base, &head], &through)?;
        let loaded = Loaded::of_groups(found, base, head, derived);
        let diff = Diff::new(&loaded.base_side(), &loaded.head_side());
        let (base, head) = loaded.pages();
        Ok(Html(web::comparison(&base, &head, &diff, Place::Server)?))
    })
    .await
}

/// A profile that `go tool pprof ADDRESS` opens, of one run or of all that fit.
async fn profile(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<Pairs>,
) -> Result<Response, Failure> {
    let one = match asked(&query, "run") {
        Some(_) => Some(number(&query)?),
        None => None,
    };
    let filter = filter(&query)?;
    let of = asked(&query, "of").unwrap_or("crossings").to_owned();
    let metric: Metric = of.parse().map_err(|error| bad(format!("{error}")))?;
    let packed = blocking(move || {
        let recording = match one {
            Some(number) => source::of_store(&shared.store, &[&number.to_string()])?.1,
            None => {
                let reader = Runs::open(&shared.store)?;
                let runs = reader.find(&filter)?;
                let numbers: Vec<u32> = runs.iter().map(|run| run.id).collect();
                if numbers.is_empty() {
                    bail!("found: no run that fits; needed: one at least, see the list");
                }
                reader.load(&numbers)?
            }
        };
        let runs = (0..recording.runs.len() as u32).map(RunId);
        let mut packed = Vec::new();
        pprof::write_runs(&recording, &Request::new(metric), runs, &mut packed)?;
        Ok(packed)
    })
    .await?;
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, packed).into_response())
}

/// Whether there is a store to serve.
pub fn check(store: &Store) -> anyhow::Result<()> {
    Runs::open(store)?;
    Ok(())
}
