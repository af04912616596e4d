//! The command line.

pub mod diff;
pub mod measure;
pub mod modules;
pub mod service;
pub mod store;

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use nodeprof_flamegraphs::tables;
use nodeprof_flamegraphs::{
    fold::{By, Metric, Order},
    select::{Point, Threads},
};
use nodeprof_probes::bpftrace::Group;
use nodeprof_profile::{groups::Selector, typed};
use nodeprofd::recorder::{DEFAULT_HZ, FAMILIES, HIGHEST_HZ, Mode, Until};

/// Where the files are that helps name.
const DOCS: &str = "Files in docs/ are beside the README.md of an installation (/usr/local/share/doc/nodeprof, of a package \
/usr/share/doc/nodeprof), and at https://github.com/nodeprof/nodeprof.";

/// Tells exactly where the startup of a Node.js program goes, with eBPF, on the unmodified node binary.
#[derive(Parser)]
#[command(
    name = "nodeprof",
    version,
    max_term_width = 100,
    after_long_help = DOCS,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// When to use colours
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        display_order = 900
    )]
    pub color: Color,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The `--color` of a command line that cannot be parsed: the first before any `--`.
pub fn color(words: impl Iterator<Item = std::ffi::OsString>) -> Color {
    let mut words = words.take_while(|word| word != "--");
    while let Some(word) = words.next() {
        let value = match word.to_str().and_then(|word| word.strip_prefix("--color")) {
            Some("") => words.next(),
            Some(value) => value.strip_prefix('=').map(Into::into),
            None => None,
        };
        if let Some(value) = value {
            let value = Color::from_str(&value.to_string_lossy(), false);
            return value.unwrap_or(Color::Auto);
        }
    }
    Color::Auto
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Run a program and record its startup, with all its processes and threads
    Trace(Trace),
    /// Print the report of a recording
    Report(Report),
    /// List modules or packages, the most expensive first
    Blame(modules::Blame),
    /// Print the chain of modules that the start waited for
    CriticalChain(modules::CriticalChain),
    /// Print modules below those that required them, with their costs
    Tree(modules::Tree),
    /// Compare two groups of runs: faster or slower, and why
    Diff(diff::Diff),
    /// Check budgets: fail if a figure is larger, or grew more, than it may
    Check(diff::Check),
    /// Write budgets
    Budget(diff::Budget),
    /// Draw a flame graph of a recording
    Flame(Flame),
    /// Serve recordings as pages on this machine, and open a browser
    View(View),
    /// Run a program many times: times and memory without probes, counts with them
    Bench(measure::Bench),
    /// Run two commands or two node binaries in turn until it is certain whether one is faster
    Compare(measure::Compare),
    /// Write the data of a view as CSV or JSON
    Export(Export),
    /// Make a recording of what another tool saw: the output of perf script
    Import(Import),
    /// List what can be probed in a node binary
    Probes(Probes),
    /// Ask the service that records every start on this host: how it is, which runs there are
    Service(service::Service),
    /// Check whether this machine can trace, and say what to type where it cannot
    Doctor(Doctor),
    /// Print what makes a shell complete nodeprof's commands and options
    Completions(Completions),
    /// Write nodeprof's manual pages
    #[command(hide = true)]
    Manual(Manual),
}

/// `nodeprof completions`.
#[derive(Args)]
#[command(after_help = "\
`make install` and the Debian package install them. Otherwise, for example:
  nodeprof completions bash > ~/.local/share/bash-completion/completions/nodeprof
  nodeprof completions fish > ~/.config/fish/completions/nodeprof.fish
  nodeprof completions zsh > FOLDER/_nodeprof      with FOLDER in zsh's $fpath")]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `nodeprof manual`, for `make install`.
