//! The store of the service as pages: its runs by label, command, package and time; one of them; two groups side by side; a figure
//! from commit to commit; profiles for pprof.

use std::{sync::Arc, time::SystemTime};

use anyhow::bail;
use axum::{
    Router,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
    routing::get,
};
use nodeprof_flamegraphs::{
    export::pprof,
    fold::{Metric, Request},
    web::{self, Place},
};
use nodeprof_profile::{
    Recording,
    diff::{Diff, sides::Side},
    groups::Group,
    recording::RunId,
    store::database::{Filter, Labels, RunNumber, Summary},
    trend::Trend,
};
use serde_json::json;

use super::{
    server::{Pairs, Shared, answer, page},
    turns::{Failure, Work},
};
use crate::{
    args::store::Store,
    commands::{
        diff::{Loaded, derived},
        report,
        service::outcome,
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
        failed: asked(query, "failed").is_some(),
        since_unix_ns: since.transpose()?,
        most: Some(LISTED),
        ..Filter::default()
    })
}

/// A run of the list.
#[derive(serde::Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    run: &'a Summary,
    outcome: String,
}

async fn starts(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<Pairs>,
) -> Result<Response, Failure> {
    let filter = filter(&query)?;
    let figure = asked(&query, "figure").map(str::to_owned);
    let by = asked(&query, "by").unwrap_or("commit").to_owned();
    let work = match figure {
        Some(_) => Work::Loads,
        None => Work::Lists,
    };
    page(&shared, work, move |shared| {
        let reader = Runs::open(&shared.store)?;
        let runs = reader.find(&filter)?;
        let (trend, trend_error) = match figure {
            None => (None, None),
            // The list says so.
            Some(_) if runs.is_empty() => (None, None),
            Some(figure) => {
                let numbers: Vec<u32> = runs.iter().map(|run| run.id).collect();
                match trend(&reader, &numbers, shared.most_loaded, &figure, &by) {
                    Ok(trend) => (Some(trend), None),
                    // The list is there nevertheless, to choose fewer of.
                    Err(error) => (None, Some(error.to_string())),
                }
            }
        };
        let Labels { labels, left_out } = reader.labels()?;
        let runs = runs.iter().map(|run| Listed {
            run,
            outcome: outcome(run),
        });
        let starts = json!({
            "store": reader.shown(),
            "total": reader.count()?,
            "listed": LISTED,
            "runs": runs.collect::<Vec<_>>(),
            "labels": labels,
            "labels_left_out": left_out,
            "trend": trend,
            "trend_error": trend_error,
        });
        Ok(web::starts(&starts)?)
    })
    .await
}

/// A figure of runs, from commit to commit.
fn trend(
    reader: &Runs,
    runs: &[RunNumber],
    most_loaded: u64,
    figure: &str,
    by: &str,
) -> anyhow::Result<Trend> {
    let (recording, profile) = derived(reader.load_within(runs, most_loaded)?);
    let side = Side {
        recording: &recording,
        profile: &profile,
        group: Group::all(&recording, ""),
    };
    Ok(Trend::new(&side, figure, by)?)
}

/// The number of one run.
fn number(query: &Pairs) -> Result<u32, Failure> {
    let found = asked(query, "run").and_then(|number| number.parse().ok());
    found.ok_or_else(|| bad("found: no run; needed: run=NUMBER, one of the list".into()))
}

fn one(shared: &Shared, number: u32) -> anyhow::Result<Recording> {
    let (reader, text) = (Runs::open(&shared.store)?, number.to_string());
    Ok(source::of(&reader, &[&text], &Filter::default(), shared.most_loaded)?.1)
}

async fn run(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<Pairs>,
) -> Result<Response, Failure> {
    let number = number(&query)?;
    page(&shared, Work::Loads, move |shared| {
        let (recording, profile) = derived(one(shared, number)?);
        let name = format!("run {number}");
        report::html(&name, &recording, &profile, None, Place::Server)
    })
    .await
}

async fn comparison(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<Pairs>,
) -> Result<Response, Failure> {
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
    page(&shared, Work::Loads, move |shared| {
        let reader = Runs::open(&shared.store)?;
        let found = source::of(&reader, &[&base, &head], &through, shared.most_loaded)?;
        let loaded = Loaded::of_groups(found, base, head, derived);
        let diff = Diff::new(&loaded.base_side(), &loaded.head_side());
        let (base, head) = loaded.pages();
        Ok(web::comparison(&base, &head, &diff, Place::Server)?)
    })
    .await
}

/// A profile that `go tool pprof ADDRESS` opens, of one run or of all that fit.
async fn profile(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<Pairs>,
) -> Result<Response, Failure> {
    let number = match asked(&query, "run") {
        Some(_) => Some(number(&query)?),
        None => None,
    };
    let filter = filter(&query)?;
    let of = asked(&query, "of").unwrap_or("crossings").to_owned();
    let metric: Metric = of.parse().map_err(|error| bad(format!("{error}")))?;
    let kind = "application/octet-stream";
    answer(&shared, Work::Loads, kind, move |shared| {
        let recording = match number {
            Some(number) => one(shared, number)?,
            None => {
                let reader = Runs::open(&shared.store)?;
                let runs = reader.find(&filter)?;
                let numbers: Vec<u32> = runs.iter().map(|run| run.id).collect();
                if numbers.is_empty() {
                    bail!("found: no run that fits; needed: one at least, see the list");
                }
                reader.load_within(&numbers, shared.most_loaded)?
            }
        };
        let runs = (0..recording.runs.len() as u32).map(RunId);
        let mut packed = Vec::new();
        pprof::write_runs(&recording, &Request::new(metric), runs, &mut packed)?;
        Ok(packed)
    })
    .await
}

/// Whether there is a store to serve.
pub fn check(store: &Store) -> anyhow::Result<()> {
    Runs::open(store)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;
    use nodeprof_profile::store::database::Database;

    #[test]
    fn runs_that_take_too_much_memory_are_refused_with_what_to_ask_for_instead() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("starts.db");
        let mut database = Database::open(&path).unwrap();
        for _ in 0..2 {
            database.keep(Recording::synthetic(500), None).unwrap();
        }
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let most = |most_loaded| {
            let shared = State(Arc::new(Shared::of_store(path.clone(), most_loaded)));
            let query = |pairs: &[(&str, &str)]| {
                let pairs = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string()));
                Query(pairs.collect::<Pairs>())
            };
            let sides = query(&[("base", "1"), ("head", "2")]);
            runtime.block_on(async {
                [
                    run(shared.clone(), query(&[("run", "1")])).await.err(),
                    comparison(shared.clone(), sides).await.err(),
                    profile(shared.clone(), query(&[])).await.err(),
                ]
            })
        };
        for refused in most(1 << 10) {
            let Failure(status, why) = refused.unwrap();
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{why}");
            assert!(why.contains("of memory; needed: fewer"), "{why}");
        }
        // A build without its page says that instead.
        for refused in most(1 << 30).into_iter().flatten() {
            assert!(!refused.1.contains("of memory"), "{}", refused.1);
        }
        let reader = Runs::open(&Shared::of_store(path.clone(), 0).store).unwrap();
        let refused = trend(&reader, &[1, 2], 1 << 10, "crossings", "commit").unwrap_err();
        assert!(refused.to_string().contains("of memory; needed: fewer"));
    }
}
