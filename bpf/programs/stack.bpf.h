/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Mixed stacks: machine code and JavaScript, walked along the frame pointers and named while the program is there.
 *
 * A stack is a number. A RECORD_WALK tells what it means: the stack of its outer frames, and the inner ones, which take the
 * numbers that follow. From one event of a thread to the next few frames change, so a walk compares
 * what lies in the frames with what the last one found there: it reads on until the outermost frame, but only what
 * changed is looked up and written.
 *
 * A JavaScript frame's word at -8 is a context (a tagged pointer), its function lies at -16. Other frames of V8 have
 * a number there, shifted left by one; they are glue (entry, exit, arguments) and left out. JavaScript functions are
 * known by the address of their closure until the garbage collector runs (`epoch`), then by their number in their
 * script, which stays.
 */
#ifndef NODEPROF_STACK_H
#define NODEPROF_STACK_H

/* The stack is read in pieces of this size. */
#define WALK_WINDOW 4096
/* What is read of a frame, from its frame pointer on: -40 to +32. */
#define FRAME_BELOW 40
#define FRAME_BYTES 72
/* Frames that are compared in one step. */
#define COMPARED_FRAMES 4
/* Functions that a thread remembers; a power of two. */
#define WALK_FUNCTIONS 1024
/* A caller's frame lies at most this far up. */
#define FURTHEST_FRAME (16 << 20)
/* The kernel maps the code of return probes as high as it can: into the last page. */
#define RETURN_PROBE_CODE 0x7fffffffe000ULL
/* Words of the stack that are searched for a frame, where frame pointers lead no further; and how often in a walk. */
#define SEARCHED_WORDS 128
#define MOST_SEARCHES  4
/* Addresses of a program lie between. */
#define LOWEST_ADDRESS	0x10000
#define HIGHEST_ADDRESS 0x7fffffffffff
/* Each frame is seen once, and again when it is copied or skipped. */
#define WALK_STEPS (3 * WALK_FRAMES + MAX_DEPTH)

/* What a frame was found to be. */
enum raw_kind { RAW_MACHINE, RAW_INTERPRETED, RAW_CODE, RAW_BUILTIN, RAW_GLUE };

struct raw_frame {
	__u64 fp;
	__u64 pc;	/* of the call in it */
	__u64 function; /* tagged */
	__u64 position; /* the word at -40: in the interpreter the offset into the bytecode, a Smi */
	__u32 kind;
	__u32 stack; /* of this frame and those outside of it */
};

struct known_function {
	__u64 function;
	__u32 epoch;
	__u32 number; /* 0: not a function */
};

/* What a step of a walk does. */
enum walk_mode {
	WALK_NEW,     /* notes a frame, if it is not where the last walk's are */
	WALK_COMPARE, /* goes on along frames that the last walk saw */
	WALK_COPY, /* notes frames that had seemed to be the same, but are called from elsewhere */
	WALK_SEARCH, /* looks at one word of the stack: does it point to a frame? */
	WALK_CALLER, /* looks at one word below that frame: is it where its function is? */
};

/*
 * A walk under way. It lies in a map: of what lies there the verifier knows nothing, so it need not follow each value.
 */
struct walk {
	__u64 fp, pc;
	__u64 window; /* address of its first byte */
	__u32 window_bytes;
	__u32 count; /* new frames */
	__u32 flags;
	__u32 mode;
	__s32 next;  /* frame of the last walk that may come next */
	__s32 match; /* innermost frame of the last walk that is still there */
	__s32 copy, copy_until;
	__u32 stack;
	__u32 binary, builtin_exit;
	__u32 written; /* new frames but glue */
	__u64 hash;
	__u32 first;		     /* number of the outermost of them */
	bool cut, javascript, known; /* known: some frame is node's or JavaScript */
	bool inside;   /* the next frame is the one that runs, its address no return address */
	bool running;  /* so was the innermost one */
	__u32 ended;   /* no bool: the verifier must see that the callback returns 0 or 1 */
	__u8 searches; /* so far */
	__u32 back;    /* mode before the search */
	__u32 left;    /* words still to be searched */
	__u32 shadows; /* frames of the shadow stack that were not looked at */
	__u64 unknown; /* where a return address lies that nobody knows */
	__u64 from;    /* the stack below is that of frames that were seen */
	__u64 search;  /* the next word */
	__u64 kept;    /* frames above are those of the last walk, if they are reached */
	__u64 text_start, text_end, builtins_start, builtins_end;
};

/* What a thread keeps from walk to walk. */
struct walk_slot {
	__u32 owner; /* the thread's serial number */
	__u32 busy;
	__u32 epoch;
	__u32 last_count;
	__u64 last_end;			    /* the frame pointer that led no further */
	__u64 interpreter;		    /* where calls of the interpreter return to, less one */
	struct raw_frame last[WALK_FRAMES]; /* of the last walk, outermost first */
	struct raw_frame now[WALK_FRAMES];  /* what is new in this walk, innermost first */
	struct known_function functions[WALK_FUNCTIONS];
	char window[WALK_WINDOW + FRAME_BYTES];
	struct record_walk out;
	struct walk walk;
};

/* What the steps of a walk are given. */
struct walker {
	struct thread *thread;
	struct walk_slot *slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WALK_SLOTS);
	__type(key, __u32);
	__type(value, struct walk_slot);
} walks SEC(".maps");

#ifdef NODEPROF_TICKS
/* A tick may fall into a walk of the same thread. Then it walks in a slot of its CPU, of which the loader knows how many there are. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk_slot);
} tick_walks SEC(".maps");
#endif

/* New frames below a stack that are known by their hash: then the walk has a number already. */
struct walk_key {
	__u64 hash;
	__u32 thread; /* serial number */
	__u32 base;
};

/* To allocate an entry would take a microsecond of the hit, so these have memory from the start. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct walk_key);
	__type(value, __u32);
} stacks SEC(".maps");

/* Those that find no room there. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct walk_key);
	__type(value, __u32);
} more_stacks SEC(".maps");

/* JavaScript functions and scripts by what stays of them. */
struct function_key {
	/* V8's id of the script, or of a builtin; in the upper half what tells names that closures were given */
	__u64 script;
	__u32 thread; /* serial number: ids count from 1 in each isolate */
	__u32 literal;
};
#define LITERAL_IS_SCRIPT	  0xfffffffe /* the key is a script's */
#define LITERAL_IS_BUILTIN	  0xfffffffd
#define LITERAL_IS_NATIVE_BUILTIN 0xfffffffc
#define LITERAL_IS_MODULE	  0xfffffffb /* a synthetic module's, by its hash */
/* In place of a thread: a process, and the script's upper half tells the isolate. */
#define KEY_OF_ISOLATE 0x80000000
/* Functions inlined in one piece of code: V8 stops far below. */
#define MOST_INLINED 1024
/* More bytes than there are before the instructions in the object around them. */
#define LARGEST_CODE_HEAD 256
/* In place of the number of a literal. */
#define INLINED_IN_ITSELF 0xffffffff
/* Literals of it that are looked at. */
#define MOST_LITERALS 1024