#[derive(Args)]
pub struct Manual {
    /// Where to: nodeprof.1, and nodeprof-COMMAND.1 for each command
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Text or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// `nodeprof trace`.
#[derive(Args)]
#[command(after_long_help = "\
The report goes to standard error as text, or to standard output as JSON; standard input and output are the \
program's own. The exit status is the program's own, 128+N if signal N killed it; 125 if nodeprof itself failed, \
126 if the program cannot be executed, 127 if it was not found.

Under sudo the program runs as the user who typed it.

Other programs are not probed. But while a trace is up each system call on the host takes 40 to 140 ns longer (by the \
processor), each context switch up to 100 ns, and CPU samples interrupt every CPU 997 times a second, 1 to 2 % of a busy one \
(`--families` without files, package-json and off-cpu, and `--freq 0`, avoid it).")]
pub struct Trace {
    /// Recording to write [default: NAME-DATE-TIME.nodeprof in this folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,
    /// Stop tracing at: exit, loop-start (ES modules may not have run by then), idle (200 ms without an event after the loop started; for servers of ES modules), or after a time such as 1.5s or 800ms; the program goes on
    #[arg(long, value_name = "WHEN", default_value = "exit", allow_hyphen_values = true, value_parser = until)]
    pub until: Until,
    /// full: every call with its time; count: exact counts with the least cost
    #[arg(long, default_value = "full")]
    pub mode: TraceMode,
    /// Families to record, separated by commas [default: all; in count mode all but serialization, cpu and off-cpu]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(FAMILIES))]
    pub families: Vec<String>,
    /// CPU samples per second and CPU, up to 10000; 0: none [default: 997; none in count mode]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = frequency)]
    pub freq: Option<u32>,
    /// Also count the entries of every binding callback (about 1,000 more probes) and compare
    #[arg(long)]
    pub verify: bool,
    /// A node binary that child processes may execute (those on PATH are known)
    #[arg(long = "node", value_name = "PATH")]
    pub nodes: Vec<PathBuf>,
    /// A label of the run, for example commit=1a2b3c; name=NAME for FILE@NAME
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = measure::label)]
    pub labels: Vec<(String, String)>,
    /// Do not read source maps: positions are those in the scripts that ran
    #[arg(long)]
    pub no_source_maps: bool,
    /// Who is asked
    #[command(flatten)]
    pub tracer: Tracer,
    /// Format of the report; the JSON is documented in docs/json.md
    #[arg(long, default_value = "text")]
    pub format: Format,
    /// Print neither the report as text nor where the recording is; JSON that --format asks for is printed
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub program: Vec<OsString>,
}

/// Who traces where this user may not.
#[derive(Args)]
pub struct Tracer {
    /// Socket of nodeprofd, which traces your own programs for you where you are not root
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/nodeprof/control.sock"
    )]
    pub service: PathBuf,
}

/// How much to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceMode {
    /// Every call with its time
    Full,
    /// Counts
    Count,
}

impl From<TraceMode> for Mode {
    fn from(mode: TraceMode) -> Mode {
        match mode {
            TraceMode::Full => Mode::Full,
            TraceMode::Count => Mode::Count,
        }
    }
}

/// `nodeprof report`.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  nodeprof report app.nodeprof
  nodeprof report app.nodeprof --format html -o app.html
  nodeprof report app.nodeprof --format json | jq .runs[0].phases
  nodeprof report --store 4711")]
pub struct Report {
    /// A recording
    pub file: PathBuf,
    /// Or a run of the store
    #[command(flatten)]
    pub store: store::Store,
    /// A run of it, from 1 [default: all; of repeated runs, what they took and did]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub run: Option<u32>,
    /// Format of the report
    #[arg(long, default_value = "text")]
    pub format: ReportFormat,
    /// File to write; `-` is standard output [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,
}

/// Formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people
    Text,
    /// For programs; documented in docs/json.md
    Json,
    /// All views in one file for a browser; works offline; docs/html-report.md
    Html,
}

