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
 * known by the address of their closure until the garbage collector has run (`epoch`), then by their number in their
 * script, which stays. While it runs (`collecting`) objects move, and one that has moved may look like another: nothing is read of any.
 */
#ifndef NODEPROF_STACK_H
#define NODEPROF_STACK_H

#include "functions.bpf.h"

/* The stack is read in pieces of this size. */
#define WALK_WINDOW 4096
/* What is read of a frame, from its frame pointer on: -40 to +32. */
#define FRAME_BELOW 40
#define FRAME_BYTES 72
/* A frame of V8's that is smaller has no function yet. */
#define ENTERED_BYTES 16
/* Frames that are compared in one step. */
#define COMPARED_FRAMES 4
/* Frames that get their numbers in one step. */
#define NUMBERED_FRAMES 8
/* Functions, and places in machine code that V8 made, that a thread remembers; powers of two. */
#define WALK_FUNCTIONS 1024
#define WALK_PLACES    512
/* Walks whose numbers are remembered; a power of two. */
#define KNOWN_WALKS 4096
/* A caller's frame lies at most this far up. */
#define FURTHEST_FRAME (16 << 20)
/* The kernel maps the code of return probes as high as it can: into the last page. Where page tables have five levels that is another one. */
#define RETURN_PROBE_CODE	   0x7fffffffe000ULL
#define RETURN_PROBE_CODE_5_LEVELS 0xffffffffffe000ULL
#define RETURN_PROBE_BYTES	   4096
/* Frames at the outer end of a walk that lead nowhere are taken back, this many at most. */
#define DOUBTFUL_FRAMES 16
/* Words of the stack that are searched for a frame, where frame pointers lead no further; and how often in a walk. */
#define SEARCHED_WORDS 128
#define MOST_SEARCHES  4
/*
 * Bytes below the main thread's arguments in which libc's own frames lie, which has called `main`: 264 with glibc 2.36. Whom no frame pointer leads out of there is
 * the outermost function; what lies above are words that older calls have left, those of constructors for one.
 */
#define OUTERMOST_BYTES 320
/* In a frame: no module's body calls here, as far as is known. */
#define NO_MODULE 0xffffffff
/* Addresses of a program lie between, also with five levels: further up is only what asks for a place there, as that page does. */
#define LOWEST_ADDRESS	0x10000
#define HIGHEST_ADDRESS 0x7fffffffffff
/* Each frame is seen once, and again when it is copied or skipped; and there are searches that were led astray. */
#define WALK_STEPS (3 * WALK_FRAMES + 2 * MAX_DEPTH + 8 * SEARCHED_WORDS)

/* What a frame was found to be. */
enum raw_kind { RAW_MACHINE, RAW_INTERPRETED, RAW_CODE, RAW_BUILTIN, RAW_GLUE, RAW_ENTERED };

struct raw_frame {
	__u64 fp;
	__u64 pc;	/* of the call in it */
	__u64 function; /* tagged */
	__u64 position; /* the word at -40: in the interpreter the offset into the bytecode, a Smi */
	__u32 kind;
	__u32 stack;  /* of this frame and those outside of it */
	__u32 module; /* of the frame of a module's body: lower half of its `this`; else 0 */
	__u32 until; /* words from here to the frame of the module's body, here or outside; NO_MODULE */
};

struct known_function {
	__u64 function;
	__u32 epoch;
	__u32 number; /* 0: not a function; and IS_BODY */
};

/*
 * What a frame of machine code was found to be. Until the garbage collector runs no code goes, so at its place there is no other,
 * and what a closure is does not change.
 */
struct known_place {
	__u64 pc, function;
	__u32 epoch;
	__u32 number; /* of the function; 0: machine code that no function of JavaScript has */
	__u32 kind;
	__u32 unused;
};

/* A walk as its first search found it. What it does there may turn out to be wrong. */
struct search_state {
	__u64 search; /* the next word; 0: nothing was searched, or nothing can tell that it was wrong */
	__u64 ip; /* of a library's function, if its frame pointer may lead on */
	__u64 furthest;
	__u32 left, count, shadows;
	__s32 next;
	__u32 surrounding;
};