/* A function that is being learnt. */
struct function_at {
	__u64 shared, own_name; /* tagged */
	__u32 script, literal;
};

/* Flags of a SharedFunctionInfo: FunctionKind, and whether a builtin is one that programs may see. */
#define KIND_MASK	  31
#define SHARED_IS_NATIVE  32
#define KIND_MODULE	  1
#define KIND_ASYNC_MODULE 2
/* Flags of a scope info: what there is of it between its variables and its outer scope. */
#define SCOPE_HAS_RECEIVER	    (3 << 7)
#define SCOPE_HAS_CLASS_VARIABLE    (1 << 10)
#define SCOPE_HAS_FUNCTION_VARIABLE (3 << 12)
#define SCOPE_HAS_INFERRED_NAME	    (1 << 14)
#define SCOPE_HAS_OUTER		    (1 << 22)
/* Which of its fields a property lies in, in the details of a descriptor. */
#define DETAILS_INDEX_SHIFT 19
#define DETAILS_INDEX_MASK  1023
/* Of a map's third word: its objects keep their properties in a dictionary. */
#define MAP_IS_DICTIONARY (1 << 21)
/* Entries of a closure's dictionary that are searched. */
#define MOST_PROPERTIES 64
/* "name" */
#define NAME_NAME 0x656d616e
/* One more than the bytes of a name that are compared; a power of two. */
#define HASHED_NAME 64
/* "js", "file:", "node:", and "js" and "file" of two bytes each. */
#define ONE_BYTE_JS   0x736aU
#define TWO_BYTE_JS   0x0073006aU
#define ONE_BYTE_FILE 0x3a656c6966ULL
#define ONE_BYTE_NODE 0x3a65646f6eULL
#define TWO_BYTE_FILE 0x0065006c00690066ULL

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct function_key);
	__type(value, __u32);
} functions SEC(".maps");

/* The last numbers given. */
struct serial_numbers {
	__u32 stack, function, thread;
	__u32 code; /* optimised code, each time it was made or moved */
	__u32 stacks_full; /* not a number: there are `more_stacks` */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct serial_numbers);
} numbers SEC(".maps");

volatile const bool record_stacks = false;

#ifndef NODEPROF_MAPS_ONLY

/* How to begin. */
#define WALK_AT_ENTRY	     1 /* at a function's first instruction: its frame is not made yet */
#define WALK_FROM_JAVASCRIPT 2 /* leave out machine code above the innermost JavaScript frame */

static __always_inline bool in_node(struct walk *w, __u64 pc)
{
	return pc >= w->text_start && pc < w->text_end &&
	       !(pc >= w->builtins_start && pc < w->builtins_end);
}

/*
 * Where a function returns to that has a return probe: code of the kernel's own at the top of memory. Only C++ functions that C++ calls
 * have return probes.
 */
static __always_inline bool is_return_probe(__u64 pc)
{
	return pc >= RETURN_PROBE_CODE - 1;
}

static __always_inline __u32 bounded(__u32 index, __u32 mask)
{
	/* As the verifier wants it, not as the compiler can prove it away. */
	asm volatile("%0 &= %1" : "+r"(index) : "r"(mask));
	return index;
}

static __always_inline void note(struct walk_slot *slot, __u64 fp, __u64 pc, __u64 function,
				 __u64 position, __u32 kind)
{
	struct raw_frame *f = &slot->now[bounded(slot->walk.count, WALK_FRAMES - 1)];

	f->fp = fp;
	f->pc = pc;
	f->function = function;
	f->position = position;
	f->kind = kind;
	slot->walk.count++;
}

/* A Smi above 0: its lower half is 0. No bytecode lies at offset 0 of its array. */
static __always_inline bool is_offset(__u64 word)
{
	return word && !(word & 0xffffffff);
}

/*
 * Whether a frame of this shape is one of the interpreter. Code that was optimised while a loop ran has taken over the interpreter's
 * frame, and left in it what lay there.
 */
static __always_inline bool is_interpreter(struct walk_slot *slot)
{
	struct walk *w = &slot->walk;
	__u64 builtins = w->builtins_end - w->builtins_start;

	/* All its calls return to one place; where that is depends on where V8 has put its builtins. */
	if (!slot->interpreter || w->pc == slot->interpreter)
		return true;
	return w->inside && w->pc - slot->interpreter + builtins < 2 * builtins;
}

static __always_inline bool is_address(__u64 word)
{
	return word >= LOWEST_ADDRESS && word <= HIGHEST_ADDRESS;
}

/* Goes to the caller's frame; false if there is none. */
static __always_inline bool step_out(struct walk *w, __u64 saved, __u64 caller)
{
	w->pc = caller - 1; /* in the call, not behind it */
	w->inside = false;
	if (saved <= w->fp || saved - w->fp > FURTHEST_FRAME || saved & 7 || !is_address(caller)) {
		/* The outermost function was called with an empty frame pointer; libc's keeps other things there. */
		w->cut = in_node(w, w->pc);
		w->fp = saved;
		return false;
	}
	w->from = w->fp + 16;
	w->fp = saved;
	return true;
}

/*
 * Where the frame pointers end, functions of a library may lie between that use the register for something else: libc's do, and
 * call back (pthread_once, qsort, exit). Or the innermost function is such a one.
 */
static __always_inline bool begin_search(struct walk *w)
{
	if (w->searches >= MOST_SEARCHES)
		return false;
	w->searches++;
	w->back = w->mode;
	w->mode = WALK_SEARCH;
	w->search = w->from;
	w->left = SEARCHED_WORDS;
	return true;
}

/* The frames that were the same so far are called from elsewhere than before: they become new ones. */
static __always_inline void leave_match(struct walk *w)
{
	w->copy = w->match;
	w->copy_until = w->next;
	w->match = -1;
	w->mode = WALK_COPY;
}

/*
 * A function that keeps a frame has pushed its caller's frame pointer: a word of the stack that points to a frame further up, whose
 * return address lies in node. The return address into the function of that frame lies above the word, behind other registers.
 */
static __always_inline long search_word(struct walk *w)
{
	__u64 at = w->search, v = read_word(at), saved;

	w->search += 8;
	if (w->mode == WALK_CALLER) {
		if (in_node(w, v - 1) || is_return_probe(v - 1)) {
			w->pc = v - 1;
		} else if (w->search < w->fp) {
			return 0;
		} else {
			/* Where it is in that function is not known: on with its caller. */
			w->from = w->fp + 16;
			w->pc = read_word(w->fp + 8) - 1;
			w->fp = read_word(w->fp);
		}
		w->mode = w->back;
		return !w->fp;
	}
	if (v > at && v - at <= FURTHEST_FRAME && !(v & 7)) {
		saved = read_word(v);
		if ((!saved || (saved > v && saved - v <= FURTHEST_FRAME)) &&
		    in_node(w, read_word(v + 8) - 1)) {
			w->fp = v;
			w->cut = false;
			w->mode = WALK_CALLER;
			return 0;
		}
	}
	if (--w->left)
		return 0;
	w->cut |= !w->known;
	if (w->back != WALK_COMPARE)
		return 1;
	leave_match(w);
	w->ended = true;
	return 0;
}

