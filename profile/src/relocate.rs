//! Every reference from a row of a recording to another row, so that rows can be given other ids.

use crate::Recording;
use crate::recording::{
    BinaryId, CallbackId, Frame, FrameId, NameId, OriginalPosition, ProcessId, RunId, Stack,
    StackId,
};

/// A table that others refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Table {
    Run,
    Process,
    Binary,
    Callback,
    Name,
    Frame,
    Stack,
}

/// Knows where rows are.
pub(crate) trait Places {
    /// The id that takes this one's place.
    fn place(&mut self, table: Table, id: u32) -> u32;
}

/// Something that refers to rows.
pub(crate) trait Relocate {
    /// Puts each id's new value in its place.
    fn relocate(&mut self, places: &mut impl Places);
}

macro_rules! ids {
    ($($id:ident: $table:ident),*) => {$(
        impl Relocate for $id {
            fn relocate(&mut self, places: &mut impl Places) {
                self.0 = places.place(Table::$table, self.0);
            }
        }
    )*};
}
ids!(RunId: Run, ProcessId: Process, BinaryId: Binary, CallbackId: Callback, NameId: Name, FrameId: Frame, StackId: Stack);

impl<T: Relocate> Relocate for Option<T> {
    fn relocate(&mut self, places: &mut impl Places) {
        if let Some(id) = self {
            id.relocate(places);
        }
    }
}

impl Relocate for OriginalPosition {
    fn relocate(&mut self, places: &mut impl Places) {
        self.file.relocate(places);
    }
}

impl Relocate for Frame {
    fn relocate(&mut self, places: &mut impl Places) {
        self.function.relocate(places);
        self.file.relocate(places);
        self.original.relocate(places);
    }
}

impl Relocate for Stack {
    fn relocate(&mut self, places: &mut impl Places) {
        self.caller.relocate(places);
        self.frame.relocate(places);
    }
}

/// All that is of one run: names, callbacks, binaries, frames and stacks, which runs share, are left as they are.
impl Relocate for Recording {
    fn relocate(&mut self, places: &mut impl Places) {
        macro_rules! relocate {
            ($($table:ident: $($field:ident),+;)*) => {$(
                for row in &mut self.$table {
                    $(row.$field.relocate(places);)+
                }
            )*};
        }
        relocate! {
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
            continuations: process, stack;
            families: run;
            losses: run;
            probe_hits: run;
            overheads: run;
            figures: run;
        }
    }
}
