/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which file's code lies where. Names of functions are looked up after the process has ended, so a file's path and
 * identity are read here, from the kernel's own structures.
 */
#ifndef NODEPROF_MAPPINGS_H
#define NODEPROF_MAPPINGS_H

/* Components and mount points on the way up; PATH_MAX allows more, nobody has them. */
#define PATH_STEPS 64
#define NAME_BYTES 256 /* NAME_MAX and a NUL */
/* All components but the last. */
#define PATH_BYTES 2048
_Static_assert(PATH_BYTES + NAME_BYTES <= TEXT_LARGE, "the text of a record_mapping");

/* 1 + the index of the image of a node binary: known at its exec, before the first probe is hit. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_IMAGES);
	__type(key, struct file_key);
	__type(value, __u32);
} image_files SEC(".maps");

#ifndef NODEPROF_MAPS_ONLY

static __always_inline struct file_key file_of(struct inode *inode)
{
	struct file_key file = {
		.inode = BPF_CORE_READ(inode, i_ino),
		.size = BPF_CORE_READ(inode, i_size),
		.device = BPF_CORE_READ(inode, i_sb, s_dev),
	};

	return file;
}

struct path_walk {
	struct record_mapping *record;
	struct vfsmount *mount;
	struct dentry *entry;
	__u32 at;
	bool whole;
};

static long step_up(__u32 index, struct path_walk *w)
{
	struct vfsmount *mount = w->mount;
	struct dentry *entry = w->entry, *parent = BPF_CORE_READ(entry, d_parent);
	__u32 at = w->at;
	long length;

	if (entry == BPF_CORE_READ(mount, mnt_root) || entry == parent) {
		struct mount *inner = (void *)mount - bpf_core_field_offset(struct mount, mnt);
		struct mount *outer = BPF_CORE_READ(inner, mnt_parent);

		if (outer == inner || !outer) {
			w->whole = true;
			return 1;
		}
		w->entry = BPF_CORE_READ(inner, mnt_mountpoint);
		w->mount = &outer->mnt;
		return 0;
	}
	if (at >= PATH_BYTES)
		return 1;
	asm volatile("%0 &= %1" : "+r"(at) : "i"(PATH_BYTES - 1));
	length = bpf_probe_read_kernel_str(w->record->text + at, NAME_BYTES,
					   BPF_CORE_READ(entry, d_name.name));
	if (length < 0)
		return 1;
	w->at = at + length;
	w->entry = parent;
	return 0;
}

static __always_inline void describe_file(struct record_mapping *r, struct file *file)
{
	struct path_walk w = {
		.record = r,
		.mount = BPF_CORE_READ(file, f_path.mnt),
		.entry = BPF_CORE_READ(file, f_path.dentry),
	};

	bpf_loop(PATH_STEPS, step_up, &w, 0);
	r->length = w.at;
	r->whole = w.whole;
	r->inode = BPF_CORE_READ(file, f_inode, i_ino);
	r->file_size = BPF_CORE_READ(file, f_inode, i_size);
}

/* What a descriptor of the current process has open; 0: nothing. */
static __noinline struct file *file_at(__u32 descriptor)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = 0;

	if (descriptor < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + descriptor);
	return file;
}

/* Numbers of asm-generic/mman-common.h. */
#define PROT_EXEC     4
#define MAP_ANONYMOUS 0x20

/* The end of an mmap. By itself, so that its variables are not on the stack of a walk. */
static __noinline int note_mmap(struct thread *t, struct pt_regs *regs, __u64 start)
{
	struct file *file;

	if (!(kernel_register(&regs->dx) & PROT_EXEC) ||
	    kernel_register(&regs->r10) & MAP_ANONYMOUS)
		return 0;
	file = file_at(kernel_register(&regs->r8));
	if (!file)
		return 0;
	RESERVE(record_mapping, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_MAPPING, bpf_ktime_get_ns());
	r->header.kind = MAPPING_MMAP;
	r->start = start;
	r->size = kernel_register(&regs->si);
	r->offset = kernel_register(&regs->r9);
	r->interpreter = 0;
	r->vdso = 0;
	describe_file(r, file);
	bpf_ringbuf_submit(r, wake_flag());
	return 0;
}

/* The end of a munmap or mremap; `to`: 0 or where it lies now. */
static __noinline int note_unmap(struct thread *t, struct pt_regs *regs, __u64 to)
{
	RESERVE(record_unmap, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_UNMAP, bpf_ktime_get_ns());
	r->start = kernel_register(&regs->di);
	r->size = kernel_register(&regs->si);
	r->to = to;
	r->to_size = to ? kernel_register(&regs->dx) : 0;
	bpf_ringbuf_submit(r, wake_flag());
	return 0;
}

#endif
#endif