/*
 * Finds where a function with a return probe returns to: the kernel has put an address of its own in the place. The shadow stack knows
 * of functions that call others: one step along it, outwards as the walk goes.
 */
static __always_inline void find_return(struct walk *w, struct thread *t)
{
	__u64 place = w->from - 8;
	struct frame *f = frame_at(t, w->shadows - 1);

	if (f->sp > place) {
		w->unknown = place;
		return;
	}
	w->shadows--;
	if (f->sp != place)
		return;
	w->unknown = place;
	if (f->family != FRAME_SERIALIZATION && in_node(w, f->value - 1))
		w->pc = f->value - 1;
}

/*
 * Goes on along frames that are as the last walk found them, and lead to each other as they did then. Where one is not, or lies outside of what
 * has been read, or begins what is known to have stayed, it is walk_frame's turn.
 */
static __always_inline void compare_frames(struct walk_slot *slot)
{
	struct walk *w = &slot->walk;
	struct raw_frame *k = &slot->last[bounded(w->next, WALK_FRAMES - 1)], *outer;
	__s32 next = w->next;
	__u64 fp = w->fp, offset;
	char *frame;

	if (next < 0 || k->fp != fp || k->pc != w->pc)
		return;
	for (int i = 0; i < COMPARED_FRAMES; i++) {
		offset = fp - FRAME_BELOW - w->window;
		if (next <= 0 || fp > w->kept || offset > WALK_WINDOW ||
		    offset + FRAME_BYTES > w->window_bytes)
			break;
		frame = slot->window + bounded(offset, WALK_WINDOW - 1);
		outer = &slot->last[bounded(next - 1, WALK_FRAMES - 1)];
		/* Where a return probe stands, the place in the caller is not told by the frame. */
		if (*(__u64 *)(frame + 40) != outer->fp || *(__u64 *)(frame + 48) != outer->pc + 1)
			break;
		if (k->kind == RAW_BUILTIN) {
			if (k->function != *(__u64 *)(frame + 64))
				break;
		} else if (k->function) {
			if (k->function != *(__u64 *)(frame + 24) ||
			    (k->kind == RAW_INTERPRETED && k->position != *(__u64 *)frame))
				break;
		}
		w->from = fp + 16;
		fp = outer->fp;
		next--;
		k = outer;
	}
	w->fp = fp;
	w->pc = k->pc;
	w->next = next;
	w->inside = false;
}

/* First pass: one frame, or several that are known. */
static long walk_frame(__u32 index, struct walker *walker)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	__u64 offset, context, saved, position, function;
	struct raw_frame *k;
	char *frame;

	if (w->mode >= WALK_SEARCH)
		return search_word(w);
	if (w->mode != WALK_COPY && is_return_probe(w->pc) && w->shadows &&
	    w->unknown != w->from - 8) {
		find_return(w, walker->thread);
		return 0;
	}
	if (w->mode == WALK_COPY) {
		k = &slot->last[bounded(w->copy, WALK_FRAMES - 1)];
		if (w->count >= WALK_FRAMES - 1) {
			w->cut = true;
			return 1;
		}
		note(slot, k->fp, k->pc, k->function, k->position, k->kind);
		if (--w->copy > w->copy_until)
			return 0;
		w->mode = WALK_NEW;
		return w->ended != 0;
	}
	if (w->mode == WALK_COMPARE && w->javascript)
		compare_frames(slot);
	k = &slot->last[bounded(w->next, WALK_FRAMES - 1)];
	if (w->mode == WALK_NEW && w->next >= 0 && k->fp < w->fp) {
		w->next--;
		return 0;
	}
	if (w->next >= 0 && w->fp > w->kept && k->fp == w->fp && k->pc == w->pc) {
		/* A call out of it has lasted since the last walk: it and all outside of it are as they were. */
		if (w->mode == WALK_NEW)
			w->match = w->next;
		w->fp = slot->last_end;
		return 1;
	}
	offset = w->fp - FRAME_BELOW - w->window;
	if (offset > WALK_WINDOW || offset + FRAME_BYTES > w->window_bytes) {
		__u32 bytes = WALK_WINDOW;

		w->window = w->fp - FRAME_BELOW;
		if (w->kept - w->window < WALK_WINDOW - FRAME_BYTES)
			bytes = bounded(w->kept - w->window + FRAME_BYTES, WALK_WINDOW - 1);
		w->window_bytes = bytes;
		offset = 0;
		if (bpf_probe_read_user(slot->window, bytes, (void *)w->window)) {
			/* The end of the stack is near. */
			w->window_bytes = FRAME_BYTES;
			if (bpf_probe_read_user(slot->window, FRAME_BYTES, (void *)w->window)) {
				w->window_bytes = 0;
				w->cut = true;
				return 1;
			}
		}
	}
	frame = slot->window + bounded(offset, WALK_WINDOW - 1);
	position = *(__u64 *)frame;
	function = *(__u64 *)(frame + 24);
	saved = *(__u64 *)(frame + 40);
	if (w->flags & WALK_FROM_JAVASCRIPT && !w->javascript && in_node(w, w->pc)) {
		/* V8's own way to the crossing. Without any JavaScript the outermost function stands for it. */
		__u64 fp = w->fp, pc = w->pc;

		if (step_out(w, saved, *(__u64 *)(frame + 48)))
			return 0;
		note(slot, fp, pc, 0, 0, RAW_MACHINE);
		return 1;
	}
	if (w->next >= 0 && k->fp == w->fp && k->pc == w->pc &&
	    (k->kind == RAW_MACHINE || k->kind == RAW_GLUE ||
	     (k->kind == RAW_BUILTIN ? k->function == *(__u64 *)(frame + 64)
				     : k->function == function &&
					       (k->kind == RAW_CODE || k->position == position)))) {
		/* As the last walk found it. */
		w->javascript |= k->function != 0;
		if (w->mode == WALK_NEW) {
			w->mode = WALK_COMPARE;
			w->match = w->next;
		}
		w->next--;
		w->known = true;
		if (w->next < 0 && saved == slot->last_end) {
			w->fp = saved;
			return 1;
		}
		if (step_out(w, saved, *(__u64 *)(frame + 48)))
			return 0;
		/* The last walk went further. */
		if (w->next >= 0 && begin_search(w))
			return 0;
		leave_match(w);
		w->ended = true;
		return 0;
	}
	if (w->mode == WALK_COMPARE) {
		leave_match(w);
		w->next--;
		return 0;
	}
	if (w->count >= WALK_FRAMES - 1) {
		w->cut = true;
		return 1;
	}
	context = *(__u64 *)(frame + 32);
	if (in_node(w, w->pc) || is_return_probe(w->pc)) {
		w->known = true;
		note(slot, w->fp, w->pc, 0, 0, RAW_MACHINE);
	} else if ((context & 3) == 1 && (function & 3) == 1) {
		bool interpreted = is_offset(position) && (*(__u64 *)(frame + 8) & 3) == 1 &&
				   is_interpreter(slot);

		w->javascript = w->known = true;
		note(slot, w->fp, w->pc, function, position,
		     interpreted ? RAW_INTERPRETED : RAW_CODE);
	} else if (context == w->builtin_exit) {
		/* A builtin in C++, such as JSON.parse; its function is among the arguments. */
		note(slot, w->fp, w->pc, *(__u64 *)(frame + 64), 0, RAW_BUILTIN);
	} else {
		/* A number that is one of V8's kinds of frames; else no context, so a library. */
		bool glue = !(context & 1) && context >> 1 < 64;

		note(slot, w->fp, w->pc, 0, 0, glue ? RAW_GLUE : RAW_MACHINE);
	}
	return !step_out(w, saved, *(__u64 *)(frame + 48)) && !begin_search(w);
}