/* What a step of a walk does. */
enum walk_mode {
	WALK_NEW,     /* notes a frame, if it is not where the last walk's are */
	WALK_COMPARE, /* goes on along frames that the last walk saw */
	WALK_COPY, /* notes frames that had seemed to be the same, but are called from elsewhere */
	WALK_AROUND, /* looks at one crossing: does the function lie in it out of which nothing leads? */
	WALK_SEARCH, /* looks at one word of the stack: does it point to a frame? */
	WALK_CALLER, /* looks at one word below that frame: is it where its function is? */
	WALK_AGAIN,  /* goes back to the first search, which was led astray */
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
	__u32 binary, builtin_exit, wasm;
	__u32 written; /* new frames but glue */
	__u64 hash;
	__u32 first;		     /* number of the outermost of them */
	bool cut, javascript, known; /* known: some frame is node's or JavaScript */
	bool collecting;	     /* objects move */
	bool entered;		     /* by a call into JavaScript that was passed */
	bool outside;		     /* no JavaScript is around */
	bool led_known;		     /* known, before the first search */
	bool led_matched;	     /* so was a frame of the last walk met */
	bool stale;		     /* there is JavaScript outside: left by a call that is over */
	bool nowhere;		     /* a frame pointer led to where there is no memory */
	__u8 surrounding;	     /* crossing that may be around */
	__u32 crossing;		     /* the stack of the one that is; 0: none */
	__u64 crossing_sp, crossing_start;
	bool inside;	 /* the next frame is the one that runs, its address no return address */
	bool running;	 /* so was the innermost one */
	__u32 ended;	 /* no bool: the verifier must see that the callback returns 0 or 1 */
	__u8 searches;	 /* so far */
	__u32 back;	 /* mode before the search */
	__u32 left;	 /* words still to be searched */
	__u32 shadows;	 /* frames of the shadow stack that were not looked at */
	__u32 led;	 /* new frames before the first search */
	__u64 unknown;	 /* where a return address lies that nobody knows */
	__u64 outermost; /* from here on frames of the main thread are its outermost ones */
	__u64 from;	 /* the stack below is that of frames that were seen */
	__u64 search;	 /* the next word */
	__u64 kept;	 /* frames above are those of the last walk, if they are reached */
	__u64 furthest;	 /* outermost frame that was led to and is node's or JavaScript */
	struct search_state first_search;
	__u64 text_start, text_end, builtins_start, builtins_end;
};

/* What a thread keeps from walk to walk. */
struct walk_slot {
	__u32 owner; /* the thread's serial number */
	__u32 busy;
	__u32 epoch;
	__u32 last_count;
	__u64 last_end; /* the frame pointer that led no further */
	/* The last walk was joined to the stack of this crossing: where it lies in the shadow stack, and when it began. 0: it was not. */
	__u32 joined;
	__u64 joined_start;
	__u64 interpreter;		    /* where calls of the interpreter return to, less one */
	struct raw_frame last[WALK_FRAMES]; /* of the last walk, outermost first */
	struct raw_frame now[WALK_FRAMES];  /* what is new in this walk, innermost first */
	struct known_function functions[WALK_FUNCTIONS];
	struct known_place places[WALK_PLACES];
	struct seen seen;
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

/*
 * New frames below a stack that are known by their hash: then the walk has a number already. The thread and the stack are in the hash.
 * A walk takes the place of another one that it falls upon: then the same frames get other numbers next time, which does no harm.
 */
struct known_walk {
	__u64 check; /* of the hash and the numbers: two threads may write at once */
	__u32 base, first;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KNOWN_WALKS);
	__type(key, __u32);
	__type(value, struct known_walk);
} stacks SEC(".maps");

volatile const bool record_stacks = false;

#ifndef NODEPROF_TICKS
/* Ticks may fall into a garbage collection. */
volatile const bool take_samples = false;
#endif

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

/* Whether an address lies beside the interpreter, as all builtins do. V8 may run a copy of them, which is in no plan. */
static __always_inline bool is_beside_interpreter(struct walk_slot *slot, __u64 pc)
{
	__u64 builtins = slot->walk.builtins_end - slot->walk.builtins_start;

	return slot->interpreter && pc - slot->interpreter + builtins < 2 * builtins;
}

/*
 * Whether a frame of this shape is one of the interpreter. Code that was optimised while a loop ran has taken over the interpreter's
 * frame, and left in it what lay there.
 */
static __always_inline bool is_interpreter(struct walk_slot *slot)
{
	struct walk *w = &slot->walk;

	/* All its calls return to one place; where that is depends on where V8 has put its builtins. */
	if (!slot->interpreter || w->pc == slot->interpreter)
		return true;
	return w->inside && is_beside_interpreter(slot, w->pc);
}

static __always_inline bool is_address(__u64 word)
{
	return word >= LOWEST_ADDRESS &&
	       (word <= HIGHEST_ADDRESS || word - RETURN_PROBE_CODE_5_LEVELS < RETURN_PROBE_BYTES);
}

/* Goes to the caller's frame; false if there is none. */
static __always_inline bool step_out(struct walk *w, __u64 saved, __u64 caller)
{
	w->pc = caller - 1; /* in the call, not behind it */
	w->inside = false;
	if (saved <= w->fp || saved - w->fp > FURTHEST_FRAME || saved & 7 || !is_address(caller)) {
		/* The outermost function was called with an empty frame pointer; libc's keeps other things there. */
		w->cut = in_node(w, w->pc);
		if (w->fp >= w->outermost)
			w->from = w->fp + 16;
		w->fp = saved;
		return false;
	}
	w->from = w->fp + 16;
	w->fp = saved;
	return true;
}

/* Whether there are frames that the walk must come to, if it is right: a call out of them has lasted since the last one. */
static __always_inline bool is_anchored(struct walk_slot *slot)
{
	return slot->walk.match < 0 && slot->walk.next >= 0 && slot->last[0].fp > slot->walk.kept;
}

/* Keeps what is known before words of the stack are searched that may be left from calls that are over. */
static __always_inline void note_search(struct walk_slot *slot, __u64 from)
{
	struct walk *w = &slot->walk;

	w->first_search.search = from;
	w->first_search.furthest = w->furthest;
	w->first_search.surrounding = w->surrounding;
	w->first_search.left = SEARCHED_WORDS;
	w->first_search.count = w->count;
	w->first_search.shadows = w->shadows;
	w->first_search.next = w->next;
}

