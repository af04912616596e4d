//! Spans of time on a track, of which two either have nothing in common or lie one in the other: viewers drop others.

use serde_json::{Map, Value};

use super::calls::Call;

/// A span, or an instant if it has no end. ns on CLOCK_MONOTONIC.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slice {
    pub(super) start: u64,
    pub(super) end: Option<u64>,
    pub(super) what: What,
}

/// What a slice shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// An event of the recording: of those there are a million, so their texts are made when they are written.
    Call(Call),
    /// Anything else.
    Told(Box<Told>),
}

/// What is written of a slice.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    pub(super) name: String,
    pub(super) cat: &'static str,
    pub(super) args: Map<String, Value>,
}

impl Told {
    pub(super) fn new(name: impl Into<String>, cat: &'static str) -> Told {
        Told {
            name: name.into(),
            cat,
            args: Map::new(),
        }
    }

    /// Adds what is known.
    pub(super) fn set(mut self, key: &str, value: Option<impl Into<Value>>) -> Told {
        if let Some(value) = value {
            self.args.insert(key.to_owned(), value.into());
        }
        self
    }
}

impl Slice {
    pub(super) fn new(start: u64, end: u64, told: Told) -> Slice {
        Slice {
            start,
            end: Some(end),
            what: What::Told(Box::new(told)),
        }
    }

    pub(super) fn instant(at: u64, told: Told) -> Slice {
        Slice {
            end: None,
            ..Slice::new(at, at, told)
        }
    }

    /// Cuts off what is before `from`; false if nothing is left. What lay one in the other does so still.
    pub(super) fn clip(&mut self, from: u64) -> bool {
        if self.start >= from {
            return true;
        }
        self.start = from;
        // Instants have no length that could be lost.
        self.end.is_none_or(|end| end > from)
    }
}

/// Sorted, the longer first of those that begin at once, each cut where the one around it ends.
pub(super) fn nested(mut slices: Vec<Slice>) -> Vec<Slice> {
    sort(&mut slices);
    let mut open: Vec<u64> = Vec::new();
    for slice in &mut slices {
        let Some(end) = &mut slice.end else { continue };
        open.retain(|outer| *outer > slice.start);
        if let Some(&around) = open.last() {
            *end = (*end).min(around);
        }
        open.push(*end);
    }
    slices
}

/// The same without cutting any: what overlaps goes to the next track.
pub(super) fn into_lanes(mut slices: Vec<Slice>) -> Vec<Vec<Slice>> {
    sort(&mut slices);
    let mut lanes: Vec<(Vec<u64>, Vec<Slice>)> = Vec::new();
    for slice in slices {
        let end = slice.end.unwrap_or(slice.start);
        let fits = lanes.iter_mut().find_map(|(open, slices)| {
            open.retain(|outer| *outer > slice.start);
            let inside = open.last().is_none_or(|&around| end <= around);
            inside.then_some((open, slices))
        });
        match fits {
            Some((open, slices)) => {
                open.push(end);
                slices.push(slice);
            }
            None => lanes.push((vec![end], vec![slice])),
        }
    }
    lanes.into_iter().map(|(_, slices)| slices).collect()
}

fn sort(slices: &mut [Slice]) {
    slices.sort_by_key(|slice| (slice.start, std::cmp::Reverse(slice.end)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(spans: &[(u64, u64)]) -> Vec<Slice> {
        let slice = |&(start, end)| Slice::new(start, end, Told::new("", ""));
        spans.iter().map(slice).collect()
    }

    fn spans(slices: &[Slice]) -> Vec<(u64, u64)> {
        let span = |slice: &Slice| (slice.start, slice.end.unwrap_or_default());
        slices.iter().map(span).collect()
    }

    #[test]
    fn what_outlasts_the_call_around_it_is_cut() {
        let result = nested(slices(&[(5, 12), (0, 10), (10, 11), (6, 7)]));
        assert_eq!(spans(&result), [(0, 10), (5, 10), (6, 7), (10, 11)]);
    }

    #[test]
    fn what_overlaps_goes_to_another_lane() {
        let lanes = into_lanes(slices(&[
            (0, 10),
            (2, 4),
            (3, 8),
            (5, 6),
            (9, 12),
            (12, 13),
        ]));
        let lanes: Vec<_> = lanes.iter().map(|lane| spans(lane)).collect();
        assert_eq!(
            lanes,
            [
                vec![(0, 10), (2, 4), (5, 6), (12, 13)],
                vec![(3, 8), (9, 12)]
            ]
        );
    }
}