/* What is counted up in `numbers`. */
enum number { NUMBER_STACK, NUMBER_FUNCTION, NUMBER_THREAD, NUMBER_CODE };

static __always_inline __u32 next_number(enum number which)
{
	__u32 zero = 0;
	struct serial_numbers *n = bpf_map_lookup_elem(&numbers, &zero);

	if (!n)
		return 0;
	switch (which) {
	case NUMBER_STACK:
		return __sync_fetch_and_add(&n->stack, 1) + 1;
	case NUMBER_FUNCTION:
		return __sync_fetch_and_add(&n->function, 1) + 1;
	case NUMBER_CODE:
		return __sync_fetch_and_add(&n->code, 1) + 1;
	default:
		return __sync_fetch_and_add(&n->thread, 1) + 1;
	}
}

/* The number of a key that stays, a new one if it has none yet; then *fresh is set. */
static __always_inline __u32 number_of(struct function_key *key, bool *fresh)
{
	__u32 *known = bpf_map_lookup_elem(&functions, key), number;

	*fresh = false;
	if (known)
		return *known;
	number = next_number(NUMBER_FUNCTION);
	if (!number || bpf_map_update_elem(&functions, key, &number, BPF_NOEXIST)) {
		known = bpf_map_lookup_elem(&functions, key);
		if (!known)
			count(COUNTER_STACKS_LOST, 1);
		return known ? *known : 0;
	}
	*fresh = true;
	return number;
}

/* Writes a long text in pieces: the pieces' heads tell the length of the whole and where each lies in it. */
struct pieces {
	struct thread *thread;
	struct text_head *head;
	__u64 from;
	__u64 left;
};

static long write_piece(__u32 index, struct pieces *p)
{
	__u64 n = p->left > PIECE_BYTES ? PIECE_BYTES : p->left;

	p->head->result = (__u64)index * PIECE_BYTES;
	write_text(p->thread, p->head, p->from, n);
	p->from += n;
	p->left -= n;
	return !p->left;
}

static __always_inline void write_long_text(struct thread *t, struct text_head *h, __u64 from,
					    __u64 length)
{
	struct pieces p = {.thread = t, .head = h, .from = from, .left = length};

	h->duration = length;
	if (length)
		bpf_loop(LARGEST_TEXT / PIECE_BYTES, write_piece, &p, 0);
}

/*
 * Whether a script's text is to be had without asking for it: Node's own are in the binary, *.js, *.mjs and *.cjs are files. What has
 * another name may be the program's own making, such as JavaScript from TypeScript. So may a path if the text is not the body
 * of a function: CommonJS modules are (`wrapped`), what `vm` runs is not.
 */
static __always_inline bool lies_in_a_file(struct v8_string *name, bool wrapped)
{
	__u64 start = 0;
	__u32 end = 0;

	if (name->length < 6)
		return false;
	bpf_probe_read_user(&start, sizeof(start), (void *)name->data);
	if (name->two_byte) {
		bpf_probe_read_user(&end, sizeof(end), (void *)(name->data + name->length * 2 - 4));
		return end == TWO_BYTE_JS &&
		       (((start & 0xffff) == '/' && wrapped) || start == TWO_BYTE_FILE);
	}
	if ((start & 0xffffffffff) == ONE_BYTE_NODE)
		return true;
	bpf_probe_read_user(&end, 2, (void *)(name->data + name->length - 2));
	return end == ONE_BYTE_JS &&
	       (((start & 0xff) == '/' && wrapped) || (start & 0xffffffffff) == ONE_BYTE_FILE);
}

/*
 * Writes a script's name, where its source lies if that is outside of the heap, what wraps it, and where its first line is
 * said to stand. The text of one that is in no file (an eval's) is written too: else nothing would tell its lines.
 */
__noinline int write_script(struct thread *t, struct image *image, __u64 script, __u32 number)
{
	struct text_head h = {};
	struct v8_string source = {}, name = {};
	__u64 tagged;
	bool wrapped;

	if (!t || !image)
		return 0;
	tagged = read_word(script - 1 + image->script_name);
	fill_header(&h.header, t, RECORD_SCRIPT, 0);
	h.header.id = number;
	wrapped = instance_type(read_word(script - 1 + image->script_wrapped)) ==
		  image->fixed_array_type;
	h.header.kind = wrapped;
	/* Both offsets follow the name. */
	h.descriptor = read_word(script - 1 + image->script_name + 8) >> 32;
	h.header.unused = read_word(script - 1 + image->script_name + 16) >> 32;
	if (v8_string_data(t, read_word(script - 1 + image->script_source), &source)) {
		h.result = source.data;
		h.duration = (__u64)source.length << 1 | source.two_byte;
	}
	v8_string_data(t, tagged, &name);
	write_string(t, &h, tagged);
	if (!source.data || lies_in_a_file(&name, wrapped))
		return 0;
	fill_header(&h.header, t, RECORD_SOURCE, 0);
	h.header.id = number;
	h.header.kind = source.two_byte;
	h.descriptor = 0;
	write_long_text(t, &h, source.data, (__u64)source.length << source.two_byte);
	return 0;
}

/* Of a scope info. */
struct scope {
	__u64 name;	/* a string, or anything else */
	__u64 position; /* where the function begins, a Smi */
};

/* What precedes a function's name in its scope info, and what follows it, depends on the scope's flags. */
static __always_inline void read_scope(struct image *image, __u64 info, __u8 function_kind,
				       struct thread *t, struct scope *scope)
{
	__u64 at = info - 1 + image->scope_first, variables, flags;

	flags = read_word(info - 1 + 8);
	if (flags >> 32)
		flags >>= 32;			    /* a Smi, up to V8 12 */
	variables = read_word(info - 1 + 24) >> 32; /* flags, parameters, variables */
	variables &= 0xffff;
	if (function_kind == KIND_MODULE || function_kind == KIND_ASYNC_MODULE)
		at += 8; /* the number of the module's variables */
	/* Names, then a Smi each; many names are in a table of their own. */
	if (variables && instance_type(read_word(at)) >= image->first_nonstring)
		at += 8 + variables * 8;
	else
		at += variables * 16;
	if (flags & SCOPE_HAS_CLASS_VARIABLE)
		at += 8;
	if (!image->scope_has_position && flags & SCOPE_HAS_RECEIVER) {
		/* V8 9.4 keeps a number for the receiver here: then the name, or the outer scope, comes one word later. */
		__u64 pointer = at;

		if (!(flags & (SCOPE_HAS_FUNCTION_VARIABLE | SCOPE_HAS_INFERRED_NAME)))
			pointer += flags & SCOPE_HAS_OUTER ? 2 * 8 : -8;
		at += read_word(pointer) & 1 ? 0 : 8;
	}
	scope->name = 0;
	if (flags & SCOPE_HAS_FUNCTION_VARIABLE) {
		scope->name = read_word(at);
		at += 16;
	}
	if (flags & SCOPE_HAS_INFERRED_NAME) {
		if (v8_string_length(t, scope->name) <= 0)
			scope->name = read_word(at);
		at += 8;
	}
	scope->position = read_word(image->scope_has_position ? info - 1 + 32 : at);
}

