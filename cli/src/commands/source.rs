//! The runs that a command is about: those of a recording, or of the store of the service.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nodeprof_profile::{
    Recording,
    groups::{Group, Selector, conditions},
    recording::RunId,
    store::database::{DatabaseError, Filter, Found, Labels, Reader, RunNumber, Summary},
    wording::{counted, printable},
};
use nodeprofd::control::{AskError, Client, DEFAULT_SOCKET, Find};

use super::hints;
use crate::args::store::Store;

/// Where nodeprofd keeps starts, by its default configuration.
pub const DEFAULT_STORE: &str = "/var/lib/nodeprof/starts.db";
/// Runs that are taken at once: more would fill the memory, and make no statement more certain.
const MOST_RUNS: usize = 500;

/// Loads a recording, or runs of the store.
pub fn load(file: &Path, store: &Store) -> anyhow::Result<Recording> {
    if store.store {
        let (mut groups, recording) = of_store(store, &[&file.to_string_lossy()])?;
        groups.truncate(1);
        return Ok(recording);
    }
    if Reader::recognises(file) {
        let shown = file.display();
        bail!(
            "{shown} is a store of many runs; needed: which of them; type: --store --store-path {} NUMBER, or KEY=VALUE for runs with a label",
            hints::path(file)
        );
    }
    if !file.exists()
        && let Ok(selector) = Selector::parse(file.as_os_str())
        && !selector.labels.is_empty()
        && selector.file.exists()
    {
        let (shown, whole) = (file.display(), hints::path(&selector.file));
        let recording = Recording::load(&selector.file)?;
        let group = selector.group(&recording)?;
        // One without probes has no events to show.
        let probed = group.probed(&recording).runs;
        let numbers: Vec<String> = group
            .runs
            .iter()
            .map(|run| (run.0 + 1).to_string())
            .collect();
        let first = probed.first().or(group.runs.first());
        let first = first.map_or(1, |run| run.0 + 1);
        bail!(
            "{shown} selects {} ({}); needed here: a recording, and the number of a run; type: {whole} --run {first}",
            if numbers.len() == 1 { "a run" } else { "runs" },
            numbers.join(", ")
        );
    }
    let loaded = Recording::load(file).map_err(anyhow::Error::from);
    loaded.map_err(|error| hints::naming_in(&error, &hints::path(file)))
}

/// Loads the runs that a selector selects, of a recording or of the store.
pub fn load_selected(selector: &Selector, store: &Store) -> anyhow::Result<(Recording, Group)> {
    if store.store {
        let (mut groups, recording) = of_store(store, &[&selector.to_string()])?;
        let group = groups.pop().unwrap_or_default();
        return Ok((recording, group));
    }
    let recording = load(&selector.file, store)?;
    let group = selector.group(&recording)?;
    Ok((recording, group))
}

/// The file of the store.
pub fn path(store: &Store) -> PathBuf {
    let path = store.store_path.clone();
    path.unwrap_or_else(|| PathBuf::from(DEFAULT_STORE))
}

/// Loads the runs of the store that each of these texts names; one recording has them all.
pub fn of_store(store: &Store, texts: &[&str]) -> anyhow::Result<(Vec<Group>, Recording)> {
    of(&Runs::open(store)?, texts, &Filter::default(), u64::MAX)
}

/// The same of a store that is open already, of those of the runs that are let through, if they take no more than so many bytes of memory.
pub fn of(
    reader: &Runs,
    texts: &[&str],
    through: &Filter,
    most_bytes: u64,
) -> anyhow::Result<(Vec<Group>, Recording)> {
    let mut all: Vec<RunNumber> = Vec::new();
    let mut groups = Vec::new();
    for text in texts {
        let mut filter = within(filter(text)?, through);
        if let Some(chosen) = &filter.runs {
            all_there(reader, chosen)?;
        }
        filter.most = Some(MOST_RUNS + 1);
        let mut found: Vec<RunNumber> = reader.find(&filter)?.iter().map(|run| run.id).collect();
        if found.is_empty() {
            bail!(nothing(text, &filter, reader)?);
        }
        if found.len() > MOST_RUNS {
            found.truncate(MOST_RUNS);
            say!("nodeprof: {text}: the newest {MOST_RUNS} runs of more");
        }
        // Oldest first, as they ran.
        found.reverse();
        let first = all.len() as u32;
        groups.push(Group {
            name: (*text).to_owned(),
            runs: (first..first + found.len() as u32).map(RunId).collect(),
        });
        all.extend(found);
    }
    let recording = reader.load_within(&all, most_bytes)?;
    if recording.runs.len() != all.len() {
        bail!("runs of the store were removed while they were read; type the command again");
    }
    Ok((groups, recording))
}

fn numbers(runs: &[RunNumber]) -> String {
    let numbers: Vec<String> = runs.iter().map(ToString::to_string).collect();
    numbers.join(",")
}

