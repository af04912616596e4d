//! Crossings, nested as they were called.

use nodeprof_profile::breakdown::PhaseId;
use nodeprof_profile::recording::{Callback, CallbackId, Crossing, CrossingKind, Nanoseconds};

use super::JAVASCRIPT;
use super::folded::FrameKind;
use super::folder::Folder;

impl Folder<'_> {
    /// The node of a callback called from `parent`.
    pub(super) fn callback(
        &mut self,
        parent: u32,
        callback: CallbackId,
        kind: CrossingKind,
    ) -> u32 {
        if let Some(&node) = self.callbacks.get(&(parent, callback.0, kind as u8)) {
            return node;
        }
        let (binding, frame) = self.callback_frames(callback, kind);
        let above = binding.map_or(parent, |binding| self.tree.child(parent, binding));
        let node = self.tree.child(above, frame);
        self.callbacks
            .insert((parent, callback.0, kind as u8), node);
        node
    }

    fn callback_frames(&mut self, callback: CallbackId, kind: CrossingKind) -> (Option<u32>, u32) {
        if let Some(&frames) = self.callback_frames.get(&(callback.0, kind as u8)) {
            return frames;
        }
        let unknown = Callback {
            binding: "(unknown)".to_owned(),
            function: format!("#{}", callback.0),
        };
        let named = self
            .recording
            .callbacks
            .get(callback.0 as usize)
            .unwrap_or(&unknown);
        let frames = if kind == CrossingKind::ToJs || named.binding == JAVASCRIPT {
            (
                None,
                self.tree.frame(FrameKind::JavaScript, "JavaScript", 0),
            )
        } else {
            let binding = self.tree.frame(FrameKind::Binding, &named.binding, 0);
            let (kind, name) = match kind {
                CrossingKind::Slow | CrossingKind::ToJs => {
                    (FrameKind::Callback, named.function.clone())
                }
                CrossingKind::Fast => (
                    FrameKind::FastCallback,
                    format!("{} [fast]", named.function),
                ),
                CrossingKind::Getter => (FrameKind::Getter, format!("{} [getter]", named.function)),
                CrossingKind::Construct => (
                    FrameKind::Constructor,
                    format!("{} [construct]", named.function),
                ),
            };
            (Some(binding), self.tree.frame(kind, &name, 0))
        };
        self.callback_frames
            .insert((callback.0, kind as u8), frames);
        frames
    }

    pub(super) fn crossings(&mut self, time: bool) {
        let recording = self.recording;
        let (drawn, run) = (self.drawn, self.selected.run);
        let order = by_thread(&recording.crossings, drawn.indices_of_crossings(run));
        let mut open: Vec<Open> = Vec::new();
        let mut current = None;
        for index in order {
            let crossing = &recording.crossings[index as usize];
            let thread = (crossing.process, crossing.thread);
            if current != Some(thread) {
                current = Some(thread);
                self.leave(&mut open, 0);
            }
            let Some(place) = self.ground(crossing.process, crossing.thread, crossing.start) else {
                continue;
            };
            let base = place.node;
            if self.side_by_side {
                let own = crossing.self_time.or(crossing.duration);
                let value = match time {
                    true => own.map_or(0, |own| own.0),
                    false => u64::from(crossing.kind != CrossingKind::ToJs),
                };
                if place.shown && value > 0 {
                    let node = self.callback(base, crossing.callback, crossing.kind);
                    self.tree.add(node, value);
                }
                continue;
            }
            while open.last().is_some_and(|last| last.is_over(crossing)) {
                let depth = open.len() - 1;
                self.leave(&mut open, depth);
            }
            let inside = match crossing.parent {
                None => {
                    // It says that it is inside of none: what has not returned was left by an exception or a jump.
                    if let Some(at) = open.iter().position(|outer| outer.end.is_none()) {
                        self.leave(&mut open, at);
                    }
                    open.last().map(|outer| (outer.node, outer.base))
                }
                Some(parent) => {
                    if let Some(at) = open.iter().position(|outer| outer.end.is_none())
                        && !open[at..].iter().any(|outer| outer.callback == parent)
                    {
                        self.leave(&mut open, at);
                    }
                    match open.last() {
                        Some(outer) if open.iter().any(|outer| outer.callback == parent) => {
                            Some((outer.node, outer.base))
                        }
                        // Its caller was only summed, and so has no place of its own.
                        outer => {
                            let above = outer.map_or(base, |outer| outer.node);
                            Some((self.callback(above, parent, CrossingKind::Slow), base))
                        }
                    }
                }
            };
            // What begins in another phase than its caller stands there: phases tell when, and come first.
            let above = match inside {
                Some((node, at)) if at == base => node,
                Some(_) => self.replant(&mut open, base),
                None => base,
            };
            let node = self.callback(above, crossing.callback, crossing.kind);
            let end = crossing
                .duration
                .map(|duration| Nanoseconds(crossing.start.0.saturating_add(duration.0)));
            let mut spread = None;
            match (time, crossing.duration, end) {
                (false, ..) => {
                    let counts = place.shown && crossing.kind != CrossingKind::ToJs;
                    self.tree.add(node, u64::from(counts));
                }
                (true, Some(duration), Some(end)) => {
                    let own = crossing.self_time.unwrap_or(duration);
                    if let Some(caller) = open.last_mut().and_then(|outer| outer.spread.as_mut()) {
                        caller.inside.push((crossing.start, end));
                    }
                    if end > place.to {
                        // It is known only at its end when its self time was.
                        spread = Some(Spread {
                            crossing: index,
                            own,
                            inside: Vec::new(),
                        });
                    } else if place.shown {
                        self.tree.add(node, own.0);
                    }
                }
                (true, ..) => {}
            }
            if end.is_some() || crossing.unfinished {
                open.push(Open {
                    callback: crossing.callback,
                    kind: crossing.kind,
                    end,
                    node,
                    base,
                    spread,
                });
            }
        }
        self.leave(&mut open, 0);
        // Calls back to JavaScript are not counted; their time is.
        let counted = |kind| time || kind != CrossingKind::ToJs;
        for sum in drawn.crossing_sums(run).filter(|sum| counted(sum.kind)) {
            if let Some(base) = self.sum_node(sum.process, sum.phase, sum.calls) {
                let node = self.callback(base, sum.callback, sum.kind);
                self.tree
                    .add(node, if time { sum.self_time.0 } else { sum.calls });
            }
        }
    }

    /// Closes the open calls from a depth on.
    fn leave(&mut self, open: &mut Vec<Open>, depth: usize) {
        while open.len() > depth {
            if let Some(call) = open.pop()
                && let Some(spread) = &call.spread
            {
                self.spread(open, &call, spread);
            }
        }
    }

    /// Deals the self time of a call that lasted longer than its phase out to the phases.
    ///
    /// Node's main script runs inside a call that began in the bootstrap: without this, the bootstrap would seem to
    /// last to the end of it.
    fn spread(&mut self, outer: &[Open], call: &Open, spread: &Spread) {
        let crossing = &self.recording.crossings[spread.crossing as usize];
        let (start, end) = (crossing.start, call.end.unwrap_or(crossing.start));
        let first = self.timeline.phase_of(crossing.process, start);
        let last = self.timeline.phase_of(crossing.process, end);
        let phases = self.timeline.phases(crossing.process);
        let (selected, unselected) = (self.selected.from, self.selected.until);
        let mut parts: Vec<Part> = Vec::new();
        for phase in first.0..=last.0 {
            let span = phases.get(phase as usize);
            // Before the first phase and after the last is in them.
            let from = match span {
                Some(span) if phase > first.0 => span.start,
                _ => start,
            };
            let to = match span {
                Some(span) if phase < last.0 => span.end,
                _ => end,
            };
            let mut begin = from;
            for stop in [selected.max(from).min(to), unselected.max(from).min(to), to] {
                let shared = |(a, b): (Nanoseconds, Nanoseconds)| {
                    b.min(stop).0.saturating_sub(a.max(begin).0)
                };
                let inside = spread
                    .inside
                    .iter()
                    .fold(0u64, |sum, &span| sum.saturating_add(shared(span)));
                parts.push(Part {
                    phase: PhaseId(phase),
                    shown: (selected..unselected).contains(&begin),
                    value: shared((start, end)).saturating_sub(inside),
                });
                begin = stop.max(begin);
            }
        }
        // Calls inside that were only summed have no place in time: they shorten every part alike.
        let own = u128::from(spread.own.0);
        let sum: u128 = parts.iter().map(|part| u128::from(part.value)).sum();
        let mut seen = 0u128;
        let mut given = 0u64;
        for part in &mut parts {
            seen += u128::from(part.value);
            let until = (own * seen).checked_div(sum).unwrap_or(own) as u64;
            part.value = until - given;
            given = until;
        }
        let class = self.class(crossing.process, crossing.thread);
        for part in parts.iter().filter(|part| part.shown && part.value > 0) {
            let Some(base) = self.phase_node(crossing.process, part.phase, class) else {
                continue;
            };
            let mut node = base;
            for call in outer.iter().chain([call]) {
                node = self.callback(node, call.callback, call.kind);
            }
            self.tree.add(node, part.value);
        }
    }

    /// Rebuilds the open calls below another phase; gives the innermost.
    fn replant(&mut self, open: &mut [Open], base: u32) -> u32 {
        let mut node = base;
        for outer in open {
            node = self.callback(node, outer.callback, outer.kind);
            outer.node = node;
            outer.base = base;
        }
        node
    }
}

