/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* WebAssembly: which code is whose, and what names its functions. */
#ifndef NODEPROF_WASM_H
#define NODEPROF_WASM_H

/* Sections of a module that are looked at: a dozen kinds, and those that compilers add, one per kind of debug data. */
#define MOST_SECTIONS 128
/* Parts of the section of names: eleven kinds. */
#define MOST_NAME_PARTS 16
/* How the section of names begins: the length of what it is called, and that: "name". */
#define SECTION_NAME 0x656d616e04ULL
/* What precedes the first section: a magic number and the version. */
#define WASM_HEAD 8
/* Of the names of a module so many pieces of LARGEST_TEXT are taken, 4 MB: esbuild, made of 8 MB of Go, has 1 MB of them. */
#define NAME_SLICES 16

/* What of a module's bytes lies where, while one looks for the names of its functions. */
struct sections {
	__u64 at, end;
	__u8 wanted;  /* id of the section or of the part */
	bool by_name; /* it is named "name" besides */
	__u64 size;   /* of what was found, from `at` on; 0: nothing was */
};

/*
 * A number in groups of seven bits, the lowest first, each but the last with the eighth bit set: its bytes. Of five groups at most, in the lower
 * bytes of a word. Without a branch: the verifier would follow each for all that comes later.
 */
static __always_inline __u32 number_bytes(__u64 word)
{
	__u64 last = ~word & 0x8080808080ULL;

	/* The lowest bit that is set, and all below it. */
	last ^= last - 1;
	return (last >> 7 & 1) + (last >> 15 & 1) + (last >> 23 & 1) + (last >> 31 & 1) +
	       (last >> 39 & 1);
}

static __always_inline __u64 number_value(__u64 word, __u32 bytes)
{
	word &= (1ULL << (bytes & 7) * 8) - 1;
	return (word & 0x7f) | (word >> 1 & 0x3f80) | (word >> 2 & 0x1fc000) |
	       (word >> 3 & 0xfe00000) | (word >> 4 & 0x7f0000000ULL);
}

/* One section, or one part of the section of names: an id, its size, its content. */
static long next_section(__u32 index, struct sections *s)
{
	__u64 size, left = s->end - s->at, name = 0, word = 0;
	__u32 n;

	if (s->at >= s->end)
		return 1;
	if (left > sizeof(word))
		left = sizeof(word);
	if (bpf_probe_read_user(&word, left, (void *)s->at))
		return 1;
	n = number_bytes(word >> 8);
	size = number_value(word >> 8, n);
	s->at += n + 1;
	if (size > s->end - s->at)
		return 1;
	if ((word & 255) == s->wanted) {
		if (!s->by_name) {
			s->size = size;
			return 1;
		}
		if (size > 5 && !bpf_probe_read_user(&name, 5, (void *)s->at) &&
		    name == SECTION_NAME) {
			s->at += 5;
			s->size = size - 5;
			return 1;
		}
	}
	s->at += size;
	return 0;
}

/* Of more text than one write_long_text takes. */
static long write_slice(__u32 index, struct pieces *all)
{
	__u64 at = (__u64)index * LARGEST_TEXT;
	struct pieces p = {.thread = all->thread, .head = all->head};

	if (at >= all->length)
		return 1;
	if (bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) >
	    bpf_ringbuf_query(&records, BPF_RB_RING_SIZE) / 2)
		return 1;
	p.from = all->from + at;
	p.length = all->length - at;
	p.base = at;
	bpf_loop(LARGEST_TEXT / PIECE_BYTES, write_piece, &p, 0);
	return p.lost;
}

/* Writes the names of a module's functions, if its bytes have any. */
static __always_inline void write_wasm_names(struct thread *t, __u64 module, __u64 bytes,
					     __u64 time)
{
	struct sections s = {.by_name = true};
	struct text_head h = {};
	struct pieces names = {};

	s.at = read_word(bytes);
	s.end = s.at + read_word(bytes + 8);
	if (!s.at || s.end < s.at)
		return;
	s.at += WASM_HEAD;
	bpf_loop(MOST_SECTIONS, next_section, &s, 0);
	if (!s.size)
		return;
	/* The names of functions are its part with the id 1. */
	s.end = s.at + s.size;
	s.size = 0;
	s.by_name = false;
	s.wanted = 1;
	bpf_loop(MOST_NAME_PARTS, next_section, &s, 0);
	if (!s.size)
		return;
	fill_header(&h.header, t, RECORD_WASM_NAMES, time);
	h.header.id = module;
	h.descriptor = module >> 32;
	h.duration = s.size;
	names.thread = t;
	names.head = &h;
	names.from = s.at;
	names.length = s.size;
	bpf_loop(NAME_SLICES, write_slice, &names, 0);
}

/*
 * Writes something about a module. `kind`: of the record, and in its upper half the number that it has. `at`: of code, the place on the stack that tells where it
 * lies; of a module, that which tells where its bytes do.
 */
__noinline int write_wasm(struct thread *t, __u64 kind, __u64 module, __u64 at, __u64 time)
{
	__u64 start = 0, size = 0;

	if (!t)
		return 0;
	if ((__u32)kind == WASM_CODE) {
		start = read_word(at);
		size = read_word(at + 8);
	}
	RESERVE(record_wasm, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_WASM, time);
	r->header.kind = kind;
	r->module = module;
	r->start = start;
	r->size = size;
	r->number = kind >> 32;
	bpf_ringbuf_submit(r, wake_flag());
	if ((__u32)kind == WASM_MODULE)
		write_wasm_names(t, module, at, time);
	return 0;
}

/* Writes the script that V8 has made of a module, or has made before. */
__noinline int write_wasm_script(struct thread *t, __u64 module, __u64 script, __u64 time)
{
	__u32 binary = t ? t->image - 1 : 0, number;
	struct image *image = bpf_map_lookup_elem(&images, &binary);
	struct function_key key = {};

	if (!t || !image || !image->function_shared || instance_type(script) != image->script_type)
		return 0;
	t->first_nonstring = image->first_nonstring;
	key.script = read_word(script - 1 + image->script_id) >> 32;
	key.thread = keys_thread(t, image, script);
	number = script_number(t, image, script, key);
	if (number)
		write_wasm(t, WASM_SCRIPT | (__u64)number << 32, module, 0, time);
	return 0;
}

#endif