/// `nodeprof flame`.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  nodeprof flame app.nodeprof --of cpu -o cpu.svg
  nodeprof flame app.nodeprof --of crossings --by package -o calls.svg
  nodeprof flame app.nodeprof --of wall --order time --from bootstrap_complete --until loop_start -o start.svg
  nodeprof flame app.nodeprof --of cpu --format pprof -o cpu.pb.gz
  nodeprof flame app.nodeprof --format chrome -o trace.json
  nodeprof flame --diff base.nodeprof head.nodeprof --of wall -o diff.svg")]
pub struct Flame {
    /// A recording, or runs of one: FILE@NAME, FILE@KEY=VALUE
    #[arg(required_unless_present = "diff", value_parser = diff::selector())]
    pub file: Option<Selector>,
    /// Or a run of the store
    #[command(flatten)]
    pub store: store::Store,
    /// A run of it, from 1 [default: the first with probes]
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "diff", value_parser = clap::value_parser!(u32).range(1..))]
    pub run: Option<u32>,
    /// Compare two recordings, or two groups of runs (FILE@NAME, FILE@KEY=VALUE): colour by change, grey where chance explains it. One FILE: its runs called base and head
    #[arg(long, value_names = ["BASE", "HEAD"], num_args = 1..=2, value_parser = diff::selector(), conflicts_with = "file")]
    pub diff: Vec<Selector>,
    /// With --diff: whose values are the widths
    #[arg(long, value_name = "SIDE", requires = "diff")]
    pub direction: Option<FlameDirection>,
    /// What the width of a frame is: cpu, off-cpu, wall (both), crossing-time, serialization, file-time, compile: time; crossings, files, package-json: how often [needed but for --format chrome, which shows all without it]
    #[arg(long, value_name = "METRIC", value_parser = clap::builder::PossibleValuesParser::new(Metric::NAMES), hide_possible_values = true)]
    pub of: Option<String>,
    /// What a frame is: stack: a function; module, package: what the functions are of; phase: phase, binding and callback, or path [default: stack, or phase if the recording has no stacks]
    #[arg(long, value_name = "FORM", value_parser = By::from_str)]
    pub by: Option<By>,
    /// main, all, or the number of a thread [default: main for off-cpu and wall, else all]
    #[arg(long, value_name = "WHICH", allow_negative_numbers = true, value_parser = Threads::from_str)]
    pub thread: Option<Threads>,
    /// Only this process of the tree
    #[arg(long, value_name = "PID", allow_negative_numbers = true)]
    pub process: Option<u32>,
    /// From a milestone or phase (exec, loop_start, main_script), or a time since the exec (12ms)
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, value_parser = Point::from_str)]
    pub from: Option<Point>,
    /// Until the same; a phase is part of it
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, value_parser = Point::from_str)]
    pub until: Option<Point>,
    /// From left to right: merged: what is alike is one frame, by name; time: in order of time; of svg and folded [default: merged]
    #[arg(long, value_name = "ORDER", value_parser = Order::from_str)]
    pub order: Option<Order>,
    /// Of svg: frames narrower than this part of the whole are not drawn, in percent [default: 0.01]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, value_parser = least)]
    pub least: Option<u32>,
    /// Of svg: what stands above the graph [default: what is counted]
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Show positions in the scripts that ran, not in the sources that these were made from, and bundles as the modules that Node loaded
    #[arg(long)]
    pub no_source_maps: bool,
    /// Format; which program opens which is in docs/flame-graphs.md
    #[arg(long, default_value = "svg")]
    pub format: FlameFormat,
    /// File to write; `-` is standard output, which may be a terminal for folded and json only [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,
}

/// `0.5` percent as millionths.
fn least(text: &str) -> Result<u32, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok((percent * 1e4).round() as u32),
        _ => Err(format!(
            "found: {text}; needed: a percentage from 0 to 100, for example 0.1"
        )),
    }
}

/// Whose values are the widths of a differential flame graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FlameDirection {
    /// Head's; what only base had is kept in view
    #[default]
    Head,
    /// Base's; what only head has is kept in view
    Base,
}

