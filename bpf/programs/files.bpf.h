/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * File operations, by raw syscall tracepoints. Everything is read at the exit: by then the kernel itself
 * has faulted in the path, which at the entry may not be readable without sleeping.
 */
#ifndef NODEPROF_FILES_H
#define NODEPROF_FILES_H

/* Times of system calls are taken. */
volatile const bool time_files = true;

/*
 * Before Linux 6.9 the loader can name main threads alone, so it follows a process no longer by taking the state of that one away. Others see then that they
 * are left, before they would write anything.
 */
volatile const bool names_leaders_only = false;

/* Of asm/thread_info.h: the thread is in a system call of 32-bit programs, whether it runs 32-bit code or not. */
#define TS_COMPAT 2

/* Whether the number of the system call that a thread is in is one of i386, which means another one on x86-64. */
static __always_inline bool calls_as_i386(struct task_struct *task)
{
	return task->thread_info.status & TS_COMPAT;
}

/* x86-64 numbers; see asm/unistd_64.h. */
enum syscall {
	SYS_READ = 0,
	SYS_OPEN = 2,
	SYS_CLOSE = 3,
	SYS_STAT = 4,
	SYS_FSTAT = 5,
	SYS_LSTAT = 6,
	SYS_MMAP = 9,
	SYS_MUNMAP = 11,
	SYS_PREAD64 = 17,
	SYS_READV = 19,
	SYS_ACCESS = 21,
	SYS_MREMAP = 25,
	SYS_CHDIR = 80,
	SYS_FCHDIR = 81,
	SYS_CREAT = 85,
	SYS_READLINK = 89,
	SYS_OPENAT = 257,
	SYS_NEWFSTATAT = 262,
	SYS_READLINKAT = 267,
	SYS_FACCESSAT = 269,
	SYS_PREADV = 295,
	SYS_STATX = 332,
	SYS_IO_URING_SETUP = 425,
	SYS_OPENAT2 = 437,
	SYS_FACCESSAT2 = 439,
};

/* Where the operands of a syscall are. */
enum operand { OPERAND_NONE, OPERAND_DESCRIPTOR, OPERAND_PATH, OPERAND_DIRECTORY_AND_PATH };

static __always_inline enum operand operand_of(long number)
{
	switch (number) {
	case SYS_READ:
	case SYS_CLOSE:
	case SYS_FSTAT:
	case SYS_PREAD64:
	case SYS_READV:
	case SYS_PREADV:
	case SYS_FCHDIR:
		return OPERAND_DESCRIPTOR;
	case SYS_OPEN:
	case SYS_STAT:
	case SYS_LSTAT:
	case SYS_ACCESS:
	case SYS_CHDIR:
	case SYS_CREAT:
	case SYS_READLINK:
		return OPERAND_PATH;
	case SYS_OPENAT:
	case SYS_NEWFSTATAT:
	case SYS_READLINKAT:
	case SYS_FACCESSAT:
	case SYS_STATX:
	case SYS_OPENAT2:
	case SYS_FACCESSAT2:
		return OPERAND_DIRECTORY_AND_PATH;
	default:
		return OPERAND_NONE;
	}
}

static __always_inline bool opens(long number)
{
	return number == SYS_OPEN || number == SYS_CREAT || number == SYS_OPENAT ||
	       number == SYS_OPENAT2;
}

/* IORING_SETUP_SQPOLL of linux/io_uring.h: libuv's ring for file operations has it, its ring for epoll_ctl not. */
#define SETUP_SQPOLL 2
/* Offset of flags in struct io_uring_params, after sq_entries and cq_entries. */
#define PARAMS_FLAGS 8

static __always_inline bool uses_ring_for_files(struct pt_regs *regs)
{
	__u32 flags = 0;

	bpf_probe_read_user(&flags, sizeof(flags), (void *)(regs->si + PARAMS_FLAGS));
	return flags & SETUP_SQPOLL;
}

static __always_inline bool changes_mappings(long number)
{
	return number == SYS_MMAP || number == SYS_MUNMAP || number == SYS_MREMAP;
}

