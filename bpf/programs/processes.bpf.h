/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * fork, exec and exit of the followed tree. A thread is followed if it has state; the state is handed to
 * every thread and process it makes, so membership costs those outside of the tree one failed look-up.
 */
#ifndef NODEPROF_PROCESSES_H
#define NODEPROF_PROCESSES_H

#define PF_KTHREAD 0x00200000

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct thread *t = bpf_task_storage_get(&threads, parent, 0, 0), *n;

	if (!t)
		return 0;
	n = bpf_task_storage_get(&threads, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!n) {
		count(COUNTER_NO_STATE, 1);
		return 0;
	}
	reset_stack(n);
	n->traced = t->traced;
	n->phase = child->tgid == t->pid ? t->phase : 0;
	n->syscall = -1;
	n->pid = child->tgid;
	n->tid = child->pid;
	RESERVE(record_fork, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_FORK, bpf_ktime_get_ns());
	r->child_pid = child->tgid;
	r->child_tid = child->pid;
	bpf_ringbuf_submit(r, wake_flag());
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	struct thread *t = bpf_task_storage_get(&threads, task, 0, 0);
	__u64 start, end, n;

	if (!t)
		return 0;
	reset_stack(t);
	t->traced = 1;
	t->phase = 0;
	t->syscall = -1;
	t->pid = task->tgid;
	t->tid = task->pid;
	RESERVE(record_text_large, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_EXEC, bpf_ktime_get_ns());
	r->duration = 0;
	r->descriptor = 0;
	/* The path, a NUL, then the arguments as they lie in memory, each with its NUL. */
	__s64 path =
		bpf_probe_read_kernel_str(r->text, TEXT_LARGE / 2, BPF_CORE_READ(bprm, filename));

	if (path < 1)
		path = 1;
	r->result = path; /* where the arguments begin */
	start = BPF_CORE_READ(task, mm, arg_start);
	end = BPF_CORE_READ(task, mm, arg_end);
	n = end - start;
	if (n > TEXT_LARGE / 2 - 1) {
		n = TEXT_LARGE / 2 - 1;
		r->header.flags |= RECORD_TRUNCATED;
	}
	n &= TEXT_LARGE / 2 - 1;
	path &= TEXT_LARGE / 2 - 1;
	if (bpf_probe_read_user(r->text + path, n, (void *)start)) {
		n = 0;
		r->header.flags |= RECORD_TRUNCATED;
	}
	r->length = path + n;
	bpf_ringbuf_submit(r, BPF_RB_FORCE_WAKEUP);
	return 0;
}

static long close_frame(__u32 index, struct thread **context)
{
	struct thread *t = *context;
	int i = drop_frame(t);

	if (i < 0)
		return 1;
	write_frame(t, i, bpf_ktime_get_ns() - frame_at(t, i)->start, RECORD_UNFINISHED);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct thread *t = bpf_task_storage_get(&threads, task, 0, 0);

	if (!t)
		return 0;
	bpf_loop(MAX_DEPTH, close_frame, &t, 0);
	RESERVE(record_exit, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_EXIT, bpf_ktime_get_ns());
	r->exit_code = task->exit_code;
	r->last = BPF_CORE_READ(task, signal, live.counter) == 0;
	r->user = task->utime;
	r->system = task->stime;
	r->runtime = BPF_CORE_READ(task, se.sum_exec_runtime);
	r->max_rss = BPF_CORE_READ(task, signal, maxrss);
	bpf_ringbuf_submit(r, wake_flag());
	return 0;
}

#endif
