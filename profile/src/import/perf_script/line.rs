//! One line of `perf script`, as bytes: names and paths need not be UTF-8.
//!
//! ```text
//! node 28277/28284 [001] 15441.787023:    1001001 cpu-clock:u:
//!             7fa24745375c v8::internal::(anonymous namespace)::Invoke+0x1c (/usr/bin/node)
//! ```
//!
//! perf prints a blank line behind each sample with a call chain. Without one the only frame stands on the sample's own line.

use crate::recording::Nanoseconds;

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'l> {
    /// Nothing: a sample ends.
    Blank,
    /// Behind `#`.
    Comment(&'l [u8]),
    /// A sample, or another record of perf.
    Event(Event<'l>),
    /// A frame of the sample above.
    Frame(Frame<'l>),
    /// The source position of the frame above (`-F +srcline`).
    Source,
}

/// The first line of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'l> {
    /// Name of the thread, at most 15 bytes; may hold spaces.
    pub comm: &'l [u8],
    /// Process; `None` if the text has only threads.
    pub pid: Option<u32>,
    /// Thread.
    pub tid: u32,
    /// On perf's clock; `None` if it was not printed.
    pub at: Option<Nanoseconds>,
    /// How much of the event the sample stands for.
    pub period: Option<u64>,
    /// For example `cpu-clock:u`; empty if it was not printed.
    pub name: &'l [u8],
    /// What follows: the frame of a sample without a call chain, or the fields of a tracepoint.
    pub rest: &'l [u8],
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'l> {
    /// Where it stood.
    pub address: u64,
    /// Name; `None` for `[unknown]` and where none was printed.
    pub symbol: Option<&'l [u8]>,
    /// File, `[kernel.kallsyms]` and the like; `None` for `[unknown]` and where none was printed.
    pub object: Option<&'l [u8]>,
    /// Inlined into the next outer frame.
    pub inlined: bool,
}

/// Why a line is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclear {
    /// It is none of perf's.
    Line,
    /// A sample with something behind its instant that perf does not print there.
    Event,
}

/// Understands a line.
///
/// # Errors
/// [`Unclear`].
pub fn parse(line: &[u8]) -> Result<Line<'_>, Unclear> {
    let text = line.trim_ascii();
    if text.is_empty() {
        return Ok(Line::Blank);
    }
    if let [b'#', comment @ ..] = line {
        return Ok(Line::Comment(comment.trim_ascii()));
    }
    // Frames are indented by a tab; the name of a thread is right-aligned with spaces where there is no call chain.
    if line[0] == b'\t' {
        let frame = parse_frame(text).map(Line::Frame);
        return frame.or_else(|| source(text)).ok_or(Unclear::Line);
    }
    let timed = with_time(text)?;
    if line[0] == b' ' && timed.is_none() {
        // Indentation that a copy turned into spaces.
        if let Some(frame) = parse_frame(text) {
            return Ok(Line::Frame(frame));
        }
    }
    timed
        .or_else(|| without_time(text))
        .map(Line::Event)
        .or_else(|| (line[0] == b' ').then(|| source(text)).flatten())
        .ok_or(Unclear::Line)
}

/// `file.cc:12`, `??:0`.
fn source(text: &[u8]) -> Option<Line<'_>> {
    let (file, line) = split_last(text, b':')?;
    (!file.is_empty() && number::<u64>(line).is_some()).then_some(Line::Source)
}

/// The words of a text, each with the place where it begins.
fn words(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    text.split(u8::is_ascii_whitespace).filter_map(move |word| {
        let start = at;
        at += word.len() + 1;
        (!word.is_empty()).then_some((start, word))
    })
}

/// The instant is the landmark: `COMM PID/TID [CPU] FLAGS TIME: …`. A name can hold all but that.
fn with_time(text: &[u8]) -> Result<Option<Event<'_>>, Unclear> {
    let mut unclear = false;
    let mut before: Vec<(usize, &[u8])> = Vec::new();
    for (start, word) in words(text) {
        let Some(at) = word.strip_suffix(b":").and_then(instant) else {
            before.push((start, word));
            continue;
        };
        let Some((pid, tid, comm)) = who(text, &before) else {
            before.push((start, word));
            continue;
        };
        let behind = text.get(start + word.len()..).unwrap_or_default();
        let Some((period, name, rest)) = what(behind) else {
            unclear = true;
            before.push((start, word));
            continue;
        };
        return Ok(Some(Event {
            comm,
            pid,
            tid,
            at: Some(at),
            period,
            name,
            rest,
        }));
    }
    if unclear {
        Err(Unclear::Event)
    } else {
        Ok(None)
    }
}

