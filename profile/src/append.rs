//! Many runs in one recording.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem::take;

use crate::Recording;
use crate::recording::{BinaryId, CallbackId, FrameId, NameId, Stack, StackId};
use crate::relocate::{Places, Relocate as _, Table};

/// Where the rows of another recording have gone.
struct Moved {
    runs: u32,
    processes: u32,
    binaries: Vec<BinaryId>,
    callbacks: Vec<CallbackId>,
    names: Vec<NameId>,
    frames: Vec<FrameId>,
    stacks: Vec<StackId>,
}

impl Places for Moved {
    fn place(&mut self, table: Table, id: u32) -> u32 {
        let at = id as usize;
        let new = match table {
            Table::Run => return id + self.runs,
            Table::Process => return id + self.processes,
            Table::Binary => self.binaries.get(at).map(|id| id.0),
            Table::Callback => self.callbacks.get(at).map(|id| id.0),
            Table::Name => self.names.get(at).map(|id| id.0),
            Table::Frame => self.frames.get(at).map(|id| id.0),
            Table::Stack => self.stacks.get(at).map(|id| id.0),
        };
        // An id that points nowhere keeps doing so: check_references names it.
        new.unwrap_or(id)
    }
}

/// Adds rows that are shared between runs to those that are there; each is there once.
fn share<T: Clone + Eq + Hash, Id: Copy>(
    into: &mut Vec<T>,
    rows: impl IntoIterator<Item = T>,
    id: impl Fn(u32) -> Id,
) -> Vec<Id> {
    let mut known: HashMap<T, u32> = HashMap::with_capacity(into.len());
    for (index, row) in into.iter().enumerate() {
        known.entry(row.clone()).or_insert(index as u32);
    }
    let moved = rows.into_iter().map(|row| {
        let index = *known.entry(row.clone()).or_insert_with(|| {
            into.push(row);
            into.len() as u32 - 1
        });
        id(index)
    });
    moved.collect()
}

impl Recording {
    /// Adds the runs of another recording. Names, callbacks, binaries, frames and stacks that both have are kept once.
    pub fn append(&mut self, mut other: Recording) {
        let mut moved = Moved {
            runs: self.runs.len() as u32,
            processes: self.processes.len() as u32,
            binaries: share(&mut self.binaries, take(&mut other.binaries), BinaryId),
            callbacks: share(&mut self.callbacks, take(&mut other.callbacks), CallbackId),
            names: share(&mut self.names, take(&mut other.names), NameId),
            frames: Vec::new(),
            stacks: Vec::new(),
        };
        let mut frames = take(&mut other.frames);
        for frame in &mut frames {
            frame.relocate(&mut moved);
        }
        moved.frames = share(&mut self.frames, frames, FrameId);
        self.append_stacks(take(&mut other.stacks), &mut moved);
        other.relocate(&mut moved);
        self.join(other);
    }

    /// Adds rows whose references are right already. Rows that runs share are left out.
    pub(crate) fn join(&mut self, other: Recording) {
        // Without `..`, so that a new table cannot be forgotten here.
        let Recording {
            runs,
            binaries: _,
            processes,
            callbacks: _,
            names: _,
            milestones,
            spans,
            crossings,
            crossing_sums,
            lookups,
            files,
            serializations,
            serialization_sums,
            compilations,
            packages,
            frames: _,
            stacks: _,
            samples,
            waits,
            imports,
            continuations,
            families,
            losses,
            probe_hits,
            overheads,
            figures,
        } = other;
        macro_rules! append {
            ($($table:ident)*) => {$(self.$table.extend($table);)*};
        }
        append! {
            runs processes milestones spans crossings crossing_sums lookups files serializations serialization_sums
            compilations packages samples waits imports continuations families losses probe_hits overheads figures
        }
    }

    /// A caller comes before its callees, so its new place is known when they come.
    fn append_stacks(&mut self, stacks: Vec<Stack>, moved: &mut Moved) {
        let mut known: HashMap<Stack, u32> = HashMap::with_capacity(self.stacks.len());
        for (index, stack) in self.stacks.iter().enumerate() {
            known.entry(*stack).or_insert(index as u32);
        }
        for mut stack in stacks {
            stack.relocate(moved);
            let index = *known.entry(stack).or_insert_with(|| {
                self.stacks.push(stack);
                self.stacks.len() as u32 - 1
            });
            moved.stacks.push(StackId(index));
        }
    }
}
