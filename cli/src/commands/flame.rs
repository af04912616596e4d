//! `nodeprof flame`.

use std::process::ExitCode;

use anyhow::Context as _;
use nodeprof_flamegraphs::{
    differential::{Differential, Direction},
    export::{chrome, cpuprofile, firefox, pprof, speedscope},
    fold::{Metric, Request, fold, stacks},
    printable,
    select::Selection,
    svg,
};
use nodeprof_profile::{
    Recording,
    breakdown::Timeline,
    diff::{self, Sides},
    groups::{NAME, Selector},
};

use super::hints;
use crate::args::{Flame, FlameDirection, FlameFormat};

/// Draws a flame graph.
pub fn run(args: &Flame) -> anyhow::Result<ExitCode> {
    let mut request = request(args)?;
    let (what, example) = file_of(args.format);
    if !matches!(args.format, FlameFormat::Folded | FlameFormat::Json) {
        super::not_on_a_terminal(args.output.as_ref(), what, example)?;
    }
    if let Some(base) = args.diff.first() {
        return difference(args, base, args.diff.get(1), &request);
    }
    if args.direction.is_some() {
        anyhow::bail!(
            "found: --direction without --diff; needed: --diff BASE HEAD, whose sides it tells apart, or no --direction"
        );
    }
    let file = (args.file.as_ref()).context("needed: a recording, or --diff")?;
    let (recording, runs) = super::source::load_selected(file, &args.store)?;
    request.run = runs.one(&recording, args.run, &file.to_string())?;
    let all = recording.runs.len();
    if args.run.is_none() && all > 1 {
        let run = recording.runs.get(request.run.0 as usize);
        let name = run
            .and_then(|run| run.label(NAME))
            .map(|name| format!(" ({})", printable(name)));
        say!(
            "Run {} of {all}{}; another: --run N.",
            request.run.0 + 1,
            name.unwrap_or_default()
        );
    }
    let mut content = Vec::new();
    let drawn = draw(args, &recording, &request, &mut content);
    let named = hints::selected(file, &args.store);
    for note in drawn.map_err(|error| hints::naming_in(&error, &named))? {
        say!("{note}");
    }
    output(args, &content)?;
    Ok(ExitCode::SUCCESS)
}

fn request(args: &Flame) -> anyhow::Result<Request> {
    let metric = match (&args.of, args.format) {
        (Some(name), _) => name.parse()?,
        // Without one, all tracks are shown.
        (None, FlameFormat::Chrome) => Metric::Cpu,
        (None, _) => anyhow::bail!(
            "found: no --of; needed: what to show, one of {}; type for example: --of {}",
            Metric::NAMES.join(", "),
            Metric::CrossingTime
        ),
    };
    if args.order.is_some() && !matches!(args.format, FlameFormat::Svg | FlameFormat::Folded) {
        anyhow::bail!(
            "found: --order with a format that has an order of its own; needed: --format svg or folded, or no --order"
        );
    }
    if (args.least.is_some() || args.title.is_some()) && args.format != FlameFormat::Svg {
        anyhow::bail!(
            "found: --least or --title with a format that is no picture; needed: --format svg, or neither"
        );
    }
    if args.by.is_some() && args.format == FlameFormat::Chrome {
        anyhow::bail!(
            "found: --by with --format chrome, which shows events as they were; needed: another format, or no --by"
        );
    }
    Ok(Request {
        by: args.by,
        order: args.order.unwrap_or_default(),
        selection: Selection {
            threads: args.thread,
            process: args.process,
            from: args.from.clone(),
            until: args.until.clone(),
        },
        source_maps: !args.no_source_maps,
        ..Request::new(metric)
    })
}

fn picture(args: &Flame) -> svg::SvgOptions {
    svg::SvgOptions {
        title: args.title.clone(),
        least: args.least,
        ..svg::SvgOptions::default()
    }
}