/// Thread and name from the words before the instant.
fn who<'l>(text: &'l [u8], before: &[(usize, &[u8])]) -> Option<(Option<u32>, u32, &'l [u8])> {
    let mut words = before;
    // Processor and interrupt flags, each only if something is left for the thread.
    while let [rest @ .., (_, last)] = words
        && is_processor_or_flags(last)
        && !rest.is_empty()
    {
        words = rest;
    }
    let [names @ .., (start, ids)] = words else {
        return None;
    };
    let (pid, tid) = ids_of(ids)?;
    if names.is_empty() {
        return None;
    }
    Some((pid, tid, text.get(..*start)?.trim_ascii()))
}

fn is_processor_or_flags(word: &[u8]) -> bool {
    let processor = word
        .strip_prefix(b"[")
        .and_then(|w| w.strip_suffix(b"]"))
        .is_some_and(|w| number::<u32>(w).is_some());
    // `d..1.`: interrupts off, need resched, hard or soft interrupt, preemption depth, migration.
    let flags = matches!(word.len(), 4..=6)
        && word.contains(&b'.')
        && word
            .iter()
            .all(|b| b".dDnNpPhHsSzZbBxXLlK0123456789".contains(b));
    processor || flags
}

/// `TID` or `PID/TID`. The idle thread's, and those that perf does not know, can be negative: they are no thread.
fn ids_of(word: &[u8]) -> Option<(Option<u32>, u32)> {
    let id = |digits: &[u8]| match digits {
        [b'-', rest @ ..] if number::<u32>(rest).is_some() => Some(u32::MAX),
        digits => number(digits),
    };
    match split_last(word, b'/') {
        Some((pid, tid)) => Some((Some(id(pid)?), id(tid)?)),
        None => Some((None, id(word)?)),
    }
}

/// Period, event and what follows, of what stands behind the instant; `None` if perf does not print such a thing there.
fn what(text: &[u8]) -> Option<(Option<u64>, &[u8], &[u8])> {
    let text = text.trim_ascii();
    let all: Vec<(usize, &[u8])> = words(text).collect();
    let Some((_, first)) = all.first() else {
        return Some((None, b"", b""));
    };
    // `PERF_RECORD_FORK(2:2):(1:1)` has no colon behind it.
    if first.starts_with(b"PERF_RECORD_") {
        let name = first.strip_suffix(b":").unwrap_or(first);
        return Some((None, name, text[first.len()..].trim_ascii()));
    }
    let period = number(first).filter(|_| all.len() > 1);
    if let Some((name, rest)) = event(text, &all[usize::from(period.is_some())..]) {
        return Some((period, name, rest));
    }
    // Neither was printed: the frame, unless that is the period and then the frame, or the period and then an event.
    let frame = parse_frame(text)?;
    let second = frame.symbol.and_then(parse_frame);
    let odd = second.is_some_and(|frame| frame.symbol.is_some()) || text.ends_with(b":");
    (!odd).then_some((None, b"".as_slice(), text))
}

/// An event and what follows. Names can hold spaces (`raw 0x1a8`, `cpu-clock/name=my clock/`), and so can the symbols of frames.
fn event<'l>(text: &'l [u8], words: &[(usize, &[u8])]) -> Option<(&'l [u8], &'l [u8])> {
    let (start, first) = words.first()?;
    let place = words.iter().position(|(_, word)| word.ends_with(b":"))?;
    let (last, word) = words[place];
    let end = last + word.len();
    let (name, rest) = (&text[*start..end - 1], text[end..].trim_ascii());
    let is_name = if place == 0 {
        !first.starts_with(b"-")
    } else {
        first[0].is_ascii_alphabetic() && (rest.is_empty() || parse_frame(rest).is_some())
    };
    is_name.then_some((name, rest))
}

