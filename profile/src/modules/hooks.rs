//! Files that hooks on a thread of their own (`module.register`, `--loader`) found, and for whom.
//!
//! Whoever imports sends the hooks' thread a message and is on the stack there; the file is found on the hooks' thread.
//! That takes its messages in the order in which they were sent.

use std::collections::{BTreeSet, VecDeque};

use super::context::Contexts;
use super::events::{Threads, What};
use crate::fast::Map;
use crate::recording::{
    FileOperation, FrameKind, NameId, Nanoseconds, ProcessId, Recording, Serialization, StackId,
    ThreadId,
};

/// Sends requests to the hooks' thread, and calls hooks there.
const HOOKS: &[u8] = b"node:internal/modules/esm/hooks";
/// Receives them there.
const WORKER: &[u8] = b"node:internal/modules/esm/worker";

/// A file that was found for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) at: Nanoseconds,
    pub(super) path: NameId,
    /// Who asked.
    pub(super) stack: StackId,
}

/// What hooks' threads did.
#[derive(Debug, Default)]
pub(super) struct FoundByHooks {
    /// The files by the thread that asked, in the order of time.
    pub(super) files: Map<(ProcessId, ThreadId), Vec<Found>>,
    /// The threads: what they read for others is a module of these.
    pub(super) threads: BTreeSet<(ProcessId, ThreadId)>,
}

/// Through which of Node's own modules a stack goes.
#[derive(Clone, Copy, Default)]
struct Through {
    hooks: bool,
    worker: bool,
}

/// What was seen of the messages of a process.
#[derive(Clone, Copy)]
enum Step {
    Asked(ThreadId, StackId),
    Taken(ThreadId),
    Answered(ThreadId),
    Found {
        by: ThreadId,
        path: NameId,
        at_once: bool,
    },
}

/// What a hooks' thread is at.
#[derive(Default)]
struct Work {
    /// Who asked for what it took last.
    last: Option<(ThreadId, StackId)>,
    /// Requests without an answer.
    open: usize,
    /// Of those there were several at once.
    mixed: bool,
}

/// Finds them.
pub(super) fn found_by_hooks(
    recording: &Recording,
    contexts: &Contexts,
    threads: &Threads,
) -> FoundByHooks {
    let mut all = FoundByHooks::default();
    if !recording.names.iter().any(|name| name.as_slice() == WORKER) {
        return all;
    }
    let through = through(recording);
    let mut steps: Map<ProcessId, Vec<(Nanoseconds, Step)>> = Map::default();
    for thread in &threads.list {
        let steps = steps.entry(thread.process).or_default();
        for point in &thread.points {
            let step = match point.what {
                What::Serialization => {
                    let event = &recording.serializations[point.index as usize];
                    message(recording, contexts, &through, event)
                }
                What::File => {
                    let access = &recording.files[point.index as usize];
                    let found = access.operation == FileOperation::Stat && access.result >= 0;
                    let stack = access.stack.filter(|_| found);
                    stack.and_then(|stack| {
                        let Through { hooks, worker } = through[stack.0 as usize];
                        let finding = contexts.get(stack)?.finds_module();
                        (hooks && finding).then_some(Step::Found {
                            by: thread.thread,
                            path: access.path,
                            at_once: worker,
                        })
                    })
                }
                _ => None,
            };
            steps.extend(step.map(|step| (Nanoseconds(point.at), step)));
        }
    }
    for (process, mut steps) in steps {
        steps.sort_by_key(|(at, _)| *at);
        let answers = { steps.iter() }.filter_map(|(_, step)| match step {
            Step::Answered(by) => Some(*by),
            _ => None,
        });
        let of_hooks: BTreeSet<ThreadId> = answers.collect();
        let threads = of_hooks.iter().map(|&thread| (process, thread));
        all.threads.extend(threads);
        let mut waiting = VecDeque::new();
        let mut works: Map<ThreadId, Work> = Map::default();
        for (at, step) in steps {
            match step {
                Step::Asked(thread, stack) => waiting.push_back((thread, stack)),
                Step::Taken(by) if !of_hooks.contains(&by) => {}
                Step::Taken(by) => {
                    // Messages that nobody is known to have sent are not about modules.
                    if let Some(asked) = waiting.pop_front() {
                        let work = works.entry(by).or_default();
                        work.last = Some(asked);
                        work.mixed = work.open > 0;
                        work.open += 1;
                    }
                }
                Step::Answered(by) => {
                    let work = works.entry(by).or_default();
                    work.open = work.open.saturating_sub(1);
                }
                Step::Found { by, path, at_once } => {
                    let work = works.get(&by).filter(|work| at_once || !work.mixed);
                    if let Some((thread, stack)) = work.and_then(|work| work.last) {
                        let found = all.files.entry((process, thread)).or_default();
                        found.push(Found { at, path, stack });
                    }
                }
            }
        }
    }
    all
}

/// Which message a call of the serializer sends or receives, if it is one between a hooks' thread and who asks it.
fn message(
    recording: &Recording,
    contexts: &Contexts,
    through: &[Through],
    event: &Serialization,
) -> Option<Step> {
    let context = event.stack.and_then(|stack| contexts.get(stack));
    let way = event.stack.and_then(|stack| through.get(stack.0 as usize));
    let way = way.copied().unwrap_or_default();
    match recording.name(event.function) {
        // What a hook sends is its own.
        b"Message::Serialize" if !context?.loader => None,
        b"Message::Serialize" if way.worker => Some(Step::Answered(event.thread)),
        b"Message::Serialize" if way.hooks => Some(Step::Asked(event.thread, event.stack?)),
        // A port's listener is called when the message is there.
        b"Message::Deserialize" if way.worker || context.is_none_or(|c| !c.javascript) => {
            Some(Step::Taken(event.thread))
        }
        _ => None,
    }
}

fn through(recording: &Recording) -> Vec<Through> {
    let mut all: Vec<Through> = Vec::with_capacity(recording.stacks.len());
    for stack in &recording.stacks {
        let caller = stack.caller.and_then(|caller| all.get(caller.0 as usize));
        let mut through = caller.copied().unwrap_or_default();
        let frame = recording.frames.get(stack.frame.0 as usize);
        let file = frame.filter(|frame| frame.kind == FrameKind::JavaScript);
        match file
            .and_then(|frame| frame.file)
            .map(|file| recording.name(file))
        {
            Some(HOOKS) => through.hooks = true,
            Some(WORKER) => through.worker = true,
            _ => {}
        }
        all.push(through);
    }
    all
}