/* Whether a string is "name". */
static __always_inline bool is_name(struct thread *t, __u64 string)
{
	__u32 characters = 0;

	if (v8_string_length(t, string) != 4)
		return false;
	bpf_probe_read_user(&characters, sizeof(characters), (void *)(string - 1 + 16));
	return characters == NAME_NAME;
}

struct name_search {
	struct thread *thread;
	__u64 entries, value;
};

/* One entry of a dictionary of properties: key, value, details. */
static long find_name(__u32 index, struct name_search *s)
{
	__u64 entry = s->entries + index * 3 * 8;

	if (!is_name(s->thread, read_word(entry)))
		return 0;
	s->value = read_word(entry + 8);
	return 1;
}

/*
 * The name that a closure itself has, if it is not its literal's: that of a method with a computed name, or one that was defined
 * later. It is a property; else there is an accessor.
 */
__noinline __u64 own_name(struct thread *t, struct image *image, __u64 function)
{
	__u64 map = v8_map(function), entry, value;
	__u32 details, index;
	__u8 size = 0, start = 0;

	if (!t || !image || !image->accessor_info_type)
		return 0;
	if (read_word(map - 1 + 16) & MAP_IS_DICTIONARY) {
		struct name_search s = {.thread = t};
		__u64 dictionary = read_word(function - 1 + 8) - 1;
		__u32 capacity = read_word(dictionary + 32) >> 32;

		s.entries = dictionary + image->dictionary_first;
		bpf_loop(capacity < MOST_PROPERTIES ? capacity : MOST_PROPERTIES, find_name, &s, 0);
		return v8_string_length(t, s.value) > 0 ? s.value : 0;
	}
	entry = read_word(map - 1 + image->map_descriptors) - 1 + image->descriptors_first +
		3 * 8; /* key, details, value of the first one; the name is the second */
	value = read_word(entry + 16);
	if (instance_type(value) == image->accessor_info_type || !is_name(t, read_word(entry)))
		return 0;
	details = read_word(entry + 8) >> 32;
	if (!(details & image->details_location)) {
		index = details >> DETAILS_INDEX_SHIFT & DETAILS_INDEX_MASK;
		bpf_probe_read_user(&size, 1, (void *)(map - 1 + 8));
		bpf_probe_read_user(&start, 1, (void *)(map - 1 + 9));
		index += start;
		if (index < size)
			value = read_word(function - 1 + index * 8);
		else
			value = read_word(read_word(function - 1 + 8) - 1 + 16 +
					  (index - size) * 8);
	}
	return v8_string_length(t, value) > 0 ? value : 0;
}

/* What tells two names from each other, in a word; not 0. */
__noinline __u64 name_hash(struct thread *t, __u64 name)
{
	__u64 words[HASHED_NAME / 8] = {}, hash;
	struct v8_string s = {};
	__u32 n;

	if (!t || !v8_string_data(t, name, &s))
		return 1;
	n = s.length << s.two_byte;
	hash = n << 1 | s.two_byte;
	if (n > HASHED_NAME - 1)
		n = HASHED_NAME - 1;
	bpf_probe_read_user(words, bounded(n, HASHED_NAME - 1), (void *)s.data);
	for (int i = 0; i < HASHED_NAME / 8; i++) {
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 32;
	}
	return hash | 1;
}

/* Writes a function's name and place. */
__noinline int write_function(struct thread *t, struct image *image, struct function_at *f,
			      __u32 number)
{
	struct scope scope = {};
	struct v8_string s = {};
	__u32 n;

	if (!t || !image || !f)
		return 0;
	scope.name = read_word(f->shared - 1 + image->shared_name_or_scope);
	RESERVE(record_function, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_FUNCTION, 0);
	r->header.id = number;
	r->script = f->script;
	r->literal = f->literal;
	r->flags = read_word(f->shared - 1 + image->shared_flags);
	r->length = 0;
	if (instance_type(scope.name) == image->scope_type)
		read_scope(image, scope.name, r->flags & KIND_MASK, t, &scope);
	r->position = scope.position;
	if (f->own_name)
		scope.name = f->own_name;
	if (v8_string_data(t, scope.name, &s)) {
		n = s.length;
		if (s.two_byte) {
			r->header.flags |= RECORD_TWO_BYTE;
			n *= 2;
		} else {
			r->header.flags |= RECORD_LATIN1;
		}
		if (n <= NAME_LENGTH) {
			n = bounded(n, 2 * NAME_LENGTH - 1);
			if (n <= NAME_LENGTH && !bpf_probe_read_user(r->name, n, (void *)s.data)) {
				r->length = n;
				scope.name = 0;
			}
		}
	}
	bpf_ringbuf_submit(r, wake_flag());
	if (v8_string_length(t, scope.name) > 0) {
		/* Long, or in pieces, such as one that V8 inferred from an assignment. */
		struct text_head h = {};

		fill_header(&h.header, t, RECORD_FUNCTION_NAME, 0);
		h.header.id = number;
		write_string(t, &h, scope.name);
	}
	return 0;
}

/* Writes the table that tells a position in the source for an offset into the bytecode. */
__noinline int write_positions(struct thread *t, struct image *image, __u64 array, __u32 number)
{
	__u64 table, length;
	__u32 type;
	struct text_head h = {};

	if (!t || !image || instance_type(array) != image->bytecode_type)
		return 0;
	table = read_word(array - 1 + image->bytecode_positions);
	type = instance_type(table);
	if (type != image->byte_array_type &&
	    (type != image->trusted_byte_array_type || !image->trusted_byte_array_type))
		return 0;
	length = read_word(table - 1 + 8) >> 32;
	if (!length)
		return 0;
	fill_header(&h.header, t, RECORD_POSITIONS, 0);
	h.header.id = number;
	h.descriptor = image->bytecode_data;
	write_long_text(t, &h, table - 1 + 16, length);
	return 0;
}

/* The number of a script; writes it if it is new. `key` is that of one of its functions. */
static __always_inline __u32 script_number(struct thread *t, struct image *image, __u64 script,
					   struct function_key key)
{
	__u32 number;
	bool fresh;

	key.literal = LITERAL_IS_SCRIPT;
	number = number_of(&key, &fresh);
	if (fresh)
		write_script(t, image, script, number);
	return number;
}

