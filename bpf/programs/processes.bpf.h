/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * fork, exec and exit of the followed tree. A thread is followed if it has state; the state is handed to
 * every thread and process it makes, so membership costs those outside of the tree one failed look-up.
 *
 * The service follows each process by itself: state is handed to threads only, and a process that executes something
 * else than a known node binary is followed no further.
 */
#ifndef NODEPROF_PROCESSES_H
#define NODEPROF_PROCESSES_H

#define PF_KTHREAD 0x00200000

/* Each process by itself, and every large program on the host is told to the holder: the service. */
volatile const bool host = false;

/*
 * Inode of the PID namespace that we run in; 0: the initial one. A process has a number in its own namespace and in each
 * around it, and all that user space does with a number, it does in ours.
 */
volatile const __u32 pid_namespace = 0;
/* The kernel's own limit on their nesting, MAX_PID_NS_LEVEL. */
#define PID_NAMESPACES 32

/*
 * Who may not trace everybody's programs has them traced by the service: then a process is followed as long as its owner could
 * as well attach a debugger to it, and no further.
 */
volatile const bool owned = false;
volatile const __u32 owner = 0, owner_group = 0;

/* Of linux/sched/coredump.h: the lowest bits of a memory's flags tell who may look at it; 1: its owner. */
#define DUMPABLE_MASK	  3
#define DUMPABLE_BY_OWNER 1

static __always_inline unsigned long memory_flags(struct mm_struct *mm)
{
	struct mm_struct___6_6 *old = (void *)mm;
	struct mm_struct___6_18 *newer = (void *)mm;

	if (bpf_core_field_exists(newer->flags.__mm_flags))
		return BPF_CORE_READ(newer, flags.__mm_flags[0]);
	return BPF_CORE_READ(old, flags);
}

/* CAP_WAKE_ALARM, which systemd gives to whoever sits before the machine. */
#define CAPABILITIES_OF_ALL (1ULL << 35)

/* Whether it has no rights that its owner has not: any are the owner's in a namespace that the owner has made (the initial one is root's). */
static __always_inline bool is_unprivileged(const struct cred *cred)
{
	/* As it was up to 6.2, it is as long. */
	__u64 permitted = 0;

	if (BPF_CORE_READ(cred, user_ns, owner.val) == owner)
		return true;
	if (bpf_core_read(&permitted, sizeof(permitted), &cred->cap_permitted))
		return false;
	return !(permitted & ~CAPABILITIES_OF_ALL);
}

/*
 * Whether a process is the owner's, and has not taken over others' rights: by a set-user-ID program, say, one that may not be read, or capabilities that it was
 * started with.
 */
static __always_inline bool is_owners(struct task_struct *task)
{
	const struct cred *cred = BPF_CORE_READ(task, cred);
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	return BPF_CORE_READ(cred, uid.val) == owner && BPF_CORE_READ(cred, euid.val) == owner &&
	       BPF_CORE_READ(cred, suid.val) == owner &&
	       BPF_CORE_READ(cred, gid.val) == owner_group &&
	       BPF_CORE_READ(cred, egid.val) == owner_group &&
	       BPF_CORE_READ(cred, sgid.val) == owner_group && is_unprivileged(cred) &&
	       (memory_flags(mm) & DUMPABLE_MASK) == DUMPABLE_BY_OWNER;
}

/* Number of a thread as we know it; 0: it is of a namespace that we cannot see into. */
static __always_inline __u32 number_of(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 levels = BPF_CORE_READ(pid, level) + 1;

	for (__u32 i = 0; i < PID_NAMESPACES && i < levels; i++) {
		struct upid *number = &pid->numbers[i];

		if (BPF_CORE_READ(number, ns, ns.inum) == pid_namespace)
			return BPF_CORE_READ(number, nr);
	}
	return 0;
}

static __always_inline __u32 thread_number(struct task_struct *task)
{
	return pid_namespace ? number_of(task) : (__u32)task->pid;
}

