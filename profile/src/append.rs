//! Many runs in one recording.

use std::collections::HashMap;
use std::hash::Hash;

use crate::Recording;
use crate::recording::{
    BinaryId, CallbackId, FrameId, NameId, OriginalPosition, ProcessId, RunId, Stack, StackId,
};

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

/// Puts an id's new value in its place.
trait Move {
    fn move_to(&mut self, moved: &Moved);
}

impl Move for RunId {
    fn move_to(&mut self, moved: &Moved) {
        self.0 += moved.runs;
    }
}

impl Move for ProcessId {
    fn move_to(&mut self, moved: &Moved) {
        self.0 += moved.processes;
    }
}

macro_rules! by_table {
    ($($id:ident in $table:ident),*) => {$(
        impl Move for $id {
            fn move_to(&mut self, moved: &Moved) {
                // An id that points nowhere keeps doing so: check_references names it.
                if let Some(new) = moved.$table.get(self.0 as usize) {
                    *self = *new;
                }
            }
        }
    )*};
}
by_table!(BinaryId in binaries, CallbackId in callbacks, NameId in names, FrameId in frames, StackId in stacks);

impl<T: Move> Move for Option<T> {
    fn move_to(&mut self, moved: &Moved) {
        if let Some(id) = self {
            id.move_to(moved);
        }
    }
}

impl Move for OriginalPosition {
    fn move_to(&mut self, moved: &Moved) {
        self.file.move_to(moved);
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
    pub fn append(&mut self, other: Recording) {
        // Without `..`, so that a new table cannot be forgotten here.
        let Recording {
            runs,
            binaries,
            processes,
            callbacks,
            names,
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
            frames,
            stacks,
            samples,
            waits,
            imports,
            families,
            losses,
            probe_hits,
            overheads,
        } = other;
        let mut moved = Moved {
            runs: self.runs.len() as u32,
            processes: self.processes.len() as u32,
            binaries: share(&mut self.binaries, binaries, BinaryId),
            callbacks: share(&mut self.callbacks, callbacks, CallbackId),
            names: share(&mut self.names, names, NameId),
            frames: Vec::new(),
            stacks: Vec::new(),
        };
        let mut frames = frames;
        for frame in &mut frames {
            frame.function.move_to(&moved);
            frame.file.move_to(&moved);
            frame.original.move_to(&moved);
        }
        moved.frames = share(&mut self.frames, frames, FrameId);
        self.append_stacks(stacks, &mut moved);
        self.runs.extend(runs);
        macro_rules! append {
            ($($table:ident: $($field:ident),+;)*) => {$(
                self.$table.extend($table.into_iter().map(|mut row| {
                    $(row.$field.move_to(&moved);)+
                    row
                }));
            )*};
        }
        append! {
            processes: run, parent, node;
            milestones: process;
            spans: process, name;
            crossings: process, callback, parent, stack;
            crossing_sums: process, callback, stack;
            lookups: process, path, stack;
            files: process, path, stack;
            serializations: process, function, callback, stack;
            serialization_sums: process, function, callback, stack;
            compilations: process, path, stack;
            packages: run, directory;
            samples: process, stack;
            waits: process, stack;
            imports: process, requirer, loaded;
            families: run;
            losses: run;
            probe_hits: run;
            overheads: run;
        }
    }

    /// A caller comes before its callees, so its new place is known when they come.
    fn append_stacks(&mut self, stacks: Vec<Stack>, moved: &mut Moved) {
        let mut known: HashMap<Stack, u32> = HashMap::with_capacity(self.stacks.len());
        for (index, stack) in self.stacks.iter().enumerate() {
            known.entry(*stack).or_insert(index as u32);
        }
        for mut stack in stacks {
            stack.caller.move_to(moved);
            stack.frame.move_to(moved);
            let index = *known.entry(stack).or_insert_with(|| {
                self.stacks.push(stack);
                self.stacks.len() as u32 - 1
            });
            moved.stacks.push(StackId(index));
        }
    }
}