/* The number of a closure's function, 0 if it is none; `fp`: a frame of it. */
__noinline __u32 learn_function(struct thread *t, __u32 binary, __u64 function, __u64 fp)
{
	struct image *image = bpf_map_lookup_elem(&images, &binary);
	struct function_key key = {};
	struct function_at f = {};
	__u64 shared, script;
	__u32 number;
	bool fresh;
	__u32 type;

	if (!t || !image || !image->function_shared)
		return 0;
	if (!(read_word(function - 1) & 7)) {
		/* In the middle of a collection: addresses seen until its end are good for nothing later. */
		t->epoch++;
	}
	type = instance_type(function);
	if (type < image->first_function_type || type > image->last_function_type)
		return 0;
	f.shared = shared = read_word(function - 1 + image->function_shared);
	if (instance_type(shared) != image->shared_type)
		return 0;
	t->first_nonstring = image->first_nonstring;
	script = read_word(shared - 1 + image->shared_script);
	key.thread = t->serial;
	if (instance_type(script) == image->script_type) {
		key.script = read_word(script - 1 + image->script_id) >> 32;
		f.script = script_number(t, image, script, key);
		/* Behind the flags. */
		key.literal = read_word(shared - 1 + image->shared_flags) >> 32;
		f.own_name = own_name(t, image, function);
		if (f.own_name)
			key.script |= name_hash(t, f.own_name) << 32;
	} else {
		/* Its data come before its name, in the newest versions in two words. */
		__u64 data = read_word(shared - 1 + image->shared_name_or_scope - 8);

		if (instance_type(data) == image->function_template_type ||
		    instance_type(read_word(shared - 1 + 8)) == image->function_template_type)
			return 0;
		/* A builtin's number, a Smi; some builtins have several names. */
		key.script =
			data & 1 ? shared | (__u64)t->epoch << 48
				 : data >> 32 | name_hash(t, read_word(shared - 1 +
								       image->shared_name_or_scope))
							<< 32;
		key.literal = LITERAL_IS_BUILTIN;
		if (read_word(shared - 1 + image->shared_flags) & SHARED_IS_NATIVE)
			key.literal = LITERAL_IS_NATIVE_BUILTIN;
	}
	number = number_of(&key, &fresh);
	if (fresh) {
		f.literal = key.literal;
		write_function(t, image, &f, number);
		write_positions(t, image, read_word(fp - 32), number);
	}
	return number;
}

/* The same, by what the thread remembers. */
static __always_inline __u32 function_number(struct walker *walker, struct raw_frame *f)
{
	struct walk_slot *slot = walker->slot;
	__u32 hash = (f->function >> 3) ^ (f->function >> 13);
	struct known_function *known = &slot->functions[bounded(hash, WALK_FUNCTIONS - 1)];

	if (known->function != f->function || known->epoch != slot->epoch) {
		known->number =
			learn_function(walker->thread, slot->walk.binary, f->function, f->fp);
		known->function = f->function;
		known->epoch = slot->epoch;
	}
	return known->number;
}

static __always_inline bool is_bytecode(__u32 binary, __u64 tagged)
{
	struct image *image = bpf_map_lookup_elem(&images, &binary);

	return image && instance_type(tagged) == image->bytecode_type;
}

/* Whether what lies at -8 of a frame is a context. In a library's frame a register may be saved there, with any of V8's values. */
static __always_inline bool has_context(__u32 binary, __u64 fp)
{
	struct image *image = bpf_map_lookup_elem(&images, &binary);
	__u32 type = instance_type(read_word(fp - 8));

	return image && type >= image->first_context_type && type <= image->last_context_type;
}

/* Second pass: one new frame, from the outermost inwards. */
static long look_up_frame(__u32 index, struct walker *walker)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	struct raw_frame *f = &slot->now[bounded(w->count - 1 - index, WALK_FRAMES - 1)];
	struct raw_frame *k = &slot->last[bounded(slot->last_count, WALK_FRAMES - 1)];
	struct walk_frame *out = &slot->out.frames[bounded(w->written, WALK_FRAMES - 1)];
	__u32 function = 0, kind;
	__u64 code, position = 0;

	if (slot->last_count >= WALK_FRAMES)
		return 1;
	*k = *f;
	k->stack = w->written; /* until the numbers are known */
	slot->last_count++;
	if (f->kind == RAW_GLUE)
		return 0;
	if (f->kind != RAW_MACHINE && (f->kind != RAW_CODE || has_context(w->binary, f->fp)))
		function = function_number(walker, f);
	code = function ? function : f->pc;
	if (function) {
		if (f->kind == RAW_INTERPRETED) {
			kind = FRAME_INTERPRETED;
			position = f->position >> 32;
			if (!slot->interpreter && !(w->running && index == w->count - 1))
				slot->interpreter = f->pc;
		} else {
			/* Or code that was optimised while a loop ran: its place tells. */
			kind = f->kind == RAW_CODE && is_bytecode(w->binary, read_word(f->fp - 32))
				       ? FRAME_BASELINE
				       : FRAME_COMPILED;
			/* Where code was collected other code of the same function may come to lie. */
			if (kind == FRAME_COMPILED)
				w->hash ^= (__u64)walker->thread->code_epoch << 32;
			if (!(w->running && index == w->count - 1))
				kind |= FRAME_CALLING;
			position = f->pc;
		}
	} else {
		/* A function of the API in its first calls: it is the crossing, not a frame. */
		if (f->kind == RAW_BUILTIN)
			return 0;
		kind = FRAME_MACHINE;
	}
	out->code = code;
	out->position = position | (__u64)kind << WALK_KIND_SHIFT;
	w->hash = (w->hash ^ code) * 0x9e3779b97f4a7c15ULL;
	w->hash = (w->hash ^ w->hash >> 29 ^ out->position) * 0xbf58476d1ce4e5b9ULL;
	w->hash ^= w->hash >> 32;
	w->written++;
	k->stack = w->written;
	return 0;
}

/* Moves a frame that stays out of the way of new ones. */
static long shift_frame(__u32 index, struct walker *walker)
{
	struct walk_slot *slot = walker->slot;

	slot->last[bounded(index, WALK_FRAMES - 1)] =
		slot->last[bounded(slot->walk.copy + index, WALK_FRAMES - 1)];
	return 0;
}

/*
 * Forgets the outermost frames, if there is no room for all: in a deep recursion each walk would else find little that it knows. A
 * later walk takes what lies outside of the remembered frames for what it was.
 */
static __always_inline void make_room(struct walker *walker)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	__s32 kept = w->match + 1, dropped;

	if (kept + (__s32)w->count <= WALK_FRAMES)
		return;
	/* Many at once, so that it is rare. */
	dropped = kept < WALK_FRAMES / 2 ? kept : WALK_FRAMES / 2;
	if (kept - dropped + (__s32)w->count > WALK_FRAMES)
		dropped = kept;
	if (dropped <= 0)
		return;
	slot->last_end = slot->last[bounded(dropped - 1, WALK_FRAMES - 1)].fp;
	w->copy = dropped;
	w->match -= dropped;
	bpf_loop(kept - dropped, shift_frame, walker, 0);
}