/* Frames that a search found lead past those that must come, so they are none. False if no other can be looked for. */
static __always_inline bool search_again(struct walk *w)
{
	if (w->match >= 0 || !w->first_search.search || !w->first_search.left)
		return false;
	w->mode = WALK_AGAIN;
	return true;
}

/* Forgets what the first search led to. It goes on behind the word that did. */
static __always_inline long resume_search(struct walk_slot *slot)
{
	struct walk *w = &slot->walk;
	struct search_state *first = &w->first_search;

	w->count = first->count;
	w->furthest = first->furthest;
	w->surrounding = first->surrounding;
	w->nowhere = false;
	w->shadows = first->shadows;
	w->next = first->next;
	w->search = first->search;
	w->left = first->left;
	w->match = -1;
	w->searches = 1;
	w->cut = w->javascript = w->known = false;
	w->outside = w->stale = false;
	w->crossing = 0;
	w->back = WALK_NEW;
	w->mode = WALK_SEARCH;
	if (first->ip) {
		note(slot, first->search, first->ip, 0, 0, RAW_MACHINE);
		first->count = w->count;
		first->ip = 0;
	}
	w->led = w->count;
	return 0;
}

/*
 * Where the frame pointers end, functions of a library may lie between that use the register for something else: libc's do, and
 * call back (pthread_once, qsort, exit). Or the innermost function is such a one. First it is looked up what they run in.
 */
static __always_inline bool begin_search(struct walk_slot *slot)
{
	struct walk *w = &slot->walk;

	if (w->searches >= MOST_SEARCHES)
		return search_again(w);
	w->back = w->mode;
	w->mode = WALK_AROUND;
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

/* No search leads on. */
static __always_inline long end_search(struct walk *w)
{
	w->cut |= !w->known;
	if (w->back != WALK_COMPARE)
		return w->searches <= 1 || !search_again(w);
	leave_match(w);
	w->ended = true;
	return 0;
}

/* Whether a callback is an add-on's, or runs its functions: those of node lie in its binary, as it was linked. */
static __always_inline bool is_add_on(__u32 binary, __u64 callback)
{
	struct image *image = bpf_map_lookup_elem(&images, &binary);

	return image && (callback == image->call_add_on || callback == image->load_add_on ||
			 !(callback >= image->text_start && callback < image->text_end));
}

/* What a register pointed to that held something else is no frame: it lies outside of the crossing that all of them are in. */
static __always_inline void leave_doubtful(struct walk_slot *slot)
{
	struct walk *w = &slot->walk;

	for (int most = 0; most < DOUBTFUL_FRAMES && w->count > 1; most++) {
		if (slot->now[bounded(w->count - 1, WALK_FRAMES - 1)].fp < w->crossing_sp)
			break;
		w->count--;
	}
}

/*
 * Looks at one crossing: is it the one that the function lies in out of which nothing leads? Functions of an add-on may have large frames, with words in
 * them that are left from calls of node's functions that are over: there no search begins.
 */
static __always_inline long look_around(struct walker *walker)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	struct frame *f;

	/* Frames that are as before are not among the new ones yet. */
	if (!w->searches)
		w->led = w->count + (w->back == WALK_COMPARE ? w->match - w->next : 0);
	w->crossing = 0;
	if (w->surrounding != NO_FRAME) {
		f = frame_at(walker->thread, w->surrounding);
		if (f->sp <= w->furthest) {
			w->entered |= f->kind == CALL_TO_JS;
			w->surrounding = f->outer;
			return 0;
		}
		/* Where C++ called JavaScript the stack may be any; far away is another one, such as one for signals. */
		if (f->kind != CALL_TO_JS && f->sp - w->furthest <= FURTHEST_FRAME &&
		    walker->thread->depth < MAX_DEPTH) {
			w->crossing = f->id;
			w->crossing_start = f->start;
			w->crossing_sp = f->sp;
			if (is_add_on(w->binary, f->callback)) {
				/* The frames that are there name the functions that cannot be read now. */
				if (w->collecting && !w->searches && w->back == WALK_NEW &&
				    is_anchored(slot)) {
					leave_doubtful(slot);
					note_search(slot, w->from);
				}
				w->mode = w->back;
				return end_search(w);
			}
		}
	} else if (walker->thread->entered && (w->entered || !w->javascript) && !w->searches) {
		w->outside = true;
		w->led_known = w->known;
		w->led_matched = w->match >= 0;
	}
	if (w->nowhere)
		return 1;
	if (w->from >= w->outermost) {
		w->mode = w->back;
		if (w->back != WALK_COMPARE)
			return !search_again(w);
		leave_match(w);
		w->ended = true;
		return 0;
	}
	if (!w->searches && w->back == WALK_NEW && is_anchored(slot))
		note_search(slot, w->from);
	w->searches++;
	w->mode = WALK_SEARCH;
	w->search = w->from;
	w->left = SEARCHED_WORDS;
	return 0;
}

