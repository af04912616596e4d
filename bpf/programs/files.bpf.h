/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * File operations, by raw syscall tracepoints. Everything is read at the exit: by then the kernel itself
 * has faulted in the path, which at the entry may not be readable without sleeping.
 */
#ifndef NODEPROF_FILES_H
#define NODEPROF_FILES_H

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

/* IORING_SETUP_SQPOLL of linux/io_uring.h: libuv's ring for file operations has it, its ring for epoll_ctl not. */
#define SETUP_SQPOLL 2
/* Offset of flags in struct io_uring_params, after sq_entries and cq_entries. */
#define PARAMS_FLAGS 8

static __always_inline bool uses_ring_for_files(struct bpf_raw_tracepoint_args *ctx)
{
	struct pt_regs *regs = (void *)ctx->args[0]; /* of the kernel's memory: read by helper */
	__u32 flags = 0;

	bpf_probe_read_user(&flags, sizeof(flags),
			    (void *)(kernel_register(&regs->si) + PARAMS_FLAGS));
	return flags & SETUP_SQPOLL;
}

static __always_inline bool changes_mappings(long number)
{
	return number == SYS_MMAP || number == SYS_MUNMAP || number == SYS_MREMAP;
}

static __always_inline int note_mapping(struct bpf_raw_tracepoint_args *ctx, struct thread *t,
					long number)
{
	struct pt_regs *regs = (void *)ctx->args[0]; /* of the kernel's memory: read by helper */
	__s64 result = ctx->args[1];

	if (result < 0 && result > -4096)
		return 0;
	if (number == SYS_MMAP)
		return note_mmap(t, regs, result);
	return note_unmap(t, regs, number == SYS_MREMAP ? result : 0);
}

SEC("raw_tp/sys_enter")
int on_syscall_enter(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread *t = thread_of(bpf_get_current_task_btf());
	long number;

	if (!t || !t->traced)
		return 0;
	number = ctx->args[1];
	if (record_mappings && changes_mappings(number))
		t->syscall = number;
	if (!record_files)
		return 0;
	if (number == SYS_IO_URING_SETUP && uses_ring_for_files(ctx)) {
		RESERVE(record_span, r);
		if (r) {
			fill_header(&r->header, t, RECORD_IO_URING, bpf_ktime_get_ns());
			r->duration = 0;
			bpf_ringbuf_submit(r, wake_flag());
		}
	}
	if (operand_of(number) == OPERAND_NONE)
		return 0;
	t->syscall = number;
	t->syscall_start = bpf_ktime_get_ns();
	return 0;
}

SEC("raw_tp/sys_exit")
int on_syscall_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread *t = thread_of(bpf_get_current_task_btf());
	struct pt_regs *regs;
	__u64 now, pointer = 0;
	struct text_head h = {};
	__s32 descriptor = -1;
	long number;

	if (!t || t->syscall < 0)
		return 0;
	number = t->syscall;
	t->syscall = -1;
	if (changes_mappings(number))
		return note_mapping(ctx, t, number);
	count(COUNTER_SYSCALLS, 1);
	now = bpf_ktime_get_ns();
	regs = (void *)ctx->args[0]; /* of the kernel's memory: read by helper */
	switch (operand_of(number)) {
	case OPERAND_DESCRIPTOR:
		descriptor = kernel_register(&regs->di);
		break;
	case OPERAND_PATH:
		descriptor = -100; /* AT_FDCWD */
		pointer = kernel_register(&regs->di);
		break;
	default:
		descriptor = kernel_register(&regs->di);
		pointer = kernel_register(&regs->si);
	}
	fill_header(&h.header, t, RECORD_FILE, t->syscall_start);
	h.header.id = number;
	h.header.stack = crossing_stack(t);
	h.duration = now - t->syscall_start;
	h.result = ctx->args[1];
	h.descriptor = descriptor;
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
