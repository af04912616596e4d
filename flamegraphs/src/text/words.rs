//! What things are called in the report.

use nodeprof_profile::recording::{CompilationUnit, CrossingKind};
use nodeprof_profile::report::Crossings;

use super::page::{Phrase, faint};
use crate::paths::printable;
use crate::units::number;
use nodeprof_profile::wording;

pub(super) fn repeated(count: u64) -> String {
    match count {
        0 => String::new(),
        count => format!(" ({} repeated)", number(count)),
    }
}

pub(super) fn basename(path: &str) -> &str {
    path.rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or(path)
}

pub(super) fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// Names of phases as in the JSON, in words.
pub(crate) fn phase_name(name: &str) -> String {
    let words: Vec<String> = name
        .split('+')
        .map(|part| match part {
            "process" => "exec".to_owned(),
            "v8" => "V8".to_owned(),
            "loop" => "event loop".to_owned(),
            other => printable(other).replace('_', " "),
        })
        .collect();
    words.join(" + ")
}

pub(super) fn kind_name(kind: CrossingKind) -> &'static str {
    match kind {
        CrossingKind::Slow => "",
        CrossingKind::Fast => "fast",
        CrossingKind::Getter => "getter",
        CrossingKind::Construct => "construct",
        CrossingKind::ToJs => "to JS",
    }
}

pub(super) fn unit_name(unit: CompilationUnit) -> &'static str {
    match unit {
        CompilationUnit::Builtin => "built-in",
        CompilationUnit::Function => "CommonJS",
        CompilationUnit::Module => "ES module",
        CompilationUnit::Script => "script",
    }
}

pub(super) fn kinds(crossings: &Crossings) -> Vec<Phrase> {
    let kinds = &crossings.by_kind;
    let list: Vec<String> = [
        ("slow", kinds.slow),
        ("fast", kinds.fast),
        ("getter", kinds.getter),
        ("construct", kinds.construct),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(name, count)| format!("{} {name}", number(count)))
    .collect();
    let back = match kinds.to_js {
        0 => String::new(),
        calls => format!("{} back to JavaScript", number(calls)),
    };
    vec![faint(list.join(", ")), faint(back)]
}

/// What a signal is called. x86-64 numbers; the only architecture so far.
pub fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(signal)
        .ok()
        .and_then(|n| NAMES.get(n.checked_sub(1)?))
    {
        Some(name) => format!("SIG{name}"),
        None => format!("signal {signal}"),
    }
}

/// What a loss means for the figures.
pub fn loss(kind: &str, count: u64) -> String {
    let text = match kind {
        "records" => {
            "# [record was|records were] dropped because the buffer was full: counts and times of all sections are too low by [it|these]"
        }
        "undecodable_records" => {
            "# record[|s] could not be read: counts and times of all sections are too low by [it|these]"
        }
        "unmatched_exits" => "# return[|s] without a call: the call[ is|s are] not timed",
        "abandoned_frames" => {
            "# [call was|calls were] left by an exception or a jump: [it is|they are] counted, not timed"
        }
        "frames_too_deep" => {
            "# [call was|calls were] nested too deep to be timed: [it is|they are] counted, but missing in total and self times"
        }
        "sums_full" => {
            "# call[|s] found no room in the tables of sums: [it is|they are] missing in Crossings and Serialization"
        }
        "sums_unread" => {
            "# time[|s] the sums of calls could not be read, or only while they changed: calls beyond single events may be missing in Crossings and Serialization, or be there twice"
        }
        "stacks" => {
            "# time[|s] there was no room for a stack, or for a function on it: what has none counts, but belongs to no module, package or function"
        }
        "sources" => {
            "# script[|s] had no room for the lines, or (of an eval, say) for the text: [its|their] functions have no lines"
        }
        "threads_not_followed" => {
            "# time[|s] a thread could not be followed: what it did is missing in all sections"
        }
        "events_beyond_limit" => {
            "# event[|s] (file operations, lookups, compilations and so on) came when nodeprofd had as much of the start as it keeps of one: counts and times of all sections are too low by [it|these]"
        }
        "processes_of_others" => {
            "# process[|es] took over others' rights (a set-user-ID program, say): what [it|they] did from then on is missing in all sections"
        }
        "counts_unknown" => {
            "nodeprofd ended before the trace did: calls that were summed, and what was lost, are not known"
        }
        "memory_unreadable" => {
            "# name[|s] could not be read from the program's memory: [it appears|they appear] as (unreadable) or (unnamed)"
        }
        "paths_unreadable" => {
            "# path[|s] could not be read from the program's memory: [it appears|they appear] as (unreadable)"
        }
        "rows_unreadable" => {
            "# value[|s] (a path, a function, a stack) could not be read from the store: [it appears|they appear] as (unreadable)"
        }
        "paths_truncated" => {
            "# [path was|paths were] cut: files with a common beginning may be shown as one"
        }
        "beginnings_missed" => {
            "# [process was|processes were] seen only after [its|their] start, or could not be probed: what [it|they] did until then is missing"
        }
        "compilations_unmatched" => {
            "# compilation[|s] ended without a beginning: [it is|they are] missing in Compilation"
        }
        "io_uring_setups" => {
            "# use[|s] of io_uring: file operations made through it are missing in Files and package.json"
        }
        "waits" => {
            "# short wait[|s] of threads with very many [was|were] counted, not kept: times off the CPU are too low by [it|these]"
        }
        "holder_ended" => {
            "nodeprof's process that holds the probes ended before the trace did: what node binaries that were not known yet did may be missing in all sections"
        }
        "source_maps_broken" => {
            "# source map[|s] could not be read: [its script is|their scripts are] named by the generated file and its lines; no figure is too low by it"
        }
        "source_maps_skipped" => {
            "# script[|s] whose source map there was no time to look up: [it is|they are] named by the generated file and its lines; no figure is too low by it"
        }
        "samples" => {
            "# CPU sample[|s] [was|were] lost by the tool that took them: CPU times are too low by [it|these]"
        }
        "samples_of_other_events" => {
            "# sample[|s] of another event than the one shown: [it is|they are] missing in CPU samples"
        }
        "samples_cut" => {
            "# sample[|s] at the end of the text [was|were] cut off: CPU times are too low by [it|these]"
        }
        "samples_without_time" => {
            "# sample[|s] without a time: [it counts|they count], but it is not known when [it was|they were] taken"
        }
        other => return format!("{} × {}", number(count), printable(other).replace('_', " ")),
    };
    wording::counted(count, text)
}