/*
 * A function that keeps a frame has pushed its caller's frame pointer: a word of the stack that points to a frame further up, whose
 * return address lies in node. The return address into the function of that frame lies above the word, behind other registers.
 */
static __always_inline long search_word(struct walk_slot *slot)
{
	struct walk *w = &slot->walk;
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
		return !w->fp && !search_again(w);
	}
	if (v > at && v - at <= FURTHEST_FRAME && !(v & 7)) {
		saved = read_word(v);
		if ((!saved || (saved > v && saved - v <= FURTHEST_FRAME)) &&
		    in_node(w, read_word(v + 8) - 1)) {
			w->fp = v;
			w->cut = false;
			w->mode = WALK_CALLER;
			if (w->searches == 1 && w->first_search.search) {
				w->first_search.search = w->search;
				w->first_search.left = w->left - 1;
			}
			return 0;
		}
	}
	if (--w->left)
		return 0;
	return end_search(w);
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
 * Whether a frame that is as the last walk found it is the same call's. The body of a CommonJS module is a closure of its own, which is called once, with the
 * module's first `exports` as its `this`: then all that has called it is as it was.
 */
static __always_inline bool is_same_module(struct raw_frame *k, char *frame)
{
	return k->module && k->module == *(__u32 *)(frame + 56);
}

/*
 * Goes on along frames that are as the last walk found them, and lead to each other as they did then. Where one is not, or lies outside of what
 * has been read, or begins what is known to have stayed, it is walk_frame's turn.
 */
static __always_inline bool compare_frames(struct walk_slot *slot)
{
	struct walk *w = &slot->walk;
	struct raw_frame *k = &slot->last[bounded(w->next, WALK_FRAMES - 1)], *outer;
	__s32 next = w->next;
	__u64 fp = w->fp, offset;
	char *frame;

	if (next < 0 || k->fp != fp || k->pc != w->pc)
		return false;
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
			if (is_same_module(k, frame))
				return true;
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
	return false;
}

/* First pass: one frame, or several that are known. */
static long walk_frame(__u32 index, struct walker *walker)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	__u64 offset, context, saved, position, function, until;
	struct raw_frame *k;
	char *frame;

	if (w->mode == WALK_AGAIN)
		return resume_search(slot);
	if (w->mode == WALK_AROUND)
		return look_around(walker);
	if (w->mode >= WALK_SEARCH)
		return search_word(slot);
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
		w->furthest = k->fp;
		if (--w->copy > w->copy_until)
			return 0;
		w->mode = WALK_NEW;
		return w->ended != 0;
	}
	if (w->mode == WALK_COMPARE && w->javascript && compare_frames(slot)) {
		w->fp = slot->last_end;
		return 1;
	}
	/* Frames of the last walk that lie below are gone. */
	if (w->mode == WALK_NEW && w->next >= 0) {
		for (int i = 0; i < COMPARED_FRAMES; i++) {
			k = &slot->last[bounded(w->next, WALK_FRAMES - 1)];
			if (k->fp >= w->fp)
				break;
			if (k->fp > w->kept && search_again(w))
				return 0;
			if (--w->next < 0)
				break;
		}
	}
	k = &slot->last[bounded(w->next, WALK_FRAMES - 1)];
	if (w->mode == WALK_NEW && w->next >= 0 && k->fp < w->fp)
		return 0;
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
		/* What lies outside is hardly looked at. */
		until = w->kept;
		if (w->next >= 0 && k->until != NO_MODULE && k->fp + k->until * 8ULL < until)
			until = k->fp + k->until * 8ULL;
		if (until - w->window < WALK_WINDOW - FRAME_BYTES)
			bytes = bounded(until - w->window + FRAME_BYTES, WALK_WINDOW - 1);
		w->window_bytes = bytes;
		offset = 0;
		if (bpf_probe_read_user(slot->window, bytes, (void *)w->window)) {
			/* The end of the stack is near. */
			w->window_bytes = FRAME_BYTES;
			if (bpf_probe_read_user(slot->window, FRAME_BYTES, (void *)w->window)) {
				w->window_bytes = 0;
				w->cut = true;
				if (w->mode != WALK_NEW)
					return 1;
				w->back = w->mode;
				w->mode = WALK_AROUND;
				w->nowhere = true;
				return 0;
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
		w->stale |= w->outside && k->function;
		if (w->mode == WALK_NEW) {
			w->mode = WALK_COMPARE;
			w->match = w->next;
		}
		w->next--;
		w->known = true;
		w->furthest = w->fp;
		if (is_same_module(k, frame)) {
			w->fp = slot->last_end;
			return 1;
		}
		if (w->next < 0 && saved == slot->last_end) {
			w->fp = saved;
			return 1;
		}
		if (step_out(w, saved, *(__u64 *)(frame + 48)))
			return 0;
		/* The last walk went further, or nothing has led on there, either. */
		if ((w->next >= 0 || slot->joined_start) && begin_search(slot))
			return 0;
		leave_match(w);
		w->ended = true;
		return 0;
	}
	if (w->mode == WALK_COMPARE) {
		leave_match(w);
		return 0;
	}
	if (w->count >= WALK_FRAMES - 1) {
		w->cut = true;
		return 1;
	}
	context = *(__u64 *)(frame + 32);
	if (in_node(w, w->pc) || is_return_probe(w->pc)) {
		w->known = true;
		if (!w->inside)
			w->furthest = w->fp;
		note(slot, w->fp, w->pc, 0, 0, RAW_MACHINE);
	} else if ((context & 3) == 1 && (function & 3) == 1) {
		bool interpreted = is_offset(position) && (*(__u64 *)(frame + 8) & 3) == 1 &&
				   is_interpreter(slot);

		w->javascript = w->known = true;
		w->stale |= w->outside;
		note(slot, w->fp, w->pc, function, position,
		     interpreted ? RAW_INTERPRETED : RAW_CODE);
		/* It may be none. */
		if (!w->inside && saved > w->fp && saved - w->fp <= FURTHEST_FRAME)
			w->furthest = w->fp;
		/* Elsewhere in it now; but what has called it is as it was. */
		if (w->next > 0 && k->fp == w->fp && k->function == function &&
		    is_same_module(k, frame)) {
			w->match = w->next - 1;
			w->fp = slot->last_end;
			return 1;
		}
	} else if (context == w->builtin_exit) {
		/* A builtin in C++, such as JSON.parse; its function is among the arguments. */
		note(slot, w->fp, w->pc, *(__u64 *)(frame + 64), 0, RAW_BUILTIN);
	} else {
		/* A number that is one of V8's kinds of frames; else no context, so a library. Those of WebAssembly are the program's. */
		bool glue = !(context & 1) && context >> 1 < 64 && !(context && context == w->wasm);

		note(slot, w->fp, w->pc, 0, 0, glue ? RAW_GLUE : RAW_MACHINE);
	}
	return !step_out(w, saved, *(__u64 *)(frame + 48)) && !begin_search(slot);
}

