/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Optimised code: where it lies, what is inlined in it, and that it was moved. */
#ifndef NODEPROF_CODE_H
#define NODEPROF_CODE_H

/* In place of a thread: a process, and the script's upper half tells the isolate. */
#define KEY_OF_ISOLATE 0x80000000
/* Functions inlined in one piece of code: V8 stops far below. */
#define MOST_INLINED 1024
/* More bytes than there are before the instructions in the object around them. */
#define LARGEST_CODE_HEAD 256
/* What of a Code's flags tells its kind: baseline code, Maglev's and TurboFan's follow each other. */
#define CODE_KIND 15
/* In place of the number of a literal. */
#define INLINED_IN_ITSELF 0xffffffff
/* Literals of it that are looked at. */
#define MOST_LITERALS 1024

/*
 * The number of a function that optimised code was made of. The code may be made by a thread that serves several isolates: there a
 * script's number means something only together with the isolate. When an isolate has ended, another may come to lie in its place.
 */
__noinline __u32 compiled_number(struct thread *t, struct image *image, __u64 shared, __u64 closure,
				 __u64 isolate)
{
	struct function_key key = {};
	struct function_at f = {.shared = shared};
	struct map_head map = {};
	__u64 script, accessor_map = 0;
	__u32 number;
	bool fresh;

	if (!t || !image || instance_type(shared) != image->shared_type)
		return 0;
	script = read_word(shared - 1 + image->shared_script);
	if (instance_type(script) != image->script_type)
		return 0;
	key.thread = t->pid | KEY_OF_ISOLATE;
	key.script = ((isolate >> 12) ^ (read_word(script - 1 + image->script_source) >> 3)) << 32 |
		     read_word(script - 1 + image->script_id) >> 32;
	f.script = script_number(t, image, script, key);
	key.literal = read_word(shared - 1 + image->shared_flags) >> 32;
	if (closure && read_map(closure, &map) != NO_TYPE)
		f.own_name = own_name(t, image, closure, &map, &accessor_map);
	if (f.own_name)
		key.script ^= name_hash(t, f.own_name) << 32;
	number = number_of(&key, &fresh);
	if (fresh) {
		f.literal = key.literal;
		/* Where its code has no positions those of its bytecode tell the line. */
		if (!write_function(t, image, &f, number) ||
		    (image->opcodes &&
		     !write_positions(t, image, compiled_to(image, shared, COMPILED_BYTECODE),
				      number)))
			forget_number(t, &key);
	}
	return number;
}

struct inlining {
	struct thread *thread;
	struct image *image;
	__u64 positions, literals, isolate;
	__u64 shared; /* of the function that was compiled */
	__u32 code, literal_count;
	__u32 by_literal; /* how many of the literals are the inlined functions; 0: the positions tell which are */
	__u32 translated; /* it has no positions of calls */
};

/* Looks for the closure of an inlined function. */
struct closure_search {
	struct image *image;
	__u64 literals, shared, closure;
	__u32 several; /* there is more than one */
};

static long find_closure(__u32 index, struct closure_search *s)
{
	/* It may be held weakly. */
	__u64 word = read_word(s->literals + (__u64)index * 8) & ~2ULL;
	__u32 type = instance_type(word);

	if (type < s->image->first_function_type || type > s->image->last_function_type ||
	    read_word(word - 1 + s->image->function_shared) != s->shared || word == s->closure)
		return 0;
	s->several = s->closure != 0;
	s->closure = word;
	return s->several;
}

/* Writes one function that is inlined: the position of its call, and which literal of the code it is. */
static long write_inlined(__u32 index, struct inlining *in)
{
	__u64 at = in->positions + (__u64)index * 16;
	struct closure_search search = {.image = in->image, .literals = in->literals};
	__u32 literal = in->by_literal ? index : read_word(at + 8), function;

	if (literal == INLINED_IN_ITSELF)
		search.shared = in->shared;
	else if (literal < in->literal_count)
		search.shared = read_word(in->literals + (__u64)literal * 8) & ~2ULL;
	/* Where the code knows which closure is called, that is a literal, too. */
	bpf_loop(in->literal_count, find_closure, &search, 0);
	if (search.several)
		search.closure = 0;
	function =
		compiled_number(in->thread, in->image, search.shared, search.closure, in->isolate);
	RESERVE(record_inlined, r);
	if (!r)
		return 1;
	fill_header(&r->header, in->thread, RECORD_INLINED, 0);
	r->header.id = in->code;
	r->position = in->by_literal ? 0 : read_word(at);
	r->index = index;
	r->function = function;
	bpf_ringbuf_submit(r, wake_flag());
	return 0;
}

/* Writes that code of a function lies there from now on; of no known function, if `function` is 0. */
static __always_inline bool write_placed(struct thread *t, struct image *image, __u64 code,
					 struct inlining *in, __u32 function, __u32 exits,
					 __u64 time)
{
	RESERVE(record_code, r);
	if (!r)
		return false;
	fill_header(&r->header, t, RECORD_CODE, time);
	r->header.id = in->code;
	r->start = code - 1 + image->code_start;
	if (!image->code_embedded)
		r->start = read_word(r->start);
	r->size = read_word(code - 1 + image->code_size);
	r->function = function;
	r->exits = exits;
	r->opcodes = in->translated ? image->opcodes : 0;
	r->inlined = in->by_literal;
	bpf_ringbuf_submit(r, wake_flag());
	return true;
}