/// Draws a differential flame graph.
fn difference(
    args: &Flame,
    base: &Selector,
    head: Option<&Selector>,
    request: &Request,
) -> anyhow::Result<ExitCode> {
    if let (Some(_), false) = (args.direction, args.format == FlameFormat::Svg) {
        anyhow::bail!(
            "found: --direction for a format that has both sides; needed: --format svg, whose colours tell one as changes of the other"
        );
    }
    let loaded = super::diff::Loaded::load(base, head, &args.store)?;
    let tests = diff::tests(&Sides::new(&loaded.base_side(), &loaded.head_side()));
    let (base, head) = loaded.comparable();
    let differential = Differential::new(&base, &head, request, tests.varying_events)?;
    for note in differential.notes() {
        say!("{note}");
    }
    let direction = match args.direction.unwrap_or_default() {
        FlameDirection::Head => Direction::Head,
        FlameDirection::Base => Direction::Base,
    };
    let mut content = Vec::new();
    match args.format {
        FlameFormat::Svg => {
            svg::write_difference(&differential, direction, &picture(args), &mut content)?
        }
        FlameFormat::Folded => differential.write_folded(&mut content)?,
        FlameFormat::Speedscope => differential.write_speedscope(&mut content)?,
        FlameFormat::Json => differential.write_json(&mut content)?,
        FlameFormat::Pprof
        | FlameFormat::Firefox
        | FlameFormat::Chrome
        | FlameFormat::Cpuprofile => anyhow::bail!(
            "found: --diff with a format that has no place for two sides; needed: --format svg, folded, speedscope or json"
        ),
    }
    output(args, &content)?;
    Ok(ExitCode::SUCCESS)
}

fn output(args: &Flame, content: &[u8]) -> anyhow::Result<()> {
    super::output(
        args.output.as_ref(),
        args.force,
        content,
        super::Example::output(file_of(args.format).1),
    )
}

/// What a file of a format is, and a name for one.
fn file_of(format: FlameFormat) -> (&'static str, &'static str) {
    match format {
        FlameFormat::Svg => ("a picture is for a browser", "flame.svg"),
        FlameFormat::Folded => ("folded stacks are for programs", "flame.folded"),
        FlameFormat::Speedscope => ("this is for speedscope", "flame.speedscope.json"),
        FlameFormat::Pprof => ("this is for pprof", "flame.pb.gz"),
        FlameFormat::Firefox => ("this is for the Firefox Profiler", "flame.firefox.json"),
        FlameFormat::Chrome => ("this is for Perfetto", "trace.json"),
        FlameFormat::Cpuprofile => ("this is for Chrome DevTools", "flame.cpuprofile"),
        FlameFormat::Json => ("JSON is for programs", "flame.json"),
    }
}

/// Writes the file's content, and says what is not in it.
fn draw(
    args: &Flame,
    recording: &Recording,
    request: &Request,
    content: &mut Vec<u8>,
) -> anyhow::Result<Vec<String>> {
    let exported = || stacks(recording, request);
    Ok(match args.format {
        FlameFormat::Svg | FlameFormat::Folded => {
            let folded = fold(recording, request)?;
            match args.format {
                FlameFormat::Folded => folded.write_to(content)?,
                _ => svg::write(&folded, &picture(args), content)?,
            }
            folded.about().notes.clone()
        }
        FlameFormat::Speedscope => {
            let stacks = exported()?;
            let notes = stacks.about().notes.clone();
            speedscope::write(stacks, content)?;
            notes
        }
        FlameFormat::Pprof => {
            let stacks = exported()?;
            pprof::write(&stacks, recording, request.run, content)?;
            stacks.about().notes.clone()
        }
        FlameFormat::Firefox => {
            let timeline = Timeline::new(recording);
            firefox::write(exported()?, recording, &timeline, request.run, content)?
        }
        FlameFormat::Cpuprofile => cpuprofile::write(exported()?, content)?,
        FlameFormat::Json => anyhow::bail!(
            "found: --format json without --diff; needed: --diff BASE HEAD, or another format; nodeprof report FILE --format json has all figures"
        ),
        FlameFormat::Chrome => chrome::write(recording, request, args.of.is_none(), content)?,
    })
}