/* Where no search comes to the frames that must be there, what lies below stays unknown, and they are taken. */
static long find_anchor(__u32 index, struct walker *walker)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	__s32 at = slot->last_count - 1 - index;
	__u64 fp = slot->last[bounded(at, WALK_FRAMES - 1)].fp;

	/* And is not the one that was found last, at another place in its function. */
	if (fp <= w->kept ||
	    (w->count && fp == slot->now[bounded(w->count - 1, WALK_FRAMES - 1)].fp))
		return 0;
	slot->walk.match = at;
	return 1;
}

/* The number of a frame's function, by what the thread remembers; and IS_BODY. */
static __always_inline __u32 function_number(struct walker *walker, struct raw_frame *f)
{
	struct walk_slot *slot = walker->slot;
	__u32 hash = (f->function >> 3) ^ (f->function >> 13);
	struct known_function *known = &slot->functions[bounded(hash, WALK_FUNCTIONS - 1)];

	if (known->function != f->function || known->epoch != slot->epoch) {
		known->number = learn_function(walker->thread, &slot->seen, slot->walk.binary,
					       f->function, f->fp);
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

static __always_inline bool is_context(__u32 binary, __u64 tagged)
{
	struct image *image = bpf_map_lookup_elem(&images, &binary);
	__u32 type = instance_type(tagged);

	return image && type >= image->first_context_type && type <= image->last_context_type;
}

/* Whether what lies at -8 of a frame is a context. In a library's frame a register may be saved there, with any of V8's values. */
static __always_inline bool has_context(__u32 binary, __u64 fp)
{
	return is_context(binary, read_word(fp - 8));
}

/* What a frame of V8's machine code is: the number of its function, 0 if it is none, and in *kind whether it is optimised. */
static __always_inline __u32 code_at(struct walker *walker, struct raw_frame *f, __u64 *kind)
{
	struct walk_slot *slot = walker->slot;
	__u32 binary = slot->walk.binary;
	__u64 hash = (f->pc ^ f->function >> 3) * 0x9e3779b97f4a7c15ULL >> 32;
	struct known_place *known = &slot->places[bounded(hash, WALK_PLACES - 1)];

	if (known->pc != f->pc || known->function != f->function || known->epoch != slot->epoch) {
		known->number =
			has_context(binary, f->fp) ? function_number(walker, f) & ~IS_BODY : 0;
		/* Or code that was optimised while a loop ran: its place tells. */
		known->kind = FRAME_COMPILED;
		if (known->number && is_bytecode(binary, read_word(f->fp - 32))) {
			struct baseline_frame baseline = {.function = f->function,
							  .bytecode = read_word(f->fp - 32),
							  .pc = f->pc,
							  .number = known->number};

			/* A frame made for code that was given up: its callee returns to the builtin that goes on in the interpreter. */
			known->kind = FRAME_INTERPRETED;
			if (!is_beside_interpreter(slot, f->pc) || !is_offset(f->position)) {
				known->kind = FRAME_BASELINE;
				write_baseline(walker->thread,
					       bpf_map_lookup_elem(&images, &binary), &baseline);
			}
		}
		known->pc = f->pc;
		known->function = f->function;
		known->epoch = slot->epoch;
	}
	*kind = known->kind;
	return known->number;
}

/* Notes in a frame, of the interpreter's or another, which module's body calls there. */
static __always_inline void note_module(struct walk_slot *slot, struct raw_frame *k, bool body)
{
	struct raw_frame *outer = &slot->last[bounded(slot->last_count - 1, WALK_FRAMES - 1)];
	__u64 receiver;

	k->module = 0;
	k->until = NO_MODULE;
	if (slot->last_count && outer->until != NO_MODULE)
		k->until = outer->until + (outer->fp - k->fp) / 8;
	if (!body)
		return;
	receiver = read_word(k->fp + 16);
	if ((receiver & 3) != 1 || receiver != read_word(k->fp + 24))
		return;
	k->module = receiver;
	k->until = 0;
}

/* Second pass: one new frame, from the outermost inwards. */
static long look_up_frame(__u32 index, struct walker *walker)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	struct raw_frame *f = &slot->now[bounded(w->count - 1 - index, WALK_FRAMES - 1)];
	struct raw_frame *k = &slot->last[bounded(slot->last_count, WALK_FRAMES - 1)];
	struct walk_frame *out = &slot->out.frames[bounded(w->written, WALK_FRAMES - 1)];
	__u32 function = 0;
	__u64 code, position = 0, kind = FRAME_MACHINE;
	bool body = false;

	if (slot->last_count >= WALK_FRAMES)
		return 1;
	*k = *f;
	/* Who has something else in the register has a frame below its caller's all the same: later walks go by that. */
	if (slot->last_count) {
		__u64 outer = slot->last[bounded(slot->last_count - 1, WALK_FRAMES - 1)].fp;

		if (k->fp >= outer)
			k->fp = outer - 8;
	}
	k->stack = w->written; /* until the numbers are known */
	if (f->kind == RAW_INTERPRETED && !w->collecting) {
		function = function_number(walker, f);
		body = function & IS_BODY;
		function &= ~IS_BODY;
	}
	note_module(slot, k, body && function);
	slot->last_count++;
	switch (f->kind) {
	case RAW_GLUE:
		return 0;
	case RAW_MACHINE:
		break;
	case RAW_CODE:
		if (!w->collecting)
			function = code_at(walker, f, &kind);
		break;
	case RAW_INTERPRETED:
		kind = FRAME_INTERPRETED;
		break;
	default:
		if (!w->collecting)
			function = function_number(walker, f) & ~IS_BODY;
		kind = FRAME_COMPILED;
	}
	code = function ? function : f->pc;
	if (!function) {
		/* A function of the API in its first calls: it is the crossing, not a frame. */
		if (f->kind == RAW_BUILTIN)
			return 0;
		kind = FRAME_MACHINE;
	} else if (kind == FRAME_INTERPRETED) {
		position = f->position >> 32;
		if (!slot->interpreter && !(w->running && index == w->count - 1))
			slot->interpreter = f->pc;
	} else {
		/* Where code was collected, or moved from, other code of the same function may come to lie, or another place in the same code. */
		w->hash ^= (__u64)(kind == FRAME_COMPILED ? walker->thread->code_epoch
							  : walker->thread->moved_epoch)
			   << 32;
		if (!(w->running && index == w->count - 1))
			kind |= FRAME_CALLING;
		position = f->pc;
	}
	out->code = code;
	out->position = position | kind << WALK_KIND_SHIFT;
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
static long number_frames(__u32 index, struct walker *walker)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	__s32 at = w->match + 1 + index * NUMBERED_FRAMES;

	for (int i = 0; i < NUMBERED_FRAMES; i++) {
		struct raw_frame *k = &slot->last[bounded(at + i, WALK_FRAMES - 1)];

		if (at + i >= (__s32)slot->last_count)
			return 1;
		k->stack = k->stack ? w->first + k->stack - 1 : w->stack;
	}
	return 0;
}

/* What stands beside the numbers of a walk: one half of another walk's and they do not belong together. */
static __always_inline __u64 check_of(__u64 hash, struct known_walk *k)
{
	return hash ^ ((__u64)k->first << 32 | k->base) * 0xbf58476d1ce4e5b9ULL;
}

/* Finds the number of a walk; true if it has one. Else it gets one, which is kept for the next time in *kept. */
static __always_inline bool number_walk(struct walk *w, struct thread *t,
					struct serial_numbers *given, struct known_walk **kept)
{
	__u64 hash = (w->hash ^ ((__u64)t->serial << 32 | w->stack)) * 0x9e3779b97f4a7c15ULL;
	__u32 index = hash >> 32 & (KNOWN_WALKS - 1);
	struct known_walk *place = bpf_map_lookup_elem(&stacks, &index), known = {};

	if (place)
		known = *place;
	if (known.base == w->stack && known.first && known.check == check_of(hash, &known)) {
		w->first = known.first;
		return true;
	}
	w->first = __sync_fetch_and_add(&given->stack, w->written) + 1;
	known.base = w->stack;
	known.first = w->first;
	known.check = check_of(hash, &known);
	if (place)
		*place = known;
	*kept = place;
	return false;
}

/* Writes the frames of a walk that are new; returns the number of the innermost. */
static __always_inline void write_walk(struct walker *walker)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	__u32 zero = 0, n = w->written;
	struct serial_numbers *given = bpf_map_lookup_elem(&numbers, &zero);
	struct known_walk *kept = 0;

	if (!given || number_walk(w, walker->thread, given, &kept))
		return;
	fill_header(&slot->out.header, walker->thread, RECORD_WALK, bpf_ktime_get_ns());
	slot->out.header.flags = w->cut && !w->stack ? RECORD_CUT : 0;
	slot->out.first = w->first;
	slot->out.base = w->stack;
	slot->out.count = n;
	n = bounded(n, WALK_FRAMES - 1);
	if (bpf_ringbuf_output(&records, &slot->out,
			       __builtin_offsetof(struct record_walk, frames) +
				       n * sizeof(struct walk_frame),
			       wake_flag())) {
		count(COUNTER_RING_FULL, 1);
		/* Nobody was told: no later walk may build on it, nor take its number. */
		if (kept)
			kept->first = 0;
		walker->thread->epoch++;
	}
}