/// `nodeprof view`.
#[derive(Args)]
#[command(after_long_help = "\
Without --listen only this machine can reach it (127.0.0.1), and only who has the address that is printed: it has a token, and other sites and host names are \
refused. New recordings in the folder appear by themselves.

Examples:
  nodeprof view
  nodeprof view app.nodeprof
  nodeprof view recordings/ --port 8080 --no-open
  nodeprof view --store")]
pub struct View {
    /// Recordings, and a folder to watch for new ones [default: this folder]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Port of this machine; 0 is any free one
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        default_value_t = 0
    )]
    pub port: u16,
    /// Instead: an address and port that others may reach, or unix:PATH for a socket that a web server in front connects to
    #[arg(long, value_name = "ADDRESS", conflicts_with = "port")]
    pub listen: Option<Listen>,
    /// Take the secret that the address of a page must have from this file, which is made if it is not there [default: a new one]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Name by which browsers reach it, with its port if that is not 80: nodeprof.example.org
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// Open no browser
    #[arg(long)]
    pub no_open: bool,
    #[command(flatten)]
    pub store: store::Store,
}

/// Where pages are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address of this machine.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Listen::Unix(path.into())),
            Some(_) => Err(
                "needed: the path of a socket, such as unix:/run/nodeprof-view/view.sock".into(),
            ),
            None => text.parse().map(Listen::Tcp).map_err(|_| {
                "needed: an address and a port, such as 127.0.0.1:9748, or unix:PATH".into()
            }),
        }
    }
}

/// Formats of a flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlameFormat {
    /// Interactive picture, for a browser
    Svg,
    /// One line a stack, for flamegraph.pl, inferno and scripts
    Folded,
    /// For speedscope
    Speedscope,
    /// For go tool pprof and what else reads pprof's protocol buffers
    Pprof,
    /// For the Firefox Profiler
    Firefox,
    /// A timeline of all events, for Perfetto and chrome://tracing
    Chrome,
    /// For Chrome DevTools and VS Code: one thread, times only
    Cpuprofile,
    /// With --diff: every frame with its values, change and significance
    Json,
}

/// The view that other programs know: wall times.
pub const TIMES: &str = "times";

/// `nodeprof export`.
#[derive(Args)]
#[command(after_long_help = "\
Views:
  runs, phases, callbacks, to-js, package-json, files, serialization, serialization-callbacks, compile, modules, packages,
  bundled-packages, sources, outside, processes: the fields are those of docs/json.md; in CSV, fields of fields have a point in their name
  times: of runs without probes; the JSON is hyperfine's, the CSV that of Node's benchmark/compare.js

Examples:
  nodeprof export app.nodeprof --of callbacks > callbacks.csv
  nodeprof export bench.nodeprof --of times --format json -o hyperfine.json")]
pub struct Export {
    /// A recording
    pub file: PathBuf,
    /// Or runs of the store
    #[command(flatten)]
    pub store: store::Store,
    /// What a row is: see below
    #[arg(long, value_name = "VIEW", hide_possible_values = true,
          value_parser = clap::builder::PossibleValuesParser::new(tables::View::ALL.iter().map(|(name, _)| *name).chain([TIMES])))]
    pub of: String,
    /// Format
    #[arg(long, default_value = "csv")]
    pub format: ExportFormat,
    /// Of this run only, from 1 [default: all]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub run: Option<u32>,
    /// File to write; `-` is standard output [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,
}

/// Formats of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// For spreadsheets and statistics programs
    Csv,
    /// For scripts
    Json,
}

/// `nodeprof import`.
#[derive(Args)]
#[command(after_long_help = "\
To have JavaScript functions by name, let V8 tell perf what code it makes:

  perf record -F 997 -g -- node --perf-basic-prof --interpreted-frames-native-stack app.js
  perf script -F +pid --show-task-events > perf.script
  nodeprof import perf.script