/// `COMM TID [CPU] PERIOD EVENT:`, printed without the instant.
fn without_time(text: &[u8]) -> Option<Event<'_>> {
    let all: Vec<(usize, &[u8])> = words(text).collect();
    for place in 1..all.len() {
        let (start, word) = all[place];
        let Some((pid, tid)) = ids_of(word) else {
            continue;
        };
        // perf names a thread that it does not know by its number; any other `-1` is a period, and odd.
        if tid == u32::MAX && !text.starts_with(b":") {
            continue;
        }
        let mut next = place + 1;
        while all.get(next).is_some_and(|(_, w)| is_processor_or_flags(w)) {
            next += 1;
        }
        let Some(&(behind, _)) = all.get(next) else {
            continue;
        };
        let Some((period, name, rest)) = what(&text[behind..]) else {
            continue;
        };
        if name.is_empty() || name.contains(&b' ') {
            continue;
        }
        return Some(Event {
            comm: text[..start].trim_ascii(),
            pid,
            tid,
            at: None,
            period,
            name,
            rest,
        });
    }
    None
}

/// `SECONDS.FRACTION`.
fn instant(text: &[u8]) -> Option<Nanoseconds> {
    let (seconds, fraction) = split_last(text, b'.')?;
    if fraction.len() > 9 {
        return None;
    }
    let seconds: u64 = number(seconds)?;
    let digits: u64 = number(fraction)?;
    let scale = 10u64.pow(9 - fraction.len() as u32);
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(digits * scale)
        .map(Nanoseconds)
}

/// `ADDRESS SYMBOL+0xOFFSET (OBJECT)`, of which only the address must be there.
pub fn parse_frame(text: &[u8]) -> Option<Frame<'_>> {
    let text = text.trim_ascii();
    let end = text
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(text.len());
    let (address, rest) = text.split_at(end);
    if address.len() > 16 {
        return None;
    }
    let address = u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok()?;
    let rest = rest.trim_ascii();
    let (name, object) = split_object(rest);
    let inlined = object == Some(b"inlined");
    let symbol = without_offset(name).trim_ascii();
    let known = |text: &[u8]| !text.is_empty() && text != b"[unknown]";
    Some(Frame {
        address,
        symbol: Some(symbol).filter(|symbol| known(symbol)),
        object: object.filter(|object| known(object) && !inlined),
        inlined,
    })
}

/// Symbol and object. Both may hold parentheses: `(anonymous namespace)`, `/opt/my (app)/a.node`, `a.so (deleted)`.
fn split_object(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let Some(inner) = text.strip_suffix(b")") else {
        return (text, None);
    };
    // Behind an offset, or `[unknown]`, an object must follow.
    let landmark = offset_and_object(inner).or_else(|| {
        inner
            .starts_with(b"[unknown] (")
            .then_some(b"[unknown]".len())
    });
    if let Some(end) = landmark {
        return (&text[..end], inner.get(end + 2..));
    }
    // Else the parenthesis that belongs to the last one, if it stands alone.
    let mut depth = 1;
    for place in (0..inner.len()).rev() {
        match inner[place] {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            let alone = place == 0 || inner[place - 1] == b' ';
            let object = &inner[place + 1..];
            return if alone && object != b"anonymous namespace" {
                (&text[..place], Some(object))
            } else {
                (text, None)
            };
        }
    }
    (text, None)
}

/// Where the `+0xHEX` ends that ` (` follows; the first of several, for a path can hold anything.
fn offset_and_object(text: &[u8]) -> Option<usize> {
    (0..text.len()).find_map(|start| {
        let digits = text.get(start..)?.strip_prefix(b"+0x")?;
        let length = digits.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let end = start + 3 + length;
        (length > 0 && text.get(end..end + 2) == Some(b" (")).then_some(end)
    })
}

/// A symbol without the `+0xHEX` behind it.
fn without_offset(symbol: &[u8]) -> &[u8] {
    let Some(plus) = symbol.windows(3).rposition(|three| three == b"+0x") else {
        return symbol;
    };
    let digits = &symbol[plus + 3..];
    if !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit) {
        &symbol[..plus]
    } else {
        symbol
    }
}

/// The text before and behind the last `mark`.
pub(super) fn split_last(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().rposition(|b| *b == mark)?;
    Some((&text[..place], &text[place + 1..]))
}