/*
 * The innermost function has just made its frame: that leads on already, but nothing else is in it. A function of V8's own code still has
 * its closure and its context in the registers that it is called with. (In a builtin they may be arguments; its address tells what it is.)
 */
static __always_inline void enter_frame(struct walker *walker, __u64 ip, __u64 bp)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	__u64 function = 0;

#ifdef NODEPROF_TICKS
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

	if (!(ip >= w->builtins_start && ip < w->builtins_end) &&
	    !is_beside_interpreter(slot, ip) && is_context(w->binary, regs->si))
		function = regs->di;
#endif
	w->running = true;
	note(slot, bp, ip, function, 0, function ? RAW_ENTERED : RAW_MACHINE);
	if (!step_out(w, read_word(bp), read_word(bp + 8)))
		begin_search(slot);
}

/*
 * Functions of an add-on or of a library may use the frame pointer for something else, and nothing leads out of them. They run within the innermost
 * crossing all the same, whose stack is known. Those between that call and the innermost function stay unknown.
 */
static __always_inline void join_crossing(struct walk_slot *slot)
{
	struct walk *w = &slot->walk;

	if (w->match >= 0 || !w->crossing || w->furthest > w->crossing_sp)
		return;
	/* What a search found is left from calls that are over. */
	if (w->led < w->count)
		w->count = w->led;
	leave_doubtful(slot);
	w->cut = false;
	w->stack = w->crossing;
	slot->joined = w->surrounding;
	slot->joined_start = w->crossing_start;
}