The recording holds samples, processes and threads; the families that perf does not see are off.")]
pub struct Import {
    /// What `perf script` printed; `-` is standard input
    pub file: PathBuf,
    /// Recording to write [default: FILE.nodeprof in this folder, perf.nodeprof for standard input]
    #[arg(short, long, value_name = "RECORDING")]
    pub output: Option<PathBuf>,
    /// Overwrite RECORDING if it exists
    #[arg(short, long)]
    pub force: bool,
    /// The event whose samples to take [default: a clock, else cycles, else the one with the most samples]
    #[arg(long, value_name = "NAME")]
    pub event: Option<String>,
}

/// `nodeprof probes`.
#[derive(Args)]
pub struct Probes {
    /// The node binary [default: node of PATH]
    #[arg(long, value_name = "PATH")]
    pub node: Option<PathBuf>,
    /// Format of the list; the JSON is documented in docs/json.md
    #[arg(long, default_value = "text")]
    pub format: Format,
    /// Print a bpftrace program for the plan instead: counts on machines without nodeprof, or a second opinion
    #[arg(long, conflicts_with = "format")]
    pub bpftrace: bool,
    /// What the program counts, separated by commas [default: phases,crossings,package-json]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "bpftrace",
          value_parser = clap::builder::PossibleValuesParser::new(Group::ALL.map(Group::name)))]
    pub families: Vec<String>,
}

/// `nodeprof doctor`.
#[derive(Args)]
pub struct Doctor {
    /// The node binary [default: node of PATH]
    #[arg(long, value_name = "PATH")]
    pub node: Option<PathBuf>,
    /// Who is asked
    #[command(flatten)]
    pub tracer: Tracer,
}

/// A number of things or of levels, or a seed.
fn number<N: FromStr>(text: &str) -> Result<N, String> {
    let number = text.parse();
    number.map_err(|_| format!("found {text:?}; needed: a whole number, 0 or more"))
}

fn frequency(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(hz) if hz <= HIGHEST_HZ => Ok(hz),
        _ => Err(format!(
            "found {text:?}; needed: CPU samples per second, 0 (none) to {HIGHEST_HZ}; type for example --freq {DEFAULT_HZ}"
        )),
    }
}

fn until(text: &str) -> Result<Until, String> {
    match text {
        "exit" => return Ok(Until::Exit),
        "loop-start" => return Ok(Until::LoopStart),
        "idle" => return Ok(Until::Idle),
        _ => {}
    }
    let needed = format!("exit, loop-start, idle, or {}", typed::TIME);
    match duration(text, &needed, "--until 1.5s")? {
        time if time > Duration::ZERO => Ok(Until::After(time)),
        _ => Err(format!(
            "found {text:?}; needed: a time above zero; type for example --until 800ms"
        )),
    }
}