static __always_inline __u32 process_number(struct task_struct *task)
{
	return pid_namespace ? number_of(BPF_CORE_READ(task, group_leader)) : (__u32)task->tgid;
}

/*
 * Programs from this size on are told to the holder when they are executed: one may be a node binary that nobody knew
 * of, and is then stopped before its main. Official ones have over 80 MB; shells and most tools have less than 4.
 */
#define LARGE_PROGRAM (8 << 20)

/* A version of a file. */
struct program {
	__u64 inode, size, changed, changed_nanoseconds;
	__u32 device, generation;
};

struct execution {
	struct program program;
	__u32 pid, unused;
};

/* Programs that the holder looked at: they are not node. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct program);
	__type(value, __u8);
} not_node SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 10);
} executions SEC(".maps");

/* So that its type is kept for the holder. */
struct execution execution_type SEC(".rodata.types");

static __always_inline struct program program_of(struct inode *inode)
{
	struct inode___6_6 *old = (void *)inode;
	struct inode___6_7 *newer = (void *)inode;
	struct inode___6_11 *newest = (void *)inode;
	struct program p = {
		.inode = BPF_CORE_READ(inode, i_ino),
		.size = BPF_CORE_READ(inode, i_size),
		.device = BPF_CORE_READ(inode, i_sb, s_dev),
		.generation = BPF_CORE_READ(inode, i_generation),
	};

	if (bpf_core_field_exists(newest->i_mtime_sec)) {
		p.changed = BPF_CORE_READ(newest, i_mtime_sec);
		p.changed_nanoseconds = BPF_CORE_READ(newest, i_mtime_nsec);
	} else if (bpf_core_field_exists(newer->__i_mtime)) {
		p.changed = BPF_CORE_READ(newer, __i_mtime.tv_sec);
		p.changed_nanoseconds = BPF_CORE_READ(newer, __i_mtime.tv_nsec);
	} else {
		p.changed = BPF_CORE_READ(old, i_mtime.tv_sec);
		p.changed_nanoseconds = BPF_CORE_READ(old, i_mtime.tv_nsec);
	}
	return p;
}

/* Whether a process executes a node binary that probes were made for. */
static __always_inline bool executes_known_node(struct task_struct *task)
{
	struct inode *inode = BPF_CORE_READ(task, mm, exe_file, f_inode);
	struct file_key file;

	if (!inode)
		return false;
	file = file_of(inode);
	return bpf_map_lookup_elem(&image_files, &file);
}

/* The thread that stops programs which nobody knew of, until it ends. */
struct {
	__u64 task;	  /* its task_struct; 0: nobody stops any */
	__s32 tid;	  /* as its task_struct has it */
	bool holds_execs; /* those of known ones need not be stopped */
} stopper;

/* Run by that thread. */
SEC("raw_tp")
int set_stopper(struct bpf_raw_tracepoint_args *arguments)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	stopper.tid = BPF_CORE_READ(task, pid);
	stopper.holds_execs = arguments->args[0];
	stopper.task = (__u64)task;
	return 0;
}

/* JOBCTL_TRAP_STOP of linux/sched/jobctl.h: it stops before its next instruction. */
#define TRAP_STOP    (1UL << 19)
#define PF_EXITING   4
#define TASK_RUNNING 0 /* or it is about to */

/* As long as a program's main is awaited the host may have taken the stopper's CPU away. It is this long at most that this one does nothing else. */
#define STOP_NANOSECONDS 20000000
/* From when the stopper has read of it; where it may not stop a program, it goes on. */
#define STOPPING_NANOSECONDS 1000000
/* More than there are in that time. */
#define STOP_LOOKS (1 << 20)

struct awaited_stop {
	struct task_struct *task;
	unsigned long told; /* the position in the ring behind what was told */
	__u64 until;
	bool is_read;
};