/* What the last walk saw in a crossing that is over, and was joined to its stack, says nothing of this one. */
static __always_inline void forget_joined(struct walk_slot *slot, struct thread *t)
{
	if (!slot->joined_start ||
	    (slot->joined < t->depth && frame_at(t, slot->joined)->start == slot->joined_start))
		return;
	slot->joined_start = 0;
	slot->last_count = 0;
}

/* Whether a frame pointer leads out of the call into C++ in which the innermost function runs, as none does. */
static __always_inline bool is_beyond_crossing(struct thread *t, __u64 sp, __u64 bp)
{
	__u8 i = t->top[FRAME_CROSSING];
	struct frame *f;

	if (i == NO_FRAME)
		return false;
	f = frame_at(t, i);
	return f->kind != CALL_TO_JS && f->sp > sp && bp > f->sp;
}

static __always_inline void walk_with(struct walker *walker, __u64 ip, __u64 sp, __u64 bp)
{
	struct walk_slot *slot = walker->slot;
	struct walk *w = &slot->walk;
	__u64 caller, stack = walker->thread->stack_start;
	__u32 kept;

	w->outermost = stack ? stack - OUTERMOST_BYTES : ~0ULL;
	w->fp = bp;
	w->pc = ip;
	w->from = sp;
	w->furthest = sp;
	w->surrounding = walker->thread->top[FRAME_CROSSING];
	w->shadows = walker->thread->depth;
	w->inside = true;
	w->match = -1;
	forget_joined(slot, walker->thread);
	w->next = slot->epoch == walker->thread->epoch ? (__s32)slot->last_count - 1 : -1;
	slot->epoch = walker->thread->epoch;
	kept = walker->thread->kept;
	/* The call that begins here: a tick has come between it and its walk. */
	if (kept && w->flags && frame_at(walker->thread, kept - 1)->sp == sp)
		kept--;
	w->kept = kept ? frame_at(walker->thread, kept - 1)->sp : ~0ULL;
	/* It was walked when it began. */
	if (w->collecting)
		w->kept = walker->thread->collecting;
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
	} else if (!in_node(w, ip) && bp - sp < ENTERED_BYTES && !(bp & 7)) {
		enter_frame(walker, ip, bp);
	} else if (!(ip >= w->text_start && ip < w->text_end)) {
		/* In a library, or in code that V8 made: there the frame pointer leads on. */
		caller = read_word(sp) - 1;
		if (in_node(w, caller) && !has_context(w->binary, bp)) {
			/* A system call's function, just called. (In code that V8 made that word may be anything.) */
			note(slot, sp, ip, 0, 0, RAW_MACHINE);
			w->pc = caller;
			w->inside = false;
			w->from = sp + 8;
		} else if (bp <= sp || bp - sp > FURTHEST_FRAME || bp & 7 ||
			   (stack && bp >= stack) || is_beyond_crossing(walker->thread, sp, bp)) {
			/* libc's getenv has a place in the environment in that register, above all frames. */
			note(slot, sp, ip, 0, 0, RAW_MACHINE);
			w->inside = false;
			begin_search(slot);
		} else if (w->collecting && is_anchored(slot)) {
			note_search(slot, sp);
			w->first_search.ip = ip;
		}
	}
	w->running |= w->inside;
	bpf_loop(WALK_STEPS, walk_frame, walker, 0);
	if (w->match < 0 && w->first_search.search) {
		resume_search(slot);
		w->fp = slot->last_end;
		bpf_loop(slot->last_count, find_anchor, walker, 0);
	}
	walker->thread->kept = walker->thread->depth;
	slot->last_end = w->fp;
	w->stack = w->match < 0 ? STACK_NONE : slot->last[bounded(w->match, WALK_FRAMES - 1)].stack;
	if (w->stale && (w->match < 0 || !w->led_matched)) {
		/* A search has led to what is left. It was called by C++ alone, and nothing else is of interest. */
		w->match = -1;
		w->stack = STACK_NONE;
		if (w->led < w->count)
			w->count = w->led;
		w->cut = false;
		w->known = w->led_known;
	}
	if (w->match < 0)
		slot->joined_start = 0;
	join_crossing(slot);
	if (w->count)
		make_room(walker);
	slot->last_count = w->match + 1;
	w->hash = w->cut;
	if (!w->count)
		return;
	bpf_loop(w->count, look_up_frame, walker, 0);
	if (w->written)
		write_walk(walker);
	bpf_loop(WALK_FRAMES / NUMBERED_FRAMES, number_frames, walker, 0);
	if (w->written)
		w->stack = w->first + w->written - 1;
	/* Frames of which none is node's or JavaScript may be none: no later walk goes by where they are said to lie. */
	if (w->match < 0 && !w->known)
		slot->last_count = 0;
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
	if (t->moved_seen != n->moved) {
		t->moved_seen = n->moved;
		t->moved_epoch = t->epoch;
	}
}