static __always_inline int note_mapping(struct pt_regs *regs, struct thread *t, long number,
					__s64 result)
{
	if (result < 0 && result > -4096)
		return 0;
	if (number == SYS_MMAP)
		return note_mmap(t, regs, result);
	return note_unmap(t, regs, number == SYS_MREMAP ? result : 0);
}

/* When a system call begins; attached only where times are wanted. */
SEC("tp_btf/sys_enter")
int BPF_PROG(on_syscall_enter, struct pt_regs *regs, long number)
{
	struct thread *t = thread_here();

	if (!t || !t->traced || !record_files || operand_of(number) == OPERAND_NONE ||
	    calls_as_i386(bpf_get_current_task_btf()))
		return 0;
	t->syscall_start = bpf_ktime_get_ns();
	return 0;
}

/*
 * What tells an open file from others, whatever descriptor of whatever process leads to it: duplicates and those that a child has inherited are the
 * same. 0: there is none. Where the memory of a closed one serves another, that has another inode.
 */
static __noinline __u32 open_file(__u32 descriptor)
{
	struct file *file = file_at(descriptor);
	struct inode *inode;
	__u64 hash;

	if (!file)
		return 0;
	/* bpf_rdonly_cast would spare the helpers, but to resolve it takes libbpf 26 ms each time the programs are loaded. */
	inode = BPF_CORE_READ(file, f_inode);
	hash = ((__u64)file >> 4 ^ BPF_CORE_READ(inode, i_ino) << 40) * 0x9e3779b97f4a7c15ULL;
	hash ^= (__u64)BPF_CORE_READ(inode, i_sb, s_dev) * 0xbf58476d1ce4e5b9ULL;
	hash = hash >> 32;
	return hash ? hash : 1;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_syscall_exit, struct pt_regs *regs, long result)
{
	struct thread *t = thread_here();
	__u64 now, start, pointer = 0;
	struct text_head h = {};
	long number, open;

	if (!t || !t->traced || calls_as_i386(bpf_get_current_task_btf()))
		return 0;
	number = regs->orig_ax;
	if (record_mappings && changes_mappings(number))
		return note_mapping(regs, t, number, result);
	if (!record_files)
		return 0;
	if (number == SYS_IO_URING_SETUP && result >= 0 && uses_ring_for_files(regs)) {
		RESERVE(record_span, r);
		if (r) {
			fill_header(&r->header, t, RECORD_IO_URING, bpf_ktime_get_ns());
			r->duration = 0;
			bpf_ringbuf_submit(r, wake_flag());
		}
	}
	if (operand_of(number) == OPERAND_NONE)
		return 0;
	if (names_leaders_only && t->tid != t->pid && is_left(t)) {
		bpf_task_storage_delete(&threads, bpf_get_current_task_btf());
		return 0;
	}
	now = bpf_ktime_get_ns();
	start = now;
	if (time_files) {
		start = t->syscall_start;
		t->syscall_start = 0;
		if (!start) {
			if (result >= 0)
				return 0; /* it had begun before anybody looked */
			/* Of what a seccomp filter refuses the kernel tells the exit alone; so it is of a call that had begun before, and failed. */
			start = now;
		}
	}
	count_syscall(t);
	h.descriptor = regs->di;
	switch (operand_of(number)) {
	case OPERAND_DESCRIPTOR:
		break;
	case OPERAND_PATH:
		h.descriptor = -100; /* AT_FDCWD */
		pointer = regs->di;
		break;
	default:
		pointer = regs->si;
	}
	fill_header(&h.header, t, RECORD_FILE, start);
	h.header.id = number;
	h.header.stack = crossing_stack(t);
	h.duration = now - start;
	h.result = result;
	/* After a close it is another one's, or none's. Half of all operations are on a path alone. */
	open = opens(number) ? result : h.descriptor;
	if (number != SYS_CLOSE && open >= 0)
		h.header.extra = open_file(open);
	if (!pointer) {
		struct text_head *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);

		if (!r) {
			count(COUNTER_RING_FULL, 1);
			return 0;
		}
		*r = h;
		bpf_ringbuf_submit(r, wake_flag());
		return 0;
	}
	write_text(t, &h, pointer, -1);
	return 0;
}

#endif