static long look_for_stop(__u32 index, struct awaited_stop *stop)
{
	struct task_struct *task = stop->task, *by = (void *)stopper.task;
	__u64 now = bpf_ktime_get_ns();

	if (now > stop->until || BPF_CORE_READ(task, jobctl) & TRAP_STOP)
		return 1;
	/* It waits for this very CPU, which it gets as soon as we return. */
	if (BPF_CORE_READ(by, thread_info.cpu) == bpf_get_smp_processor_id() &&
	    BPF_CORE_READ(by, __state) == TASK_RUNNING)
		return 1;
	/* It has ended. */
	if (BPF_CORE_READ(by, pid) != stopper.tid || BPF_CORE_READ(by, flags) & PF_EXITING)
		return 1;
	if (!stop->is_read && bpf_ringbuf_query(&executions, BPF_RB_CONS_POS) >= stop->told) {
		stop->is_read = true;
		if (stop->until > now + STOPPING_NANOSECONDS)
			stop->until = now + STOPPING_NANOSECONDS;
	}
	return 0;
}

/*
 * Keeps a program from going on to its main before it is stopped, which the stopper was woken for. That takes 0.1 ms, and a main begins after
 * 1 ms, but the host of a virtual machine may take the CPU of the stopper away for longer.
 */
static __always_inline void await_stop(struct task_struct *task)
{
	struct awaited_stop stop = {
		.task = task,
		.told = bpf_ringbuf_query(&executions, BPF_RB_PROD_POS),
		.until = bpf_ktime_get_ns() + STOP_NANOSECONDS,
	};

	/* Else somebody debugs it: it cannot be stopped. */
	if (bpf_core_field_exists(task->thread_info.cpu) && !BPF_CORE_READ(task, ptrace))
		bpf_loop(STOP_LOOKS, look_for_stop, &stop, 0);
}

/* Tells the holder of a program that may be node. */
static __always_inline void announce(struct task_struct *task)
{
	struct inode *inode = BPF_CORE_READ(task, mm, exe_file, f_inode);
	struct program p;
	__u32 pid;

	if (!inode || BPF_CORE_READ(inode, i_size) < LARGE_PROGRAM)
		return;
	pid = process_number(task);
	if (!pid)
		return;
	p = program_of(inode);
	if (bpf_map_lookup_elem(&not_node, &p))
		return;
	struct execution *e = bpf_ringbuf_reserve(&executions, sizeof(*e), 0);

	if (!e) {
		count(COUNTER_RING_FULL, 1);
		return;
	}
	e->program = p;
	e->pid = pid;
	e->unused = 0;
	bpf_ringbuf_submit(e, BPF_RB_FORCE_WAKEUP);
	if (stopper.task && (!stopper.holds_execs || !executes_known_node(task)))
		await_stop(task);
}

#define EBADF 9

/*
 * Run by the holder: tells which image an open file of its has. Here and not there, for only the kernel's own number of a device is that of a program
 * which is executed: btrfs and overlayfs tell another one to who asks by stat.
 */
SEC("raw_tp")
int set_image_file(struct bpf_raw_tracepoint_args *arguments)
{
	struct file *open = file_at(arguments->args[0]);
	__u32 image = arguments->args[1];
	struct file_key file;

	if (!open)
		return -EBADF;
	file = file_of(BPF_CORE_READ(open, f_inode));
	return bpf_map_update_elem(&image_files, &file, &image, BPF_ANY);
}

/* The state of a thread that need not be the current one: a helper reads the word (see has_storage). */
static __always_inline struct thread *thread_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, bpf_storage) ? bpf_task_storage_get(&threads, task, 0, 0) : 0;
}

/*
 * Which of several processes of one number it is. The kernel counts on and begins anew: between two processes of one number one is made whose number is no higher than
 * that of the one before it. (Told modulo 256; of processes that are made at the same time some count more than they need.)
 */
