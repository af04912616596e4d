// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * CPU samples: a clock on each CPU interrupts whatever runs there. A tick of a thread that is not followed costs one
 * failed look-up. (A clock on each thread, inherited, would spare others that, but what a thread ran since its last tick
 * is never sampled, and it is switched on and off with every context switch: docs/benchmarks.md.)
 */
#include "types.h"
#include <bpf/bpf_helpers.h>
#include "records.h"
#include "thread.bpf.h"
#include "text.bpf.h"
#define NODEPROF_TICKS
#include "v8.bpf.h"
#include "stack.bpf.h"

char LICENSE[] SEC("license")
= "Dual MIT/GPL";

/*
 * Time between two ticks, ns. A sample stands for as much, also where the tick came late: on a virtual machine that stood
 * still the time between does not count as CPU time.
 */
volatile const __u64 sample_period = 1000000;

/* Addresses of the kernel are not for everybody. */
volatile const bool kernel_frames = true;

SEC("perf_event")
int on_tick(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = bpf_task_storage_get(&threads, task, 0, 0);
	struct pt_regs *regs;
	__u32 stack;
	__u64 now;
	long bytes;

	if (!t || !t->traced)
		return 0;
	count(COUNTER_SAMPLES, 1);
	now = bpf_ktime_get_ns();
	/* Of the program, also where the tick fell into the kernel. */
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	stack = walk_stack(t, regs->ip, regs->sp, regs->bp, 0);
	RESERVE(record_sample, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_SAMPLE, now);
	r->header.stack = stack;
	r->weight = sample_period;
	r->ip = regs->ip;
	r->unused = 0;
	bytes = kernel_frames ? bpf_get_stack(ctx, r->kernel, sizeof(r->kernel), 0) : 0;
	r->depth = bytes > 0 ? bytes / sizeof(__u64) : 0;
	bpf_ringbuf_submit(r, wake_flag());
	return 0;
}
