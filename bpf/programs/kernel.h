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

struct super_block {
	__u32 s_dev;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
	long long i_size;
	__u32 i_generation;
};

/* The time of the last change, by kernel: up to 6.6, up to 6.10, since. */
struct timespec64 {
	long long tv_sec;
	long tv_nsec;
};
struct inode___6_6 {
	struct timespec64 i_mtime;
};
struct inode___6_7 {
	struct timespec64 __i_mtime;
};
struct inode___6_11 {
	long long i_mtime_sec;
	__u32 i_mtime_nsec;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	struct path f_path;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

/* Identity of a thread, as the kernel's own user namespace reckons it. */
typedef struct {
	__u32 val;
} kuid_t;

typedef struct {
	__u32 val;
} kgid_t;

/* Two halves up to 6.2, the lower one first. */
typedef struct {
	__u64 val;
} kernel_cap_t;

struct user_namespace {
	kuid_t owner;
};

struct cred {
	kuid_t uid, suid, euid, fsuid;
	kgid_t gid, sgid, egid, fsgid;
	kernel_cap_t cap_permitted;
	struct user_namespace *user_ns;
};

/* Its flags up to 6.17, and from 6.18 on. */
struct mm_struct___6_6 {
	unsigned long flags;
};

typedef struct {
	unsigned long __mm_flags[1];
} mm_flags_t;

struct mm_struct___6_18 {
	mm_flags_t flags;
};

struct mm_struct {
	unsigned long arg_start, arg_end;
	unsigned long env_start, env_end;
	unsigned long start_code, end_code;
	unsigned long start_stack;
	unsigned long saved_auxv[64]; /* as many as there are */
	struct file *exe_file;
};

struct signal_struct {
	atomic_t live;
	int group_exit_code;
	unsigned long maxrss; /* pages */
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

/* A thread's number in its own namespace, the last, and in each around it. */
struct pid {
	unsigned int level;
	struct upid numbers[];
};

struct bpf_local_storage;

struct thread_info {
	__u32 status, cpu;
};

struct task_struct {
	struct thread_info thread_info;
	struct pid *thread_pid;
	int pid;
	int tgid;
	int exit_code;
	unsigned int __state;
	unsigned int flags;
	unsigned int ptrace;
	unsigned long jobctl;
	unsigned int in_iowait : 1;
	__u64 utime, stime;
	struct sched_entity se;
	struct mm_struct *mm;
	const struct cred *cred;
	struct files_struct *files;
	struct signal_struct *signal;
	struct task_struct *group_leader;
	struct bpf_local_storage *bpf_storage;
};

struct linux_binprm {
	const char *filename;
	const char *interp;
};

#pragma clang attribute pop

#endif