static __u32 last_process;
static __u8 last_round = 1; /* 0 is that of the first process */

static __always_inline __u8 round_of(__u32 pid)
{
	if (pid <= last_process)
		last_round++;
	last_process = pid;
	return last_round;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct thread *t = thread_of(parent), *n;
	__u32 pid;

	if (!t)
		return 0;
	pid = process_number(child);
	if (host && pid != t->pid)
		return 0;
	n = bpf_task_storage_get(&threads, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!n) {
		count(COUNTER_NO_STATE, 1);
		return 0;
	}
	reset_stack(n);
	n->traced = t->traced;
	n->phase = pid == t->pid ? t->phase : 0;
	n->round = pid == t->pid ? t->round : round_of(pid);
	n->image = t->image;
	n->code_start = t->code_start;
	n->stack_start = t->stack_start;
	n->serial = 0;
	n->pid = pid;
	n->tid = thread_number(child);
	RESERVE(record_fork, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_FORK, bpf_ktime_get_ns());
	r->header.kind = n->round;
	r->child_pid = pid;
	r->child_tid = n->tid;
	bpf_ringbuf_submit(r, wake_flag());
	return 0;
}

/* Numbers of linux/auxvec.h. */
#define AT_BASE		7
#define AT_SYSINFO_EHDR 33
/* Entries of the auxiliary vector, AT_NULL not counted; Linux 6.18 has 24. */
#define AUXILIARY_VALUES 32

/* Writes where an exec has put the program, its interpreter and the kernel's own code. */
static __always_inline void describe_exec(struct thread *t, struct task_struct *task)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct file_key file;
	__u32 *image;

	RESERVE(record_mapping, r);
	if (!r)
		return;
	fill_header(&r->header, t, RECORD_MAPPING, bpf_ktime_get_ns());
	r->header.kind = MAPPING_EXEC;
	r->start = t->code_start;
	r->size = BPF_CORE_READ(mm, end_code) - r->start;
	r->offset = 0;
	r->interpreter = 0;
	r->vdso = 0;
	for (int i = 0; i < AUXILIARY_VALUES; i++) {
		__u64 entry[2] = {};

		if (bpf_probe_read_kernel(entry, sizeof(entry), &mm->saved_auxv[2 * i]) ||
		    !entry[0])
			break;
		if (entry[0] == AT_BASE)
			r->interpreter = entry[1];
		else if (entry[0] == AT_SYSINFO_EHDR)
			r->vdso = entry[1];
	}
	describe_file(r, BPF_CORE_READ(mm, exe_file));
	bpf_ringbuf_submit(r, wake_flag());
	file = file_of(BPF_CORE_READ(mm, exe_file, f_inode));
	image = bpf_map_lookup_elem(&image_files, &file);
	t->image = image ? *image : 0;
}

/* Writes the environment that an exec has given the program into a record with room for `room` bytes, a power of two. */
#define WRITE_ENVIRONMENT(type_, room)                                                             \
	do {                                                                                       \
		struct type_ *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);                    \
		if (!r)                                                                            \
			return 0;                                                                  \
		fill_header(&r->header, t, RECORD_ENVIRONMENT, bpf_ktime_get_ns());                \
		r->duration = r->result = r->descriptor = 0;                                       \
		n &= (room)-1;                                                                     \
		r->length = n;                                                                     \
		if (bpf_probe_read_user(r->text, n, (void *)start)) {                              \
			r->length = 0;                                                             \
			r->header.flags |= RECORD_NO_TEXT;                                         \
		}                                                                                  \
		bpf_ringbuf_submit(r, wake_flag());                                                \
	} while (0)

/*
 * A short program has ended before anybody could read it there. A longer one is not written, nor one that finds no room: it is read of the process then,
 * if that still runs.
 */