/// A crossing that others may be inside of.
struct Open {
    callback: CallbackId,
    kind: CrossingKind,
    /// `None` if it never returned.
    end: Option<Nanoseconds>,
    node: u32,
    base: u32,
    /// If times are folded and it lasted beyond the phase in which it began.
    spread: Option<Spread>,
}

/// Of a call's self time.
struct Part {
    phase: PhaseId,
    /// Whether it is selected.
    shown: bool,
    value: u64,
}

struct Spread {
    /// Index of the crossing.
    crossing: u32,
    own: Nanoseconds,
    /// Calls directly inside it.
    inside: Vec<(Nanoseconds, Nanoseconds)>,
}

impl Open {
    fn is_over(&self, next: &Crossing) -> bool {
        let Some(end) = self.end else { return false };
        match next.duration {
            Some(duration) => end.0 < next.start.0.saturating_add(duration.0) || end <= next.start,
            None => end < next.start,
        }
    }
}

/// These crossings: thread by thread, in order of entry, callers before callees.
fn by_thread(crossings: &[Crossing], indices: impl Iterator<Item = usize>) -> Vec<u32> {
    struct Key {
        thread: u64,
        start: u64,
        // Longest first: of two that begin at once, it is the caller.
        remaining: u64,
        // Of two alike, the one written last returned last.
        index: u32,
    }
    let mut keys: Vec<Key> = indices
        .map(|index| (index, &crossings[index]))
        .map(|(index, crossing)| Key {
            thread: (u64::from(crossing.process.0) << 32) | u64::from(crossing.thread.0),
            start: crossing.start.0,
            remaining: crossing
                .duration
                .map_or(u64::from(!crossing.unfinished) * u64::MAX, |duration| {
                    u64::MAX - duration.0
                }),
            index: u32::MAX - index as u32,
        })
        .collect();
    let key = |key: &Key| (key.thread, key.start, key.remaining, key.index);
    // Recordings are nearly in order, which a stable sort makes use of.
    keys.sort_by_key(key);
    keys.into_iter().map(|key| u32::MAX - key.index).collect()
}