/* V8 has collected garbage. A tick that comes in between knows nothing from before, and learns nothing. */
static __always_inline void end_collection(struct thread *t)
{
	t->epoch++;
	asm volatile("" ::: "memory");
	t->collecting = 0;
}

/*
 * Whether objects move. All of a collection runs below the frame that called its beginning: seen above it the thread has left it, though its end was
 * not seen. (Far from there is another stack, such as one for signals.)
 */
static __always_inline bool is_collecting(struct thread *t, __u64 sp)
{
	if (!t->collecting)
		return false;
	if (sp <= t->collecting + 8 || sp - t->collecting > FURTHEST_FRAME)
		return true;
	end_collection(t);
	return false;
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
			slot->joined_start = 0;
			slot->interpreter = 0;
			slot->seen.epoch = 0;
		}
		return slot;
	}
#ifdef NODEPROF_TICKS
	index = bpf_get_smp_processor_id() & (WALK_SLOTS - 1);
	slot = bpf_map_lookup_elem(&tick_walks, &index);
	if (slot && !__sync_val_compare_and_swap(&slot->busy, 0, 1)) {
		slot->last_count = 0;
		slot->joined_start = 0;
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
	__u64 bias;
	__u32 binary;
	bool collecting;

	if (!record_stacks || !t || !t->image)
		return 0;
	binary = t->image - 1;
	image = bpf_map_lookup_elem(&images, &binary);
	if (!image)
		return 0;
	introduce(t);
	collecting = is_collecting(t, sp);
	if (!collecting)
		see_code(t);
	slot = take_slot(t);
	if (!slot)
		return 0;
	w = &slot->walk;
	__builtin_memset(w, 0, sizeof(*w));
	w->flags = flags;
	w->binary = binary;
	w->collecting = collecting;
	bias = bias_of(t, image);
	w->text_start = image->text_start + bias;
	w->text_end = image->text_end + bias;
	w->builtins_start = image->builtins_start + bias;
	w->builtins_end = image->builtins_end + bias;
	w->builtin_exit = image->builtin_exit_frame << 1;
	w->wasm = image->wasm_frame << 1;
	walker.slot = slot;
	walk_with(&walker, ip, sp, bp);
	flags = w->stack;
	slot->busy = 0;
	return flags;
}

#ifndef NODEPROF_TICKS
/*
 * A garbage collection begins. All frames that call it stay as they are until it ends: a walk now, as long as objects can be read, tells those that
 * fall into it whose they are. Nothing but samples does.
 */
static __always_inline void begin_collection(struct pt_regs *ctx, struct thread *t)
{
	__u32 binary = t->image - 1;
	struct image *image = bpf_map_lookup_elem(&images, &binary);

	if (!record_stacks || !image)
		return;
	if (t->collecting)
		end_collection(t);
	if (!image->collection_ends) {
		t->epoch++;
		return;
	}
	if (!take_samples)
		return;
	/* Without this walk the last one would be taken for it. */
	if (!walk_stack(t, ctx->ip, ctx->sp, ctx->bp, WALK_AT_ENTRY))
		t->epoch++;
	asm volatile("" ::: "memory");
	t->collecting = ctx->sp;
}
#endif

#endif
#endif
