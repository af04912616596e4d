/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which file's code lies where. Names of functions are looked up after the process has ended, so a file's path and
 * identity are read here, from the kernel's own structures.
 *
 * The programs at system calls know no kernel types. on_exec, which does, and which comes before any mapping, notes
 * where the fields lie. (A tail call to a program that knows them would do as well, but takes from its caller the
 * private stack that newer kernels give it.)
 */
#ifndef NODEPROF_MAPPINGS_H
#define NODEPROF_MAPPINGS_H

/* Components and mount points on the way up; PATH_MAX allows more, nobody has them. */
#define PATH_STEPS 64
#define NAME_BYTES 256 /* NAME_MAX and a NUL */
/* All components but the last. */
#define PATH_BYTES 2048
_Static_assert(PATH_BYTES + NAME_BYTES <= TEXT_LARGE, "the text of a record_mapping");

/* Offsets of fields, named STRUCT_FIELD after the kernel's. */
struct file_layout {
	__u32 task_files, files_fdt, fdtable_fd, fdtable_max_fds;
	__u32 file_inode, file_mnt, file_dentry;
	__u32 inode_ino, inode_size;
	__u32 vfsmount_root, mount_vfsmount, mount_parent, mount_mountpoint;
	__u32 dentry_parent, dentry_name;
	__u32 known;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct file_layout);
} file_layouts SEC(".maps");

/* 1 + the index of the image of a node binary: known at its exec, before the first probe is hit. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_IMAGES);
	__type(key, struct file_key);
	__type(value, __u32);
} image_files SEC(".maps");

#ifndef NODEPROF_MAPS_ONLY

static __always_inline struct file_layout *file_layout(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&file_layouts, &only);
}

static __noinline __u64 kernel_word(__u64 address)
{
	__u64 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), (void *)address);
	return v;
}

struct path_walk {
	struct record_mapping *record;
	struct file_layout *layout;
	__u64 mount, entry; /* struct vfsmount, struct dentry */
	__u32 at;
	bool whole;
};

static long step_up(__u32 index, struct path_walk *w)
{
	struct file_layout *l = w->layout;
	__u64 parent = kernel_word(w->entry + l->dentry_parent);
	__u32 at = w->at;
	long length;

	if (w->entry == kernel_word(w->mount + l->vfsmount_root) || w->entry == parent) {
		__u64 inner = w->mount - l->mount_vfsmount;
		__u64 outer = kernel_word(inner + l->mount_parent);

		if (outer == inner || !outer) {
			w->whole = true;
			return 1;
		}
		w->entry = kernel_word(inner + l->mount_mountpoint);
		w->mount = outer + l->mount_vfsmount;
		return 0;
	}
	if (at >= PATH_BYTES)
		return 1;
	asm volatile("%0 &= %1" : "+r"(at) : "i"(PATH_BYTES - 1));
	length = bpf_probe_read_kernel_str(w->record->text + at, NAME_BYTES,
					   (void *)kernel_word(w->entry + l->dentry_name));
	if (length < 0)
		return 1;
	w->at = at + length;
	w->entry = parent;
	return 0;
}

/* `file`: a struct file. */
static __always_inline void describe_file(struct record_mapping *r, struct file_layout *l,
					  __u64 file)
{
	struct path_walk w = {.record = r, .layout = l};
	__u64 inode = kernel_word(file + l->file_inode);

	w.mount = kernel_word(file + l->file_mnt);
	w.entry = kernel_word(file + l->file_dentry);
	bpf_loop(PATH_STEPS, step_up, &w, 0);
	r->length = w.at;
	r->whole = w.whole;
	r->inode = kernel_word(inode + l->inode_ino);
	r->file_size = kernel_word(inode + l->inode_size);
}

/* Numbers of asm-generic/mman-common.h. */
#define PROT_EXEC     4
#define MAP_ANONYMOUS 0x20

/* The end of an mmap. By itself, so that its variables are not on the stack of a walk. */
static __noinline int note_mmap(struct thread *t, struct pt_regs *regs, __u64 start)
{
	__u64 files, table;
	__u32 descriptor = kernel_register(&regs->r8);
	struct file_layout *l = file_layout();

	if (!l || !l->known || !(kernel_register(&regs->dx) & PROT_EXEC) ||
	    kernel_register(&regs->r10) & MAP_ANONYMOUS)
		return 0;
	files = kernel_word(bpf_get_current_task() + l->task_files);
	table = kernel_word(files + l->files_fdt);
	if (descriptor >= (__u32)kernel_word(table + l->fdtable_max_fds))
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
	describe_file(r, l, kernel_word(kernel_word(table + l->fdtable_fd) + descriptor * 8ULL));
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
