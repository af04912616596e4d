//! The innermost frames of samples and waits: those of the kernel, and the program's where its stack is not known.

use nodeprof_profile::recording::{Nanoseconds, ProcessId, Recording, StackId, WaitReason};

use super::{nearby, stacks::Builder};

/// Addresses by sample and wait.
#[derive(Default)]
pub struct Leaves {
    samples: Vec<Leaf>,
    waits: Vec<Leaf>,
}

struct Leaf {
    /// Index of the sample or wait.
    of: usize,
    /// Where the program was, or where it called the kernel; 0: not known.
    ip: u64,
    /// Innermost first.
    kernel: Vec<u64>,
}

impl Leaves {
    /// Notes where the sample of this index was.
    pub fn sample(&mut self, of: usize, ip: u64, kernel: Vec<u64>) {
        self.samples.push(Leaf { of, ip, kernel });
    }

    /// Notes where the wait of this index was.
    pub fn wait(&mut self, of: usize, ip: u64) {
        let kernel = Vec::new();
        self.waits.push(Leaf { of, ip, kernel });
    }

    /// Puts the frames on top of the stacks, which are the recording's already.
    pub fn finish(self, recording: &mut Recording, builder: &mut Builder<'_>) {
        nearby::find_stacks(recording);
        for leaf in self.samples {
            if let Some(sample) = recording.samples.get(leaf.of).copied() {
                let (process, at) = (sample.process, sample.at);
                let stack = leaf.on(recording, builder, process, at, sample.stack, true);
                recording.samples[leaf.of].stack = stack;
            }
        }
        for leaf in self.waits {
            if let Some(wait) = recording.waits.get(leaf.of).copied() {
                // Who waits for events between two calls is the event loop, whatever lies below it: no frame of interest is missing.
                let is_cut = wait.reason != WaitReason::Idle;
                let (process, at) = (wait.process, wait.start);
                let stack = leaf.on(recording, builder, process, at, wait.stack, is_cut);
                recording.waits[leaf.of].stack = stack;
            }
        }
    }
}

impl Leaf {
    fn on(
        &self,
        recording: &mut Recording,
        builder: &mut Builder<'_>,
        process: ProcessId,
        at: Nanoseconds,
        mut stack: Option<StackId>,
        is_cut: bool,
    ) -> Option<StackId> {
        let pid = recording.processes.get(process.0 as usize)?.pid;
        if stack.is_none() && self.ip != 0 {
            let frame = builder.machine(recording, pid, self.ip, at.0);
            stack = Some(builder.push(recording, None, frame, is_cut));
        }
        for (depth, &address) in self.kernel.iter().enumerate().rev() {
            // Outer frames hold return addresses.
            let address = address.saturating_sub(u64::from(depth > 0));
            let frame = builder.kernel(recording, address);
            stack = Some(builder.push(recording, stack, frame, false));
        }
        stack
    }
}