/* Puts the numbers in place of the counts. */
static long number_frame(__u32 index, struct walker *walker)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	struct raw_frame *k = &slot->last[bounded(w->match + 1 + index, WALK_FRAMES - 1)];

	k->stack = k->stack ? w->first + k->stack - 1 : w->stack;
	return 0;
}

/* Words of a module behind its fixed ones that may be its code. */
#define MODULE_WORDS 8

struct module_search {
	struct image *image;
	__u64 module, script, name;
};

/* Writes the frames of a walk that are new; returns the number of the innermost. */
static __always_inline void write_walk(struct walker *walker)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	struct walk_key key = {.hash = w->hash, .thread = walker->thread->serial, .base = w->stack};
	__u32 *known = bpf_map_lookup_elem(&stacks, &key), zero = 0, n = w->written;
	struct serial_numbers *given = bpf_map_lookup_elem(&numbers, &zero);

	if (!given)
		return;
	if (!known && given->stacks_full)
		known = bpf_map_lookup_elem(&more_stacks, &key);
	if (known) {
		w->first = *known;
		return;
	}
	w->first = __sync_fetch_and_add(&given->stack, n) + 1;
	if (given->stacks_full || bpf_map_update_elem(&stacks, &key, &w->first, BPF_ANY)) {
		given->stacks_full = true;
		/* If there is no room either, the same frames get other numbers next time: no harm. */
		bpf_map_update_elem(&more_stacks, &key, &w->first, BPF_ANY);
	}
	fill_header(&slot->out.header, walker->thread, RECORD_WALK, bpf_ktime_get_ns());
	slot->out.header.flags = w->cut && !w->stack ? RECORD_CUT : 0;
	slot->out.first = w->first;
	slot->out.base = w->stack;
	slot->out.count = n;
	n = bounded(n, WALK_FRAMES - 1);
	if (bpf_ringbuf_output(&records, &slot->out,
			       __builtin_offsetof(struct record_walk, frames) +
				       n * sizeof(struct walk_frame),
			       wake_flag()))
		count(COUNTER_RING_FULL, 1);
}

static __always_inline void walk_with(struct walker *walker, __u64 ip, __u64 sp, __u64 bp)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	__u64 caller;

	w->fp = bp;
	w->pc = ip;
	w->from = sp;
	w->shadows = walker->thread->depth;
	w->inside = true;
	w->match = -1;
	w->next = slot->epoch == walker->thread->epoch ? (__s32)slot->last_count - 1 : -1;
	slot->epoch = walker->thread->epoch;
	w->kept = walker->thread->kept ? frame_at(walker->thread, walker->thread->kept - 1)->sp
				       : ~0ULL;
	if (w->flags & WALK_AT_ENTRY) {
		if (!(w->flags & WALK_FROM_JAVASCRIPT))
			note(slot, sp, ip, 0, 0, RAW_MACHINE);
		w->pc = read_word(sp) - 1;
		w->from = sp + 8;
		w->inside = false;
	} else if (w->flags & WALK_FROM_JAVASCRIPT) {
		/*
		 * In the builtin that calls C++. If it has no frame yet, the innermost one is its caller's. Or already in C++, where
		 * a saved register may lie in place of the context, with any of V8's values.
		 */
		if (!in_node(w, ip) && (read_word(bp - 8) & 3) == 1) {
			w->pc = read_word(sp) - 1;
			w->inside = false;
		}
	} else if (!(ip >= w->text_start && ip < w->text_end)) {
		/* In a library, or in code that V8 made: there the frame pointer leads on. */
		caller = read_word(sp) - 1;
		if (in_node(w, caller) && !has_context(w->binary, bp)) {
			/* A system call's function, just called. (In code that V8 made that word may be anything.) */
			note(slot, sp, ip, 0, 0, RAW_MACHINE);
			w->pc = caller;
			w->inside = false;
			w->from = sp + 8;
		} else if (bp <= sp || bp - sp > FURTHEST_FRAME || bp & 7) {
			note(slot, sp, ip, 0, 0, RAW_MACHINE);
			w->inside = false;
			begin_search(w);
		}
	}
	w->running = w->inside;
	bpf_loop(WALK_STEPS, walk_frame, walker, 0);
	walker->thread->kept = walker->thread->depth;
	slot->last_end = w->fp;
	w->stack = w->match < 0 ? STACK_NONE : slot->last[bounded(w->match, WALK_FRAMES - 1)].stack;
	if (w->count)
		make_room(walker);
	slot->last_count = w->match + 1;
	w->hash = w->cut;
	if (!w->count)
		return;
	bpf_loop(w->count, look_up_frame, walker, 0);
	if (w->written)
		write_walk(walker);
	bpf_loop(slot->last_count - (w->match + 1), number_frame, walker, 0);
	if (w->written)
		w->stack = w->first + w->written - 1;
}

/* Notes the garbage collection after which there was new code, or code elsewhere: none that lay there before is meant from then on. */
static __always_inline void see_code(struct thread *t)
{
	__u32 zero = 0;
	struct serial_numbers *n = bpf_map_lookup_elem(&numbers, &zero);

	if (!n || t->code_seen == n->code)
		return;
	t->code_seen = n->code;
	t->code_epoch = t->epoch;
}

/* Gives a thread its serial number. */
static __always_inline void introduce(struct thread *t)
{
	if (t->serial)
		return;
	t->serial = next_number(NUMBER_THREAD);
	/* Two threads that take turns in a slot do not mistake each other's functions. */
	t->epoch = t->serial << 16;
}

/* The slot that a thread walks in, for this walk alone; none if it is in use. */
static __always_inline struct walk_slot *take_slot(struct thread *t)
{
	__u32 index = t->serial & (WALK_SLOTS - 1);
	struct walk_slot *slot = bpf_map_lookup_elem(&walks, &index);

	if (slot && !__sync_val_compare_and_swap(&slot->busy, 0, 1)) {
		if (slot->owner != t->serial) {
			slot->owner = t->serial;
			slot->last_count = 0;
			slot->interpreter = 0;
		}
		return slot;
	}
#ifdef NODEPROF_TICKS
	index = bpf_get_smp_processor_id() & (WALK_SLOTS - 1);
	slot = bpf_map_lookup_elem(&tick_walks, &index);
	if (slot && !__sync_val_compare_and_swap(&slot->busy, 0, 1)) {
		slot->last_count = 0;
		slot->interpreter = 0;
		return slot;
	}
#endif
	count(COUNTER_STACKS_LOST, 1);
	return 0;
}

/*
 * Walks the stack from the given registers of the current thread. Returns its number; 0 if there is none, or if there is no slot to
 * walk in at this very moment.
 */
