/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Times off the CPU. What a thread waits for is noted when it leaves the CPU, where its registers are at hand; the record
 * leaves when it runs again. The stack is that of the crossing it is in, which is known: walking there would cost
 * microseconds with the run queue locked, and one more program with the walk in it to verify at each start.
 */
#ifndef NODEPROF_WAITS_H
#define NODEPROF_WAITS_H

/*
 * Two threads that hand a lock to and fro switch 100,000 times a second. Of one thread this many at once are recorded,
 * and each second makes up for some of them: a start in which threads yield to each other for some milliseconds comes
 * to 5,000. Of more only those that are long enough to matter: at most 1,000 a second.
 */
#define WAITS_AT_ONCE	 10000
#define WAITS_PER_SECOND 2000
#define LONG_WAIT	 1000000 /* ns */
#define SECOND		 1000000000ULL

#define TASK_DEAD 0x80

static __always_inline bool below_limit(struct thread *t, __u64 now)
{
	__u32 second = now / SECOND, gone = second - t->second;

	if (gone) {
		t->second = second;
		t->waits = gone * (__u64)WAITS_PER_SECOND < t->waits
				   ? t->waits - gone * WAITS_PER_SECOND
				   : 0;
	}
	if (t->waits >= WAITS_AT_ONCE)
		return false;
	t->waits++;
	return true;
}

static __always_inline void leave_cpu(struct task_struct *task, struct thread *t, bool runnable,
				      __u64 now)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__s64 number = regs->orig_ax;

	t->left_cpu = now;
	t->woken = 0;
	t->wait_flags = 0;
	/* -1 in an exception or an interrupt: the kernel's entry code sees to that. And where the number is none of x86-64. */
	t->wait_syscall = calls_as_i386(task) ? -1 : number;
	if (runnable)
		t->wait_flags |= WAIT_PREEMPTED;
	else if (number < 0)
		t->wait_flags |= WAIT_FAULT;
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		t->wait_flags |= WAIT_DISK;
	t->wait_ip = regs->ip;
	/* Outside of system calls what was called last, whose end is not seen, may be over. */
	t->wait_stack = number < 0 ? entered_stack(t) : crossing_stack(t);
}

static __always_inline void enter_cpu(struct thread *t, __u64 now)
{
	__u64 left = t->left_cpu, duration = now - left;

	t->left_cpu = 0;
	if (!below_limit(t, now) && duration < LONG_WAIT) {
		count(COUNTER_WAITS_LIMIT, 1);
		return;
	}
	RESERVE(record_wait, r);
	if (!r)
		return;
	fill_header(&r->header, t, RECORD_WAIT, left);
	r->header.id = t->wait_syscall;
	r->header.flags = t->wait_flags;
	r->duration = duration;
	r->runnable = t->wait_flags & WAIT_PREEMPTED ? duration : t->woken ? now - t->woken : 0;
	r->header.stack = t->wait_stack;
	r->ip = t->wait_ip;
	/* The run queue is locked here; only in the buffer's own time. */
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int state)
{
	struct thread *t;
	__u64 now = 0, next_has = (__u64)next->bpf_storage;

	/* Loaded here, once for all that the verifier follows (see has_storage). */
	asm volatile("" : "+r"(next_has));
	t = thread_here(); /* prev still is the current one */

	if (t && t->traced && !(state & TASK_DEAD)) {
		now = bpf_ktime_get_ns();
		count(COUNTER_SWITCHES, 1);
		leave_cpu(prev, t, preempt || !state, now);
	}
	t = next_has ? bpf_task_storage_get(&threads, next, 0, 0) : 0;
	if (t && t->left_cpu)
		enter_cpu(t, now ? now : bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	struct thread *t = thread_of(task);

	if (t && t->left_cpu)
		t->woken = bpf_ktime_get_ns();
	return 0;
}

#endif
