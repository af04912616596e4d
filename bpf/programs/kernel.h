/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The few kernel types that the programs read, instead of a generated vmlinux.h of 130,000 lines.
 * preserve_access_index lets libbpf put in the offsets of the running kernel (CO-RE), so only the
 * names and the types of the fields matter here, not their order.
 */
#ifndef NODEPROF_KERNEL_H
#define NODEPROF_KERNEL_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct mm_struct {
	unsigned long arg_start, arg_end;
};

struct signal_struct {
	atomic_t live;
	unsigned long maxrss; /* pages */
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct task_struct {
	int pid;
	int tgid;
	int exit_code;
	unsigned int flags;
	__u64 utime, stime;
	struct sched_entity se;
	struct mm_struct *mm;
	struct signal_struct *signal;
	struct task_struct *group_leader;
};

struct linux_binprm {
	const char *filename;
	const char *interp;
};

#pragma clang attribute pop

#endif