/// Digits and nothing else.
pub(super) fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn event(line: &str) -> Event<'_> {
        match parse(line.as_bytes()) {
            Ok(Line::Event(event)) => event,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    fn frame(line: &str) -> (u64, String, String, bool) {
        let text = |bytes: Option<&[u8]>| {
            bytes.map_or("-".into(), |b| String::from_utf8_lossy(b).into_owned())
        };
        match parse(line.as_bytes()) {
            Ok(Line::Frame(f)) => (f.address, text(f.symbol), text(f.object), f.inlined),
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn samples_are_told_in_all_forms_that_perf_prints() {
        type Expected<'e> = (&'e str, Option<u32>, u32, Option<u64>, Option<u64>, &'e str);
        let cases: &[(&str, Expected)] = &[
            (
                "node 28069 15436.364167:    1001001 cpu-clock: ",
                (
                    "node",
                    None,
                    28069,
                    Some(15_436_364_167_000),
                    Some(1_001_001),
                    "cpu-clock",
                ),
            ),
            (
                "node 28277/28284 [001] 15441.787023456:    1001001 cpu-clock:pppH: ",
                (
                    "node",
                    Some(28277),
                    28284,
                    Some(15_441_787_023_456),
                    Some(1_001_001),
                    "cpu-clock:pppH",
                ),
            ),
            (
                "Chrome 12 3 77/78 15.5:  1 sched:sched_switch: prev_comm=a prev_pid=1",
                (
                    "Chrome 12 3",
                    Some(77),
                    78,
                    Some(15_500_000_000),
                    Some(1),
                    "sched:sched_switch",
                ),
            ),
            (
                "            node 28277 15441.787023:    1001001 cpu-clock:      7fa24745375c strcmp+0x12bc (/l.so)",
                (
                    "node",
                    None,
                    28277,
                    Some(15_441_787_023_000),
                    Some(1_001_001),
                    "cpu-clock",
                ),
            ),
            (
                "node 28277 cpu-clock: ",
                ("node", None, 28277, None, None, "cpu-clock"),
            ),
            (
                "swapper     0/0     [003]  cycles: ",
                ("swapper", Some(0), 0, None, None, "cycles"),
            ),
            (
                "kworker/u8:2-ev   123 [000] d..1. 9.000001: 4 cpu_core/cycles/P: ",
                (
                    "kworker/u8:2-ev",
                    None,
                    123,
                    Some(9_000_001_000),
                    Some(4),
                    "cpu_core/cycles/P",
                ),
            ),
            (
                "node 28277 15441.787023: 1001001 raw 0x1a8: ",
                (
                    "node",
                    None,
                    28277,
                    Some(15_441_787_023_000),
                    Some(1_001_001),
                    "raw 0x1a8",
                ),
            ),
            (
                "node 28277 15441.787023: 1001001 my clock:  7fa24745375c strcmp+0x12bc (/l.so)",
                (
                    "node",
                    None,
                    28277,
                    Some(15_441_787_023_000),
                    Some(1_001_001),
                    "my clock",
                ),
            ),
            (
                "node 28277 1.5: 7000 JS:*get x: /a.js:2:67+0x10 (/tmp/perf-1.map)",
                ("node", None, 28277, Some(1_500_000_000), None, ""),
            ),
            (
                "            node 28277 15441.787023: ",
                ("node", None, 28277, Some(15_441_787_023_000), None, ""),
            ),
            (
                "MainThread 28277/28277 15441.798782: PERF_RECORD_FORK(28277:28283):(28277:28277)",
                (
                    "MainThread",
                    Some(28277),
                    28277,
                    Some(15_441_798_782_000),
                    None,
                    "PERF_RECORD_FORK(28277:28283):(28277:28277)",
                ),
            ),
            (
                ":-1    -1/-1 1.2: 3 cycles: ",
                (
                    ":-1",
                    Some(u32::MAX),
                    u32::MAX,
                    Some(1_200_000_000),
                    Some(3),
                    "cycles",
                ),
            ),
        ];
        for (line, expected) in cases {
            let e = event(line);
            let name = std::str::from_utf8(e.name).unwrap();
            let comm = std::str::from_utf8(e.comm).unwrap();
            let at = e.at.map(|at| at.0);
            assert_eq!(
                (comm, e.pid, e.tid, at, e.period, name),
                *expected,
                "{line}"
            );
        }
        let single = event(cases[3].0);
        assert_eq!(single.rest, b"7fa24745375c strcmp+0x12bc (/l.so)");
    }

    #[test]
    fn what_perf_does_not_print_behind_an_instant_is_told() {
        for behind in [
            "-5 cpu-clock: ",
            "-5: ",
            "1001.5 cpu-clock: ",
            "1e6 cpu-clock: ",
            "99999999999999999999 cpu-clock: ",
            "1 -5 cpu-clock: ",
            "1001001 7fa24745375c strcmp+0x12bc (/l.so)",
            "DEFERRED CALLCHAIN [cookie: 3]",
            "prev_comm=a prev_pid=1",
        ] {
            let line = format!("node 28277/28284 [001] 15441.787023: {behind}");
            assert_eq!(parse(line.as_bytes()), Err(Unclear::Event), "{line}");
        }
        let without_time = "node 28277 -5 cpu-clock: ";
        assert_eq!(parse(without_time.as_bytes()), Err(Unclear::Line));
    }

    #[test]
    fn frames_are_told_in_all_forms_that_perf_prints() {
        for (line, expected) in [
            (
                "\t            9069 do_lookup_x+0x309 (/usr/lib/ld.so.2)",
                (0x9069, "do_lookup_x", "/usr/lib/ld.so.2", false),
            ),
            (
                "\tffffffff821f2fa7 exc_page_fault+0xd7 ([kernel.kallsyms])",
                (
                    0xffff_ffff_821f_2fa7,
                    "exc_page_fault",
                    "[kernel.kallsyms]",
                    false,
                ),
            ),
            (
                "\t a22df1 v8::internal::(anonymous namespace)::Invoke+0x1c (/opt/my (app) +0x1/node)",
                (
                    0xa22df1,
                    "v8::internal::(anonymous namespace)::Invoke",
                    "/opt/my (app) +0x1/node",
                    false,
                ),
            ),
            (
                "\t7f00 [unknown] (/tmp/perf-1.map)",
                (0x7f00, "-", "/tmp/perf-1.map", false),
            ),
            ("\t7f00 [unknown] ([unknown])", (0x7f00, "-", "-", false)),
            ("\t7f00 strcmp", (0x7f00, "strcmp", "-", false)),
            ("\t7f00", (0x7f00, "-", "-", false)),
            ("\t55d3 add<int> (inlined)", (0x55d3, "add<int>", "-", true)),
            (
                "\t55d3 f(int) (/a/b.so (deleted))",
                (0x55d3, "f(int)", "/a/b.so (deleted)", false),
            ),
            (
                "\t55d3 operator()(int)",
                (0x55d3, "operator()(int)", "-", false),
            ),
            (
                "\t55d3 a::(anonymous namespace)",
                (0x55d3, "a::(anonymous namespace)", "-", false),
            ),
            (
                "\t7f00 JS:*get v /a b/my lib.js:2:67+0x10 (/tmp/perf-1.map)",
                (
                    0x7f00,
                    "JS:*get v /a b/my lib.js:2:67",
                    "/tmp/perf-1.map",
                    false,
                ),
            ),
            (
                "    7f00 strcmp+0x1 (/l.so)",
                (0x7f00, "strcmp", "/l.so", false),
            ),
        ] {
            let (address, symbol, object, inlined) = expected;
            let expected = (address, symbol.to_owned(), object.to_owned(), inlined);
            assert_eq!(frame(line), expected, "{line}");
        }
    }

    #[test]
    fn other_lines_are_told_apart() {
        assert_eq!(parse(b""), Ok(Line::Blank));
        assert_eq!(parse(b" \t "), Ok(Line::Blank));
        assert_eq!(
            parse(b"# arch : x86_64"),
            Ok(Line::Comment(b"arch : x86_64"))
        );
        assert_eq!(parse(b"  main.cc:12"), Ok(Line::Source));
        assert_eq!(parse(b"\t??:0"), Ok(Line::Source));
        for foreign in [
            "PERFILE2",
            "hello world",
            "a;b;c 12",
            "{\"a\": 1}",
            "\tnot hex",
        ] {
            assert_eq!(parse(foreign.as_bytes()), Err(Unclear::Line), "{foreign}");
        }
    }
}