__noinline __u32 walk_stack(struct thread *t, __u64 ip, __u64 sp, __u64 bp, __u32 flags)
{
	struct walker walker = {.thread = t};
	struct walk_slot *slot;
	struct walk *w;
	struct image *image;
	__u32 binary;

	if (!record_stacks || !t || !t->image)
		return 0;
	binary = t->image - 1;
	image = bpf_map_lookup_elem(&images, &binary);
	if (!image)
		return 0;
	introduce(t);
	see_code(t);
	slot = take_slot(t);
	if (!slot)
		return 0;
	w = &slot->walk;
	__builtin_memset(w, 0, sizeof(*w));
	w->flags = flags;
	w->binary = binary;
	w->text_start = image->text_start;
	w->text_end = image->text_end;
	w->builtins_start = image->builtins_start;
	w->builtins_end = image->builtins_end;
	w->builtin_exit = image->builtin_exit_frame << 1;
	walker.slot = slot;
	walk_with(&walker, ip, sp, bp);
	flags = w->stack;
	slot->busy = 0;
	return flags;
}

/* What a word of a module may be that leads to its script: its function, before and after it is linked. */
static long find_code(__u32 index, struct module_search *s)
{
	__u64 word = read_word(s->module - 1 + 40 + index * 8);
	__u32 type = instance_type(word);

	if (type >= s->image->first_function_type && type <= s->image->last_function_type) {
		word = read_word(word - 1 + s->image->function_shared);
		type = instance_type(word);
	}
	if (type != s->image->shared_type)
		return 0;
	s->script = read_word(word - 1 + s->image->shared_script);
	return 1;
}

/* What a word of a synthetic module may be: its name is the only string. */
static long find_module_name(__u32 index, struct module_search *s)
{
	__u64 word = read_word(s->module - 1 + 40 + index * 8);

	if (instance_type(word) >= s->image->first_nonstring)
		return 0;
	s->name = word;
	return 1;
}

/*
 * The number of a synthetic module: one that node makes for its own modules, for CommonJS, JSON and add-ons that are imported.
 * It has no script, but a URL for its name, and a hash (behind its exports) that the collector leaves alone.
 */
static __always_inline __u32 synthetic_number(struct thread *t, struct image *image,
					      struct module_search *s)
{
	struct function_key key = {.literal = LITERAL_IS_MODULE, .thread = t->serial};
	struct text_head h = {};
	__u32 number;
	bool fresh;

	key.script = read_word(s->module - 1 + 16) >> 32;
	bpf_loop(MODULE_WORDS, find_module_name, s, 0);
	if (!key.script || !s->name)
		return 0;
	number = number_of(&key, &fresh);
	if (fresh) {
		fill_header(&h.header, t, RECORD_SCRIPT, 0);
		h.header.id = number;
		write_string(t, &h, s->name);
	}
	return number;
}

/* The number of an ES module; 0 if it has no script, or has been evaluated and forgotten it. */
__noinline __u32 module_number(struct thread *t, __u64 module)
{
	__u32 binary = t ? t->image - 1 : 0;
	struct image *image = bpf_map_lookup_elem(&images, &binary);
	struct module_search s = {.module = module};
	struct function_key key = {};
	__u32 type;

	if (!t || !image || !image->function_shared)
		return 0;
	s.image = image;
	t->first_nonstring = image->first_nonstring;
	introduce(t);
	type = instance_type(module);
	if (type == image->synthetic_module_type)
		return synthetic_number(t, image, &s);
	if (type != image->source_text_module_type)
		return 0;
	bpf_loop(MODULE_WORDS, find_code, &s, 0);
	if (instance_type(s.script) != image->script_type)
		return 0;
	key.script = read_word(s.script - 1 + image->script_id) >> 32;
	key.thread = t->serial;
	return script_number(t, image, s.script, key);
}

/*
 * The number of a function that optimised code was made of. The code may be made by a thread that serves several isolates: there a
 * script's number means something only together with the isolate. When an isolate has ended, another may come to lie in its place.
 */
__noinline __u32 compiled_number(struct thread *t, struct image *image, __u64 shared, __u64 closure,
				 __u64 isolate)
{
	struct function_key key = {};
	struct function_at f = {.shared = shared};
	__u64 script;
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
	f.own_name = closure ? own_name(t, image, closure) : 0;
	if (f.own_name)
		key.script ^= name_hash(t, f.own_name) << 32;
	number = number_of(&key, &fresh);
	if (fresh) {
		f.literal = key.literal;
		write_function(t, image, &f, number);
	}
	return number;
}

struct inlining {
	struct thread *thread;
	struct image *image;
	__u64 positions, literals, isolate;
	__u64 shared; /* of the function that was compiled */
	__u32 code, literal_count;
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
	__u32 literal = read_word(at + 8), function;

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
	r->position = read_word(at);
	r->index = index;
	r->function = function;
	bpf_ringbuf_submit(r, wake_flag());
	return 0;
}

/* Writes that code of a function lies there from now on; of no known function, if `function` is 0. */
static __always_inline bool write_placed(struct thread *t, struct image *image, __u64 code,
					 __u32 number, __u32 function, __u32 exits, __u64 time)
{
	RESERVE(record_code, r);
	if (!r)
		return false;
	fill_header(&r->header, t, RECORD_CODE, time);
	r->header.id = number;
	r->start = code - 1 + image->code_start;
	if (!image->code_embedded)
		r->start = read_word(r->start);
	r->size = read_word(code - 1 + image->code_size);
	r->function = function;
	r->exits = exits;
	r->unused = 0;
	bpf_ringbuf_submit(r, wake_flag());
	return true;
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
	__u64 deopt, shared, table;

	if (!t || !image || !image->code_deopt)
		return 0;
	deopt = read_word(code - 1 + image->code_deopt);
	if (instance_type(deopt) == image->bytecode_type) {
		write_placed(t, image, code, 0, 0, 0, time);
		return 0;
	}
	t->first_nonstring = image->first_nonstring;
	deopt += 16 - 1;
	shared = read_word(deopt + image->deopt_shared * 8);
	if (image->deopt_wrapped)
		shared = read_word(shared - 1 + 8);
	function = compiled_number(t, image, shared, 0, isolate);
	if (!function) {
		write_placed(t, image, code, 0, 0, 0, time);
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
	if (!write_placed(t, image, code, in.code, function, exits, time))
		return 0;
	next_number(NUMBER_CODE);
	bpf_loop(bytes / 16 < MOST_INLINED ? bytes / 16 : MOST_INLINED, write_inlined, &in, 0);
	table = read_word(code - 1 + image->code_positions);
	fill_header(&h.header, t, RECORD_CODE_POSITIONS, 0);
	h.header.id = in.code;
	write_long_text(t, &h, table - 1 + 16, read_word(table - 1 + 8) >> 32);
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
	next_number(NUMBER_CODE);
}

/*
 * Writes that an import statement was linked to a module, both of which the return of that call left. No collection can have moved
 * them: it would be the next hit itself.
 */
__noinline int write_import(struct thread *t, __u64 time)
{
	__u32 from, to;

	if (!t || !record_stacks)
		return 0;
	from = module_number(t, t->requirer);
	to = module_number(t, t->loaded);
	t->requirer = 0;
	if (!from || !to)
		return 0;
	RESERVE(record_import, r);
	if (!r)
		return 0;
	fill_header(&r->header, t, RECORD_IMPORT, time);
	r->requirer = from;
	r->loaded = to;
	bpf_ringbuf_submit(r, wake_flag());
	return 0;
}

#endif
#endif
