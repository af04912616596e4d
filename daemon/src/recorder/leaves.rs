//! The innermost frames of samples and waits: those of the kernel, and the program's where its stack is not known.

use nodeprof_profile::recording::{Nanoseconds, ProcessId, Recording, StackId};

use super::stacks::Builder;

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
        for leaf in self.samples {
            if let Some(sample) = recording.samples.get(leaf.of).copied() {
                let stack = leaf.on(recording, builder, sample.process, sample.at, sample.stack);
                recording.samples[leaf.of].stack = stack;
            }
        }
        for leaf in self.waits {
            if let Some(wait) = recording.waits.get(leaf.of).copied() {
                let stack = leaf.on(recording, builder, wait.process, wait.start, wait.stack);
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
    ) -> Option<StackId> {
        let pid = recording.processes.get(process.0 as usize)?.pid;
        if stack.is_none() && self.ip != 0 {
            let frame = builder.machine(recording, pid, self.ip, at.0);
            stack = Some(builder.push(recording, None, frame, true));
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