__noinline int write_environment(struct thread *t, __u64 start, __u64 n)
{
	if (!t || n >= ENVIRONMENT_BYTES)
		return 0;
	if (n < TEXT_LARGE)
		WRITE_ENVIRONMENT(record_text_large, TEXT_LARGE);
	else
		WRITE_ENVIRONMENT(record_environment, ENVIRONMENT_BYTES);
	return 0;
}

/* A thread whose calls will never return, and when that is. */
struct leaving {
	struct thread *thread;
	__u64 now;
};

static long close_frame(__u32 index, struct leaving *leaving)
{
	return abandon_frame(leaving->thread, leaving->now) < 0;
}

static __always_inline void close_frames(struct thread *t)
{
	struct leaving leaving = {.thread = t, .now = bpf_ktime_get_ns()};

	bpf_loop(MAX_DEPTH, close_frame, &leaving, 0);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	struct thread *t = thread_of(task);
	__u64 start, end, n;

	if (t) {
		/* The calls that led to it never return. */
		close_frames(t);
		flush_counters(t);
		flush_tallies(t);
	}
	if (host && (!t || !executes_known_node(task))) {
		if (t)
			bpf_task_storage_delete(&threads, task);
		announce(task);
		return 0;
	}
	if (!t)
		return 0;
	if (owned && !is_owners(task)) {
		count(COUNTER_FOREIGN, 1);
		bpf_task_storage_delete(&threads, task);
		return 0;
	}
	if (!host)
		announce(task);
	reset_stack(t);
	t->traced = 1;
	t->phase = t->phase ? PHASE_LATER_IMAGE : 0;
	t->settled = 0;
	t->syscall_start = 0;
	t->image = t->known = 0;
	t->code_start = BPF_CORE_READ(task, mm, start_code);
	t->stack_start = BPF_CORE_READ(task, mm, start_stack);
	t->serial = 0;
	t->events = 0;
	t->last_start = 0;
	t->requirer = t->loaded = t->resumed = t->announced = t->call_at = 0;
	t->onward_sp = 0;
	t->pid = process_number(task);
	t->tid = thread_number(task);
	RESERVE(record_text_large, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_EXEC, bpf_ktime_get_ns());
	r->duration = 0;
	r->descriptor = BPF_CORE_READ(task, cred, euid.val); /* as whom it runs from now on */
	/* The path, a NUL, then the arguments as they lie in memory, each with its NUL. */
	__s64 path = bpf_probe_read_kernel_str(r->text, TEXT_LARGE / 2 - 1,
					       BPF_CORE_READ(bprm, filename));

	if (path < 1)
		path = 1;
	if (path == TEXT_LARGE / 2 - 1)
		r->header.flags |= RECORD_TRUNCATED;
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
	if (host) {
		start = BPF_CORE_READ(task, mm, env_start);
		n = BPF_CORE_READ(task, mm, env_end) - start;
	}
	/* What is too long for us the reader must read at once. */
	bpf_ringbuf_submit(r, host && n >= ENVIRONMENT_BYTES ? BPF_RB_FORCE_WAKEUP : wake_now());
	if (host)
		write_environment(t, start, n);
	if (record_mappings)
		describe_exec(t, task);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	struct thread *t = thread_of(task);

	if (!t)
		return 0;
	close_frames(t);
	flush_counters(t);
	flush_tallies(t);
	RESERVE(record_exit, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_EXIT, bpf_ktime_get_ns());
	r->last = BPF_CORE_READ(task, signal, live.counter) == 0;
	/* Of several threads that end at once each may be told as the last one: what wait(2) tells is that of none of them. */
	r->exit_code = r->last ? BPF_CORE_READ(task, signal, group_exit_code) : task->exit_code;
	r->user = task->utime;
	r->system = task->stime;
	r->runtime = BPF_CORE_READ(task, se.sum_exec_runtime);
	r->max_rss = BPF_CORE_READ(task, signal, maxrss);
	bpf_ringbuf_submit(r, wake_flag());
	return 0;
}

#endif