/*
 * Writes what tells the functions at a call where no position does: to which exit the call returns once the code is left, and the frames that
 * stand for it there. `deopt`: the first of the data for that.
 */
__noinline int write_translations(struct thread *t, struct image *image, __u64 code, __u64 deopt,
				  __u32 number)
{
	struct text_head h = {};
	__u64 behind, length;
	__u32 eager;

	if (!t || !image)
		return 0;
	fill_header(&h.header, t, RECORD_CODE_POSITIONS, 0);
	h.header.id = number;
	/* Behind the instructions; how much there is stands behind their size. */
	length = read_word(code - 1 + image->code_size);
	behind = read_word(code - 1 + image->code_start) + (__u32)length;
	h.header.kind = CODE_SAFEPOINTS;
	write_long_text(t, &h, behind, length >> 32);
	/* Behind where the exits begin: how many leave at once, how many after a call; then three words for each. */
	deopt += (image->deopt_inlining + 2) * 8;
	eager = read_word(deopt) >> 32;
	h.descriptor = eager;
	h.header.kind = CODE_EXITS;
	write_long_text(t, &h, deopt + 16 + (__u64)eager * 24, (read_word(deopt + 8) >> 32) * 24);
	deopt = read_word(deopt - (image->deopt_inlining + 2) * 8);
	h.header.kind = CODE_TRANSLATIONS;
	write_long_text(t, &h, deopt - 1 + 16, read_word(deopt - 1 + 8) >> 32);
	return 0;
}

/*
 * Writes what tells which functions are inlined at each call of code that V8 has just made. Code that is not optimised has something else
 * in place of the data for its deoptimisation; of that only where it lies.
 */
__noinline int write_code(struct thread *t, __u64 code, __u64 isolate, __u64 time)
{
	__u32 binary = t ? t->image - 1 : 0, function, bytes, exits;
	struct image *image = bpf_map_lookup_elem(&images, &binary);
	struct text_head h = {};
	struct inlining in = {.thread = t, .image = image, .isolate = isolate};
	__u64 deopt, shared, table, length, kind;

	if (!t || !image || !image->code_deopt)
		return 0;
	kind = read_word(code - 1 + image->code_flags) & CODE_KIND;
	deopt = read_word(code - 1 + image->code_deopt);
	if (instance_type(deopt) == image->bytecode_type) {
		image->baseline_kind = kind + 1;
		write_placed(t, image, code, &in, 0, 0, time);
		return 0;
	}
	t->first_nonstring = image->first_nonstring;
	deopt += 16 - 1;
	shared = read_word(deopt + image->deopt_shared * 8);
	if (image->deopt_wrapped)
		shared = read_word(shared - 1 + 8);
	function = compiled_number(t, image, shared, 0, isolate);
	if (!function) {
		write_placed(t, image, code, &in, 0, 0, time);
		return 0;
	}
	in.code = next_number(NUMBER_FUNCTION);
	in.shared = shared;
	in.literals = read_word(deopt + image->deopt_literals * 8) - 1;
	in.literal_count = read_word(in.literals + 8) >> 32;
	in.literals += 16;
	if (in.literal_count > MOST_LITERALS)
		in.literal_count = MOST_LITERALS;
	in.positions = read_word(deopt + image->deopt_inlining * 8) - 1;
	bytes = read_word(in.positions + 8) >> 32;
	in.positions += 16;
	/* Where the exits begin is told right behind the positions of inlined functions, in all versions. */
	exits = read_word(deopt + (image->deopt_inlining + 1) * 8) >> 32;
	table = read_word(code - 1 + image->code_positions);
	length = read_word(table - 1 + 8) >> 32;
	bytes /= 16;
	if (image->opcodes && (!length || (image->code_flags && kind == image->baseline_kind))) {
		in.translated = 1;
		in.by_literal = bytes = read_word(deopt + 8) >> 32;
	}
	if (bytes > MOST_INLINED)
		bytes = MOST_INLINED;
	if (!write_placed(t, image, code, &in, function, exits, time))
		return 0;
	next_number(NUMBER_CODE);
	bpf_loop(bytes, write_inlined, &in, 0);
	if (in.translated)
		return write_translations(t, image, code, deopt, in.code);
	fill_header(&h.header, t, RECORD_CODE_POSITIONS, 0);
	h.header.id = in.code;
	write_long_text(t, &h, table - 1 + 16, length);
	return 0;
}

/*
 * Writes that the instructions of some code lie elsewhere now. What has just been moved is the object around them, by one of the threads that
 * help the collector. Behind its map it has what describes it, which tells where they begin: as before, or as from now on.
 */
static __always_inline void write_code_moved(struct thread *t, __u64 object, __u64 delta,
					     __u64 time)
{
	__u32 binary = t->image - 1;
	struct image *image = bpf_map_lookup_elem(&images, &binary);
	__u64 start;

	if (!image || !image->code_deopt)
		return;
	start = object + image->code_start;
	if (!image->code_embedded)
		start = read_word(read_word(object + 8) - 1 + image->code_start);
	if (start - object >= LARGEST_CODE_HEAD)
		start += delta;
	if (start - object >= LARGEST_CODE_HEAD)
		return;
	RESERVE(record_code_moved, r);
	if (!r)
		return;
	fill_header(&r->header, t, RECORD_CODE_MOVED, time);
	r->from = start - delta;
	r->to = start;
	bpf_ringbuf_submit(r, wake_flag());
	next_number(NUMBER_MOVED);
	next_number(NUMBER_CODE); /* last: walks look at this first */
}

#endif