/// Refuses numbers of which one is of no run: a run less would change what is found, without a word.
fn all_there(reader: &Runs, chosen: &[RunNumber]) -> anyhow::Result<()> {
    let filter = Filter {
        runs: Some(chosen.to_vec()),
        // Of a longer list no more is taken.
        most: Some(MOST_RUNS),
        ..Filter::default()
    };
    let found = reader.look_for(&filter)?;
    if found.unreadable > 0 {
        bail!(
            "found: a run among {} that cannot be read from the store; needed: others; type: nodeprof service runs",
            numbers(chosen)
        );
    }
    let there: Vec<RunNumber> = found.runs.iter().map(|run| run.id).collect();
    match chosen.iter().find(|run| !there.contains(run)) {
        // Longer lists than there are runs at a time are cut, which is told.
        Some(missing) if chosen.len() <= MOST_RUNS => {
            bail!(nothing(&missing.to_string(), &filter, reader)?)
        }
        _ => Ok(()),
    }
}

/// The runs of the service: in their file, or by the service itself for who may not read the file.
pub enum Runs {
    /// The file.
    File(Reader),
    /// The service.
    Service(Client),
}

impl Runs {
    /// The file, if it may be read; else the service is asked.
    pub fn open(store: &Store) -> anyhow::Result<Runs> {
        if let Some(path) = &store.store_path {
            return Ok(Runs::File(Reader::open(path)?));
        }
        match Reader::open(Path::new(DEFAULT_STORE)) {
            Ok(reader) => Ok(Runs::File(reader)),
            Err(DatabaseError::Open { .. } | DatabaseError::NotFound { .. }) => {
                let client = Client::new(Path::new(DEFAULT_SOCKET));
                client.status().context(format!(
                    "{DEFAULT_STORE} may not be read by this user, or is not there, and the service cannot be asked"
                ))?;
                Ok(Runs::Service(client))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What it is called.
    pub fn shown(&self) -> String {
        match self {
            Runs::File(reader) => reader.path().display().to_string(),
            Runs::Service(_) => "what this user may read of the store".to_owned(),
        }
    }

    /// Runs, the newest first.
    pub fn find(&self, filter: &Filter) -> anyhow::Result<Vec<Summary>> {
        Ok(tell_missing(self.look_for(filter)?, filter.most))
    }

    /// The same with what is not there of it, which is not told.
    fn look_for(&self, filter: &Filter) -> anyhow::Result<Found> {
        Ok(match self {
            Runs::File(reader) => reader.find_within(filter, None)?,
            Runs::Service(client) => client.find(Find::from(filter))?,
        })
    }

    /// How many runs there are, where that may be known.
    pub fn count(&self) -> anyhow::Result<Option<usize>> {
        Ok(match self {
            Runs::File(reader) => Some(reader.count()?),
            Runs::Service(_) => None,
        })
    }

    /// Labels with the number of their runs, the most frequent first.
    pub fn labels(&self) -> anyhow::Result<Labels> {
        Ok(match self {
            Runs::File(reader) => reader.labels(None, 1000, usize::MAX)?,
            Runs::Service(client) => client.labels()?,
        })
    }

    /// Runs as a recording, if they take no more than so many bytes of memory, about.
    pub fn load_within(&self, runs: &[RunNumber], most: u64) -> anyhow::Result<Recording> {
        let loaded = match self {
            Runs::File(reader) => reader.load_within(runs, most).map_err(anyhow::Error::from),
            Runs::Service(client) => client.fetch_within(runs, most).map_err(Into::into),
        };
        loaded.map_err(|error| {
            let is_file = matches!(error.downcast_ref(), Some(DatabaseError::TooMuch { .. }));
            let is_service = matches!(error.downcast_ref(), Some(AskError::TooMuch(_)));
            match is_file || is_service {
                true => anyhow::anyhow!(
                    "{error}, of one label, command or package, or of fewer days ({} asked for)",
                    counted(runs.len() as u64, "# [was|were]")
                ),
                false => error,
            }
        })
    }
}

/// Says what is missing in what was found where `asked` runs were wanted at most; returns the rest.
pub fn tell_missing(found: Found, asked: Option<usize>) -> Vec<Summary> {
    let runs = found.runs.len();
    if found.more && asked != Some(runs) {
        say!(
            "nodeprof: {}, and there are more; needed for the others: a narrower choice; type for example: nodeprof service runs KEY=VALUE",
            counted(
                runs as u64,
                "[this is the newest run|these are the newest # runs]"
            )
        );
    }
    if found.unreadable > 0 {
        let text = "nodeprof: [a run|# runs] that cannot be read [is|are] passed over";
        say!("{}", counted(found.unreadable as u64, text));
    }
    found.runs
}

/// What both let through; of two commands, packages or instants the first's.
fn within(mut one: Filter, other: &Filter) -> Filter {
    one.labels.extend(other.labels.iter().cloned());
    one.command = one.command.or_else(|| other.command.clone());
    one.package = one.package.or_else(|| other.package.clone());
    one.failed |= other.failed;
    one.since_unix_ns = one.since_unix_ns.or(other.since_unix_ns);
    one
}

/// `4711`, `4711,4712` or `key=value,key=value`, where `command` and `package` are not labels: a part of the command, and a package that
/// is loaded.
pub fn filter(text: &str) -> anyhow::Result<Filter> {
    let numbers: Option<Vec<RunNumber>> = text.split(',').map(|part| part.parse().ok()).collect();
    if numbers.is_some() {
        return Ok(Filter {
            runs: numbers,
            ..Filter::default()
        });
    }
    let mut filter = Filter::default();
    for (key, value) in conditions(text, None).with_context(|| format!(
        "found {text:?} for runs of the store; needed: the number of a run, or KEY=VALUE,KEY=VALUE for those with these labels; type for example: commit=3f1c2a, or commit=3f1c2a,command=app.js"
    ))? {
        match key.as_str() {
            "command" => filter.command = Some(value),
            "package" => filter.package = Some(value),
            _ => filter.labels.push((key, value)),
        }
    }
    Ok(filter)
}

/// Says what there is instead.
fn nothing(text: &str, filter: &Filter, reader: &Runs) -> anyhow::Result<String> {
    let shown = reader.shown();
    let newest = reader.find(&Filter {
        most: Some(1),
        ..Filter::default()
    })?;
    let Some(newest) = newest.first() else {
        return Ok(format!(
            "{shown} holds no run; needed: a start of node while nodeprofd runs"
        ));
    };
    if filter.runs.is_some() {
        return Ok(format!(
            "{shown} has no run {text}; needed: one that is kept; the newest is {}",
            newest.id
        ));
    }
    if filter.labels.is_empty() {
        return Ok(format!(
            "no run in {shown} fits {text}; needed: a part of a command, or a package that was loaded; type for example: nodeprof service runs"
        ));
    }
    const NAMED: usize = 8;
    let keys: Vec<&str> = filter.labels.iter().map(|(key, _)| key.as_str()).collect();
    let Labels { labels, left_out } = reader.labels()?;
    let of_keys = || (labels.iter()).filter(|(key, _, _)| keys.contains(&key.as_str()));
    let mut named: Vec<String> = of_keys()
        .take(NAMED)
        .map(|(key, value, runs)| {
            // The environment of any user's program has it.
            let label = format!("{key}={value}");
            format!("{} ({})", printable(&label), counted(*runs, "# run[|s]"))
        })
        .collect();
    let more = of_keys().count() - named.len();
    Ok(match named.is_empty() {
        // Of those that are left out it is not known which keys they have.
        true if left_out > 0 => format!(
            "no run in {shown} has {text}, and of the {} labels that most runs have none is a {} ({left_out} others were not looked at); needed: one of those that there are; type: nodeprof report --store {}",
            labels.len(),
            keys.join(" or "),
            newest.id
        ),
        true => format!(
            "no run in {shown} has a label {}; needed: one of those that there are; type: nodeprof report --store {}",
            keys.join(" and "),
            newest.id
        ),
        false => format!(
            "no run in {shown} has {text}; needed: labels that runs have{}: {}",
            match filter.command.is_some() || filter.package.is_some() {
                true => ", and a part of the command, or a package, of theirs",
                false => "",
            },
            {
                if more > 0 {
                    named.push(format!("{more} others"));
                }
                if left_out > 0 {
                    named.push(format!("and what may be among {left_out} rarer labels"));
                }
                named.join(", ")
            }
        ),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn runs_are_named_by_number_or_label() {
        assert_eq!(filter("7,8").unwrap().runs, Some(vec![7, 8]));
        let both = filter("commit=a=b,job=x y").unwrap();
        let labels = [("commit", "a=b"), ("job", "x y")];
        assert_eq!(both.labels, labels.map(|(k, v)| (k.into(), v.into())));
        let narrow = filter("commit=3f,command=node a.js,package=@x/y").unwrap();
        assert_eq!(narrow.labels, [("commit".into(), "3f".into())]);
        let (command, package) = (narrow.command.as_deref(), narrow.package.as_deref());
        assert_eq!((command, package), (Some("node a.js"), Some("@x/y")));
        for (text, labels) in [
            ("job=test: [20, linux]", &[("job", "test: [20, linux]")][..]),
            ("job=a,b,os=x", &[("job", "a,b"), ("os", "x")]),
            (r"job=a\,b=c,os=x", &[("job", "a,b=c"), ("os", "x")]),
            ("job=[a, b=c],os=x", &[("job", "[a, b=c]"), ("os", "x")]),
            (
                "app.kubernetes.io/name=web,example.com/a:b=c",
                &[("app.kubernetes.io/name", "web"), ("example.com/a:b", "c")],
            ),
        ] {
            let owned = labels.iter().map(|(k, v)| (k.to_string(), v.to_string()));
            assert_eq!(filter(text).unwrap().labels, owned.collect::<Vec<_>>());
        }
        let through = within(
            filter("commit=3f,command=a.js").unwrap(),
            &filter("job=x,command=b").unwrap(),
        );
        assert_eq!(through.labels.len(), 2);
        assert_eq!(through.command.as_deref(), Some("a.js"));
        for bad in ["", "a", "7,a=b", "=b", "a=", "-1", r"a=b\"] {
            let error = filter(bad).unwrap_err().to_string();
            assert!(error.contains("needed: the number of a run"), "{error}");
        }
    }
}
