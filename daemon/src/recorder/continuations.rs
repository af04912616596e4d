//! Which spans of a thread's time are the consequences of which asynchronous request.

use rustc_hash::FxHashMap as HashMap;

use nodeprof_bpf::{ContinuationEvent, Header};
use nodeprof_profile::recording::{
    Continuation, Nanoseconds, ProcessId, Recording, StackId, ThreadId,
};

/// A request under way.
#[derive(Clone, Copy)]
struct Request {
    at: Nanoseconds,
    stack: Option<StackId>,
}

/// The requests and callback scopes that are known of each process, by their addresses.
#[derive(Default)]
pub struct Continuations {
    requests: HashMap<(u32, u64), Request>,
    /// By thread: the open scopes, the innermost last, with their places in the recording.
    open: HashMap<(u32, u32), Vec<(u64, usize)>>,
}

impl Continuations {
    /// Takes what a record tells. `stack`: the kernel's number.
    pub fn take(
        &mut self,
        recording: &mut Recording,
        header: Header,
        (process, thread, at): (ProcessId, ThreadId, Nanoseconds),
        stack: Option<StackId>,
        event: ContinuationEvent,
    ) {
        match event {
            ContinuationEvent::Requested { resource } => {
                self.requests
                    .insert((header.pid, resource), Request { at, stack });
            }
            ContinuationEvent::Begun { scope, resource } => {
                // Made before the trace saw anything.
                let Some(&request) = self.requests.get(&(header.pid, resource)) else {
                    return;
                };
                let open = self.open.entry((header.pid, header.tid)).or_default();
                open.push((scope, recording.continuations.len()));
                recording.continuations.push(Continuation {
                    process,
                    thread,
                    start: at,
                    duration: None,
                    requested: request.at,
                    stack: request.stack,
                });
            }
            ContinuationEvent::Ended { scope } => {
                let Some(open) = self.open.get_mut(&(header.pid, header.tid)) else {
                    return;
                };
                let Some(place) = open.iter().rposition(|&(of, _)| of == scope) else {
                    return;
                };
                // Scopes inside of it have ended with it, whatever was seen of them.
                for (_, index) in open.drain(place..) {
                    if let Some(ended) = recording.continuations.get_mut(index) {
                        ended.duration = Some(Nanoseconds(at.0.saturating_sub(ended.start.0)));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ContinuationEvent::{Begun, Ended, Requested};

    fn recording_of(events: &[(u64, ContinuationEvent)]) -> Recording {
        let (mut all, mut recording) = (Continuations::default(), Recording::default());
        for &(at, event) in events {
            let header = Header {
                pid: 7,
                tid: 7,
                phase: 0,
                time: at,
                stack: 0,
            };
            let place = (ProcessId(0), ThreadId(7), Nanoseconds(at));
            all.take(
                &mut recording,
                header,
                place,
                Some(StackId(at as u32)),
                event,
            );
        }
        recording
    }

    fn spans(events: &[(u64, ContinuationEvent)]) -> Vec<(u64, Option<u64>, u64)> {
        let recording = recording_of(events);
        let all = recording.continuations.iter();
        all.map(|c| (c.start.0, c.duration.map(|d| d.0), c.requested.0))
            .collect()
    }

    #[test]
    fn a_scope_lasts_until_it_ends_also_around_others() {
        let events = [
            (1, Requested { resource: 0xa }),
            (2, Requested { resource: 0xb }),
            (
                10,
                Begun {
                    scope: 0x100,
                    resource: 0xa,
                },
            ),
            (
                12,
                Begun {
                    scope: 0x80,
                    resource: 0xb,
                },
            ),
            (14, Ended { scope: 0x80 }),
            (15, Ended { scope: 0x80 }),
            (20, Ended { scope: 0x100 }),
        ];
        assert_eq!(spans(&events), [(10, Some(10), 1), (12, Some(2), 2)]);
    }

    #[test]
    fn an_address_means_the_request_that_was_made_there_last() {
        let events = [
            (1, Requested { resource: 0xa }),
            (2, Requested { resource: 0xa }),
            (
                10,
                Begun {
                    scope: 0x100,
                    resource: 0xa,
                },
            ),
        ];
        assert_eq!(spans(&events), [(10, None, 2)]);
    }

    #[test]
    fn what_was_made_unseen_leads_to_nothing() {
        let events = [
            (
                10,
                Begun {
                    scope: 0x100,
                    resource: 0xa,
                },
            ),
            (11, Ended { scope: 0x100 }),
        ];
        assert_eq!(spans(&events), []);
    }
}