/// A time in words, as nanoseconds.
fn nanoseconds(text: &str) -> Result<u64, String> {
    let time = duration(text, typed::TIME, "1.5ms")?;
    Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// A number with its unit.
fn duration(text: &str, needed: &str, example: &str) -> Result<Duration, String> {
    typed::time(text)
        .map_err(|found| found.to_string())
        .and_then(|nanoseconds| {
            Duration::try_from_secs_f64(nanoseconds / 1e9)
                .map_err(|_| format!("{text:?}, which is too long"))
        })
        .map_err(|found| format!("found {found}; needed: {needed}; type for example {example}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn frequencies_have_bounds() {
        assert_eq!(frequency("0"), Ok(0));
        assert_eq!(frequency("997"), Ok(997));
        assert_eq!(frequency("10000"), Ok(10_000));
        for bad in ["", "10001", "-1", "1e3", "1kHz", "99999999999"] {
            let error = frequency(bad).expect_err(bad);
            assert!(error.contains("0 (none) to 10000"), "{error}");
        }
    }

    #[test]
    fn negative_numbers_are_told_what_is_needed() {
        for (words, needed) in [
            ("trace --freq -1 -- node", "0 (none) to 10000"),
            ("trace --until -1ms -- node", "a time"),
            ("report x --run -1", "1..=4294967295"),
            ("flame x --of cpu --run -1", "1..=4294967295"),
            ("flame x --of cpu --process -1", "0..=4294967295"),
            ("flame x --of cpu --thread -1", "the number of a thread"),
            ("flame x --of cpu --from -1ms", "a milestone or phase"),
            ("flame x --of cpu --until -1", "a milestone or phase"),
            ("flame x --of cpu --least -1", "from 0 to 100"),
            ("view --port -1", "0..=65535"),
            ("export x --of runs --run -1", "1..=4294967295"),
            ("bench --runs -1 -- node", "1..=4294967295"),
            ("bench --warmup -1 -- node", "0 or more"),
            ("bench --probed-runs -1 -- node", "0 or more"),
            ("bench --seed -1 -- node", "0 or more"),
            ("compare -n -1 --base a --head b", "1..="),
            ("compare --max-pairs -1 --base a --head b", "1..="),
            ("compare --margin -1 --base a --head b", "above 0"),
            ("blame x --limit -1", "0 or more"),
            ("blame x --process -1", "0..=4294967295"),
            ("tree x --depth -1", "0 or more"),
            ("tree x --min -1ms", "a time"),
            ("critical-chain x --fuzz -1ms", "a time"),
            ("service runs --number -1", "1 to 1000"),
            ("service runs --since -1h", "a time"),
        ] {
            let words = ["nodeprof"].into_iter().chain(words.split(' '));
            let error = Cli::try_parse_from(words).err().map(|e| e.to_string());
            let error = error.unwrap_or_default();
            assert!(error.contains(needed) && !error.contains("tip"), "{error}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(until("1.5s"), Ok(Until::After(Duration::from_millis(1500))));
        assert_eq!(until("800ms"), Ok(Until::After(Duration::from_millis(800))));
        assert_eq!(until("2min"), Ok(Until::After(Duration::from_secs(120))));
        assert_eq!(nanoseconds("1.5ms"), Ok(1_500_000));
        assert_eq!(nanoseconds("20µs"), Ok(20_000));
        assert_eq!(nanoseconds("0s"), Ok(0));
        assert!(nanoseconds("5").is_err());
        assert_eq!(until("1h"), Ok(Until::After(Duration::from_secs(3600))));
        for bad in ["", "5", "s", "-1s", "0s", "1y", "nans", "infs", "1e400s"] {
            assert!(until(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn options_take_the_same_times_and_tell_the_same_of_others() {
        let parsed = |words: &str| {
            let words = ["nodeprof"].into_iter().chain(words.split(' '));
            Cli::try_parse_from(words).map_err(|error| error.to_string())
        };
        for option in [
            "trace --until TIME -- node",
            "flame x --of cpu --from TIME",
            "flame x --of cpu --until TIME",
            "tree x --min TIME",
            "critical-chain x --fuzz TIME",
            "service runs --since TIME",
        ] {
            for time in [
                "5ns", "20us", "20µs", "1.5ms", ".5s", "1e3s", "2min", "2h", "7d",
            ] {
                let error = parsed(&option.replace("TIME", time)).err();
                assert_eq!(error, None, "{option} {time}");
            }
            for (time, found) in [
                ("5", "found \"5\", which has no unit; needed: "),
                (
                    "5y",
                    "found \"5y\", of which \"y\" is no unit of time; needed: ",
                ),
                ("1e30d", "found \"1e30d\", which is too long; needed: "),
            ] {
                let error = parsed(&option.replace("TIME", time))
                    .err()
                    .unwrap_or_default();
                let needed =
                    "a number and its unit (ns, us, ms, s, min, h or d); type for example ";
                assert!(error.contains(found) && error.contains(needed), "{error}");
            }
        }
    }
}
