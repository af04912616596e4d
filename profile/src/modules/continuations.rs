//! On whose behalf node's own code runs when no function of the program is on the stack: what an asynchronous request
//! leads to is its maker's.

use super::context::Contexts;
use super::script::ScriptId;
use crate::recording::{Continuation, StackId};

/// Who is behind what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// The program's script that made the request, or one that led to it, and where it did.
    Script(ScriptId, StackId),
    /// Node's loader of modules.
    Loader,
}

/// The continuations of one thread.
#[derive(Debug, Default)]
pub(super) struct Continuations {
    /// From this instant on: who is behind it.
    steps: Vec<(u64, Option<Behind>)>,
}

impl Continuations {
    /// Those of a thread.
    pub(super) fn new(contexts: &Contexts, of_thread: &[&Continuation]) -> Continuations {
        let mut list = of_thread.to_vec();
        // The outer ones of those that begin together first.
        list.sort_by_key(|c| {
            (
                c.start,
                std::cmp::Reverse(c.duration.map_or(u64::MAX, |d| d.0)),
            )
        });
        let mut all = Continuations::default();
        let mut open: Vec<(u64, Option<Behind>)> = Vec::new();
        for continuation in list {
            let start = continuation.start.0;
            all.end_until(start, &mut open);
            let context = continuation.stack.and_then(|stack| contexts.get(stack));
            let behind = match context {
                Some(context) if context.owner.is_some() => context
                    .owner
                    .zip(continuation.stack)
                    .map(|(owner, stack)| Behind::Script(owner, stack)),
                Some(context) if context.loader => Some(Behind::Loader),
                // It was made in the course of another one.
                _ => all.at(continuation.requested.0),
            };
            let end = (continuation.duration).map_or(u64::MAX, |d| start.saturating_add(d.0));
            open.push((end, behind));
            all.steps.push((start, behind));
        }
        all.end_until(u64::MAX, &mut open);
        all
    }

    /// Closes what has ended by an instant: those around it go on.
    fn end_until(&mut self, at: u64, open: &mut Vec<(u64, Option<Behind>)>) {
        while let Some(&(end, _)) = open.last()
            && end <= at
        {
            open.pop();
            let outer = open.last().and_then(|&(_, behind)| behind);
            self.steps.push((end, outer));
        }
    }

    /// Who is behind what the thread does at an instant.
    pub(super) fn at(&self, at: u64) -> Option<Behind> {
        let after = self.steps.partition_point(|&(start, _)| start <= at);
        self.steps[..after].last().and_then(|&(_, behind)| behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::script::Scripts;
    use crate::recording::{
        Frame, FrameId, FrameKind, NameId, Nanoseconds, ProcessId, Recording, Stack, StackId,
        ThreadId,
    };

    /// Two stacks of a script each, and one of the loader's.
    fn recording(continuations: &[(u64, Option<u64>, u64, Option<u32>)]) -> Recording {
        let mut recording = Recording::default();
        let names = [
            "f",
            "/app/a.js",
            "/app/b.js",
            "node:internal/modules/esm/loader",
            "node:internal/fs/promises",
        ];
        recording.names = names.map(|name| name.as_bytes().to_vec()).into();
        for file in 1..=4 {
            let frame = Frame::new(FrameKind::JavaScript, NameId(0), Some(NameId(file)));
            recording.frames.push(frame);
            recording.stacks.push(Stack {
                caller: None,
                frame: FrameId(file - 1),
                truncated: false,
            });
        }
        let all = continuations.iter();
        recording.continuations = all
            .map(|&(start, duration, requested, stack)| Continuation {
                process: ProcessId(0),
                thread: ThreadId(7),
                start: Nanoseconds(start),
                duration: duration.map(Nanoseconds),
                requested: Nanoseconds(requested),
                stack: stack.map(StackId),
            })
            .collect();
        recording
    }

    fn paths(recording: &Recording, instants: &[u64]) -> Vec<Option<String>> {
        let mut scripts = Scripts::default();
        let contexts = Contexts::new(recording, &mut scripts);
        let of_thread = recording.continuations.iter();
        let of_thread: Vec<_> = of_thread.filter(|c| c.thread == ThreadId(7)).collect();
        let all = Continuations::new(&contexts, &of_thread);
        let name = |behind| match behind {
            Behind::Script(script, _) => String::from_utf8_lossy(&scripts.get(script).path).into(),
            Behind::Loader => "loader".to_owned(),
        };
        let at = instants.iter().map(|&at| all.at(at).map(name));
        at.collect()
    }

    #[test]
    fn what_a_request_leads_to_is_its_makers() {
        let recording = recording(&[
            (100, Some(50), 10, Some(0)),
            // Made by node's own code within the first one.
            (200, Some(50), 120, Some(3)),
            (300, Some(50), 20, Some(2)),
            // Made where nobody was behind it.
            (400, Some(50), 30, Some(3)),
            (500, None, 210, None),
        ]);
        let [a, loader] = [Some("/app/a.js".to_owned()), Some("loader".to_owned())];
        assert_eq!(
            paths(
                &recording,
                &[99, 100, 149, 150, 200, 249, 300, 400, 499, 500, 9999]
            ),
            [
                None,
                a.clone(),
                a.clone(),
                None,
                a.clone(),
                a.clone(),
                loader,
                None,
                None,
                a.clone(),
                a
            ]
        );
    }

    #[test]
    fn behind_one_inside_of_another_the_outer_one_goes_on() {
        let recording = recording(&[(100, Some(100), 10, Some(0)), (120, Some(10), 10, Some(1))]);
        let [a, b] = ["/app/a.js", "/app/b.js"].map(|path| Some(path.to_owned()));
        assert_eq!(
            paths(&recording, &[110, 120, 129, 130, 199, 200]),
            [a.clone(), b.clone(), b, a.clone(), a, None]
        );
    }
}
