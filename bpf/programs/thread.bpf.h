/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What every family shares: the state of a followed thread, its shadow stack, and how records leave.
 */
#ifndef NODEPROF_THREAD_H
#define NODEPROF_THREAD_H

/*
 * Frames of probed functions that are open on a thread. A require inside a require opens one or two
 * (C++ → JavaScript, callback); 64 levels were never reached by webpack or eslint. Deeper ones are
 * counted, not guessed. 64 keeps the state within one 4 KiB allocation, and lets a mask be the
 * bound that the verifier asks for.
 */
#define MAX_DEPTH 64
/* An exit may find frames above its own that never saw their exit (an exception, a longjmp). */
#define MAX_ABANDONED 16

enum frame_family {
	FRAME_CROSSING,
	FRAME_SERIALIZATION,
	FRAME_COMPILE,
	FRAME_SPAN,
	FRAME_FAMILIES
};
#define NO_FRAME 0xff

/* What a FRAME_SPAN is, its kind: one that is left without its exit is told only if somebody asks for it. */
enum span_kind {
	SPAN_STEP,	     /* a step of node's, which is told */
	SPAN_OWN,	     /* only the programs themselves look at its exit */
	SPAN_CALLBACK_SCOPE, /* the end of a callback scope, whose address is the frame's callback */
};

/* Open parts of a V8 string under way: a power of two. */
#define PIECE_STACK 64

/*
 * Parts of a V8 string that is being read. The count does not lie on the programs' stack, where the verifier would count along.
 */
struct piece_stack {
	__u64 count;
	__u64 pieces[PIECE_STACK];
};

struct frame {
	__u64 start;
	__u64 sp;	/* stack pointer at the enter: what the exit is matched by */
	__u64 inner;	/* time in nested frames of the same family */
	__u64 callback; /* crossing: its callback; else the crossing around it */
	__s64 value; /* serialization: bytes, or the register that tells them; import: an argument; else where it returns to */
	__u32 id;    /* crossing: its stack */
	__u8 family;
	__u8 kind; /* crossing: its kind; serialization: where its size is */
	__u8 flags;
	__u8 outer; /* index of the next outer frame of the same family */
};
_Static_assert(sizeof(struct frame) == 48, "the state of a thread must fit one page");

/*
 * Where calls are only counted, no more frames than those of compilations and spans are open, and the room of the others serves
 * the counts of the thread's latest callbacks.
 */
#define COUNTING_DEPTH 32
#define TALLIES	       64

/* Calls that are not in the sums yet. */
struct tally {
	__u64 callback;
	__u32 calls;
	__u8 kind;
	__u8 unused[3];
};

struct counting {
	struct frame frames[COUNTING_DEPTH];
	struct tally tallies[TALLIES];
};

union frames {
	struct frame all[MAX_DEPTH];
	struct counting counting;
};
_Static_assert(sizeof(union frames) == MAX_DEPTH * sizeof(struct frame),
	       "tallies have the room of frames");

/*
 * Where code of a binary lies in the thread's memory, kept beside its other state: the map of all binaries is another page, and another miss of the
 * TLB at each hit.
 */
struct ranges {
	__u64 bias;
	__u64 text_start, text_end;
	__u64 builtins_start, builtins_end;
	__u64 constructor_start, constructor_end;
};

struct thread {
	__u8 depth;
	__u8 top[FRAME_FAMILIES]; /* innermost frame of each family */
	__u8 traced;	   /* it has executed the command: before that it is nodeprof's own fork */
	__u8 phase;	   /* milestones passed, and PHASE_LATER_IMAGE */
	__u8 pending_kind; /* what the next call of a shared site is */
	__u32 pid, tid;
	__u64 syscall_start;
	__u64 events;	  /* written one by one so far */
	__u64 last_start; /* start of the last of them: what was under way then began before it */
	__u64 first_nonstring;	/* of the binary whose probe is being handled */
	__u32 image;		/* 1 + the binary whose code it runs, 0: not known */
	__u32 serial;		/* given at its first walk */
	__u32 epoch;		/* garbage collections so far, above its serial number */
	__u32 code_seen;	/* optimised code that there was at its last walk, made or moved */
	__u32 code_epoch;	/* when there was more than before */
	__u32 moved_seen;	/* code that had been moved at its last walk */
	__u32 moved_epoch;	/* when more had been than before */
	__u64 collecting;	/* stack pointer where the collection under way began; 0: none is */
	__u64 requirer, loaded; /* modules of an import that was just linked */
	__u64 resumed;		/* the request whose callback scope is about to begin */
	__u64 announced;	/* callback that a call site is about to call */
	__u64 code_start;	/* of the program that it executes, in memory; 0: not known */
	__u64 stack_start; /* of its main thread: above are arguments and environment; 0: not known */
	/* The last entry of a callback that goes on in another one: stack pointer (0: none), return address, and where it is. */
	__u64 onward_sp, onward_caller, onward_ip;
	__u8 onward_group;
	__u64 call_at; /* the last call that was seen at its entry only */
	__u32 call_stack;
	__u64 left_cpu; /* when it did; 0: it runs */
	__u64 woken;	/* when it was */
	__u64 wait_ip;	/* where it left the CPU */
	__u32 wait_stack;
	__s16 wait_syscall; /* in which system call; -1: in none */
	__u8 wait_flags;
	__u8 kept;	     /* frames that have been open since the last walk */
	__u32 second, waits; /* waits that count at the limit, since that second */
	__u32 known;	     /* 1 + the binary that the ranges are of */
	__u32 flushes; /* even, and another number after each change of tallies but a call; odd: one is under way */
	__u8 is_listed; /* in the map of those that have tallies */
	__u8 settled;	/* its event loop has started: calls go to the sums at once */
	__u8 entered;	/* calls into JavaScript are in the shadow stack while they last */
	__u8 round;	/* of its process, see round_of */
	/* Not in the counters yet. */
	__u32 hits, syscalls;
	__u64 counted_at; /* tick of the kernel's clock in which they went there last */
	struct ranges ranges;
	struct piece_stack open_pieces;
	union frames frames;
};
_Static_assert(sizeof(struct thread) <= 4096 - 64,
	       "one page, with the kernel's own words beside it");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct sum_key);
	__type(value, struct sum);
} sums SEC(".maps");

/* Calls whose stack found no room in the sums, or no memory at the moment: their count and their times stay exact. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct sum_key);
	__type(value, struct sum);
} stackless_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTER_MAX);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_IMAGES);
	__type(key, __u32);
	__type(value, struct image);
} images SEC(".maps");

/* Processes whose main thread has tallies: who ends a recording meanwhile asks there. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u8);
} tallying SEC(".maps");

/*
 * One process whose main thread is to do without tallies from its next change of them on; 0: none. Two callbacks that a program calls in turn may share a tally, and
 * then no two looks at all of them are alike: who reads them asks for this.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} untallied SEC(".maps");

/* Calls of one thread that are written one by one; later ones are summed. */
volatile const __u64 event_limit = 200000;
/* No times, no nesting: every call only adds to a sum, and no exit is probed. */
volatile const bool count_only = false;
/* Entries of callbacks are also counted apart, to be compared with the crossings. */
volatile const bool verify = false;
/* Families whose syscalls are recorded. */
volatile const bool record_files = true;
/* The reader looks in by itself all the while: nothing need wake it but much that waits. */
volatile const bool looks_in = false;
/* Mappings of executable code are recorded: addresses will be named. */
volatile const bool record_mappings = false;

/* Not inlined: the kernel would patch the look-up in at each of forty places, and copies the whole program for each. */
__noinline int count(__u32 which, __u64 by)
{
	__u64 *slot = bpf_map_lookup_elem(&counters, &which);

	if (slot)
		*slot +=
			by; /* per CPU: a preempted increment may be lost, so only for losses and cost */
	return 0;
}

/*
 * A thread's own counts go to the counters when there are so many, with the first hit in each tick of the kernel's clock (1 to 10 ms), at each milestone and when
 * it ends: those of a thread that lives when a trace ends may be less by that. They tell what tracing costs, and that a program is not idle.
 */
#define FLUSH_AT 16

__noinline int flush_counters(struct thread *t)
{
	if (!t)
		return 0;
	count(COUNTER_HITS, t->hits);
	count(COUNTER_SYSCALLS, t->syscalls);
	t->hits = t->syscalls = 0;
	return 0;
}

static __always_inline void count_hit(struct thread *t)
{
	/* The kernel makes it a load of one word. */
	__u64 tick = bpf_jiffies64();

	if (++t->hits >= FLUSH_AT || tick != t->counted_at) {
		t->counted_at = tick;
		flush_counters(t);
	}
}

static __always_inline void count_syscall(struct thread *t)
{
	if (++t->syscalls >= FLUSH_AT)
		flush_counters(t);
}

#ifdef NODEPROF_KERNEL_H
/*
 * Whether the current thread may have a state. Threads of the rest of the host have no storage of any program, which one word tells: they are spared the
 * look-up at each of their syscalls and switches. Verified once: each direct load of a pointer from a task makes the verifier go through all types of the
 * kernel four times, which takes 1.4 ms.
 */
__noinline bool has_storage(void)
{
	return bpf_get_current_task_btf()->bpf_storage;
}

/* Its state, if it has any. */
static __always_inline struct thread *thread_here(void)
{
	return has_storage() ? bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0) : 0;
}

/* Phases are those of the main thread, which passes the milestones: any other one is in the phase that the main thread has reached. */
__noinline int follow_phase(struct thread *t)
{
	struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
	struct thread *of_leader = leader ? bpf_task_storage_get(&threads, leader, 0, 0) : 0;

	if (t && of_leader && of_leader->pid == t->pid)
		t->phase = of_leader->phase;
	return 0;
}

/* Whether the main thread of the current one's process is followed no longer: it was when it made this one, or one that did. */
__noinline bool is_left(struct thread *t)
{
	struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
	struct thread *of_leader = leader ? bpf_task_storage_get(&threads, leader, 0, 0) : 0;

	return t && !(of_leader && of_leader->pid == t->pid);
}
#endif

static __always_inline struct thread *current_thread(void)
{
	struct thread *t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);

	return t && t->traced ? t : 0;
}

/* How far behind the addresses that the linker wrote the thread's binary lies: 0 unless that is position-independent. */
static __always_inline __u64 bias_of(struct thread *t, struct image *image)
{
	return image->position_independent && t->code_start ? t->code_start - image->segment : 0;
}

/* Learns where code of a binary lies in this thread's memory. */
__noinline int learn_binary(struct thread *t, __u32 binary)
{
	struct image *image = bpf_map_lookup_elem(&images, &binary);

	if (!t || !image)
		return 0;
	t->known = binary + 1;
	t->first_nonstring = image->first_nonstring;
	t->ranges.bias = bias_of(t, image);
	t->ranges.text_start = image->text_start;
	t->ranges.text_end = image->text_end;
	t->ranges.builtins_start = image->builtins_start;
	t->ranges.builtins_end = image->builtins_end;
	t->ranges.constructor_start = image->constructor_start;
	t->ranges.constructor_end = image->constructor_end;
	return 0;
}

/* Where code of a binary lies; 0: it is not known. */
static __always_inline struct ranges *ranges_of(struct thread *t, __u32 binary)
{
	if (t->known != binary + 1) {
		learn_binary(t, binary);
		if (t->known != binary + 1)
			return 0;
	}
	return &t->ranges;
}

/* A function's address as the linker wrote it, if it is one of the binary, else as it is. */
static __always_inline __u64 as_linked(struct thread *t, __u32 binary, __u64 address)
{
	struct ranges *ranges = ranges_of(t, binary);
	__u64 linked;

	if (!ranges)
		return address;
	linked = address - ranges->bias;
	return linked >= ranges->text_start && linked < ranges->text_end ? linked : address;
}

/* By the node that it runs now. */
static __always_inline __u8 milestones_passed(struct thread *t)
{
	return t->phase & (PHASE_LATER_IMAGE - 1);
}

static __always_inline void fill_header(struct record_header *h, struct thread *t, __u8 type,
					__u64 time)
{
	h->type = type;
	h->flags = 0;
	h->kind = 0;
	h->phase = t->phase;
	h->pid = t->pid;
	h->tid = t->tid;
	h->id = 0;
	h->time = time;
	h->stack = STACK_NONE;
	h->extra = 0;
}

static __always_inline struct frame *frame_at(struct thread *t, __u32 index)
{
	return &t->frames.all[index & (MAX_DEPTH - 1)];
}

/*
 * A wake-up costs more than the record: the reader looks in by itself now and then, and is woken when this many bytes
 * wait for it, a quarter of the buffer. At a million records a second the rest of 8 MiB lasts another 75 ms.
 */
volatile const __u64 wake_at = 2 << 20;

/* Where the buffer's writers were when one of them woke the reader. */
static __u64 woken_at;

/*
 * Once for each wake_at that is written: until the reader runs, which on a busy machine can be milliseconds
 * later, every further wake-up would only be an interrupt of the program.
 */
static __always_inline __u64 wake_flag(void)
{
	if (bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) < wake_at)
		return BPF_RB_NO_WAKEUP;
	__u64 written = bpf_ringbuf_query(&records, BPF_RB_PROD_POS);
	if (written - woken_at < wake_at)
		return BPF_RB_NO_WAKEUP;
	woken_at = written;
	return BPF_RB_FORCE_WAKEUP;
}

/* For what somebody may wait for. */
static __always_inline __u64 wake_now(void)
{
	return looks_in ? wake_flag() : BPF_RB_FORCE_WAKEUP;
}

#define RESERVE(type_, variable)                                                                   \
	struct type_ *variable = bpf_ringbuf_reserve(&records, sizeof(*variable), 0);              \
	if (!variable)                                                                             \
	count(COUNTER_RING_FULL, 1)

static __always_inline void reset_stack(struct thread *t)
{
	t->depth = t->kept = 0;
	t->collecting = 0;
	t->top[0] = t->top[1] = t->top[2] = t->top[3] = NO_FRAME;
	t->pending_kind = CALL_SLOW;
	t->entered = 0;
}

/* The callback of the innermost crossing into C++, or none. */
static __always_inline __u64 current_callback(struct thread *t)
{
	__u8 i = t->top[FRAME_CROSSING];

	return i == NO_FRAME ? CALLBACK_NONE : frame_at(t, i)->callback;
}

/*
 * The stack of the innermost crossing, into C++ or from there. Of what only C++ does. So where JavaScript was called last, a call
 * of C++ since then whose end is not seen has not ended.
 */
static __always_inline __u32 crossing_stack(struct thread *t)
{
	__u8 i = t->top[FRAME_CROSSING];

	if (i == NO_FRAME)
		return STACK_NONE;
	if (frame_at(t, i)->kind == CALL_TO_JS && t->call_at > frame_at(t, i)->start)
		return t->call_stack;
	return frame_at(t, i)->id;
}

/* The stack of the innermost crossing whose end would be seen, into C++ or from there. */
static __always_inline __u32 entered_stack(struct thread *t)
{
	__u8 i = t->top[FRAME_CROSSING];

	return i == NO_FRAME ? STACK_NONE : frame_at(t, i)->id;
}

/* A thread that calls has hit a probe, so its binary is known. */
static __always_inline struct sum_key call_key(struct thread *t, __u64 callback, __u8 kind,
					       __u32 stack)
{
	struct sum_key key = {
		.callback = callback,
		.pid = t->pid,
		.id = t->image - 1,
		.kind = kind,
		.phase = t->phase,
		.round = t->round,
		.stack = stack,
	};

	return key;
}

/* The sum of a key in one of the maps of sums, which is made if there is none; 0: there is no room. */
static __always_inline struct sum *sum_in(void *map, struct sum_key *key)
{
	struct sum *s = bpf_map_lookup_elem(map, key);

	if (!s) {
		struct sum zero = {};

		bpf_map_update_elem(map, key, &zero, BPF_NOEXIST);
		s = bpf_map_lookup_elem(map, key);
	}
	return s;
}

/* Where a call counts for which there is no room with its stack; 0: there is none for it either. */
static __always_inline struct sum *stackless_sum(struct sum_key *key)
{
	struct sum_key own = *key;
	struct sum *s;

	own.stack = STACK_NONE;
	s = sum_in(&stackless_sums, &own);
	if (!s)
		count(COUNTER_SUMS_FULL, 1);
	else if (key->stack)
		count(COUNTER_STACKS_LOST, 1);
	return s;
}

/* Adds a call to the sums. */
__noinline int add_to_sum(struct sum_key *key, __u64 duration, __u64 inner, __s64 bytes, bool timed)
{
	struct sum *s;

	if (!key)
		return 0;
	s = sum_in(&sums, key);
	if (!s)
		s = stackless_sum(key);
	if (!s)
		return 0;
	__sync_fetch_and_add(&s->calls, 1);
	if (timed) {
		__sync_fetch_and_add(&s->timed, 1);
		__sync_fetch_and_add(&s->total, duration);
		__sync_fetch_and_add(&s->own, duration - inner);
	}
	if (bytes > 0)
		__sync_fetch_and_add(&s->bytes, bytes);
	return 0;
}

/* Adds what a tally has to the sums. */
__noinline int flush_tally(struct thread *t, __u32 index)
{
	struct sum_key key;
	struct tally *tally;
	struct sum *s;

	if (!t)
		return 0;
	tally = &t->frames.counting.tallies[index & (TALLIES - 1)];
	if (!tally->calls)
		return 0;
	key = call_key(t, tally->callback, tally->kind, STACK_NONE);
	/* Who reads both meanwhile sees by these that he is to read again. */
	t->flushes++;
	barrier();
	s = sum_in(&sums, &key);
	if (s)
		__sync_fetch_and_add(&s->calls, tally->calls);
	else
		count(COUNTER_SUMS_FULL, tally->calls);
	tally->calls = 0;
	barrier();
	t->flushes++;
	return 0;
}

/* To be called before its phase changes, and before it goes. */
__noinline int flush_tallies(struct thread *t)
{
	__u32 pid;

	if (!t || !count_only || !t->is_listed)
		return 0;
	for (__u32 i = 0; i < TALLIES; i++)
		flush_tally(t, i);
	pid = t->pid;
	bpf_map_delete_elem(&tallying, &pid);
	t->is_listed = 0;
	return 0;
}

/*
 * Calls of a thread that count mode writes by themselves before the first milestone: Node marks that one late, with an instant in the past,
 * and only the instants of calls tell in which phase they are. A start without a snapshot has some 400.
 */
#define EARLY_CALLS 4096

/*
 * Whether a call shall be written by itself: the first ones of a thread, those that were under way when there were enough of these, which
 * tell what runs until they end (at most as many as are nested), and those that never ended.
 */
static __always_inline bool by_itself(struct thread *t, __u64 start, __u8 flags)
{
	if (flags & RECORD_UNFINISHED)
		return true;
	if (t->events >= (count_only && !milestones_passed(t) ? EARLY_CALLS : event_limit))
		return !count_only && start < t->last_start;
	t->events++;
	t->last_start = start;
	return true;
}

static __always_inline void write_call(struct thread *t, __u64 start, __u64 duration, __u64 inner,
				       __u64 callback, __u64 parent, __u8 kind, __u8 flags,
				       __u32 stack)
{
	if (!by_itself(t, start, flags)) {
		struct sum_key key = call_key(t, callback, kind, stack);

		add_to_sum(&key, duration, inner, 0, !(flags & RECORD_UNTIMED));
		return;
	}
	RESERVE(record_call, r);
	if (!r)
		return;
	fill_header(&r->header, t, RECORD_CALL, start);
	r->header.kind = kind;
	r->header.flags = flags;
	r->header.id = t->image - 1;
	r->header.stack = stack;
	r->duration = duration;
	r->inner = inner;
	r->callback = callback;
	r->parent = parent;
	bpf_ringbuf_submit(r, wake_flag());
}

/* Whether calls of this thread may wait in its tallies: only where somebody will find them. Other threads may outlive all that is known of the process. */
static __always_inline bool may_tally(struct thread *t)
{
	__u32 pid = t->pid;
	__u8 one = 1;

	if (t->is_listed)
		return true;
	if (t->settled || t->pid != t->tid)
		return false;
	t->is_listed = !bpf_map_update_elem(&tallying, &pid, &one, BPF_ANY);
	return t->is_listed;
}

/* To be called before a tally changes hands: whether the thread is to do without them, as it does from now on. */
__noinline bool gives_up_tallies(struct thread *t)
{
	__u32 only = 0;
	__u32 *pid = bpf_map_lookup_elem(&untallied, &only);

	if (!t || !pid || *pid != t->pid)
		return false;
	flush_tallies(t);
	t->settled = 1;
	return true;
}

/* So many calls of one tally go to the sums at once. */
#define MOST_CALLS (1U << 30)

/*
 * Counts a call where calls are only counted: in the thread's own memory, which the hit has in the cache already. A call in the sums costs
 * a hash and two more pages.
 */
static __always_inline void tally_call(struct thread *t, __u64 callback, __u8 kind, __u64 now)
{
	__u32 index = (callback ^ callback >> 5 ^ callback >> 11) & (TALLIES - 1);
	struct tally *tally = &t->frames.counting.tallies[index];
	bool tallies = milestones_passed(t) && may_tally(t);
	bool changes =
		tally->callback != callback || tally->kind != kind || tally->calls >= MOST_CALLS;

	if (!tallies || (changes && gives_up_tallies(t))) {
		write_call(t, now, 0, 0, callback, CALLBACK_NONE, kind, RECORD_UNTIMED, STACK_NONE);
		return;
	}
	if (changes) {
		flush_tally(t, index);
		tally->callback = callback;
		tally->kind = kind;
		barrier();
		t->flushes += 2;
		barrier();
	}
	tally->calls++;
}

static __always_inline void write_serialization(struct thread *t, struct frame *f, __u64 duration,
						__u8 flags)
{
	if (!by_itself(t, f->start, flags)) {
		struct sum_key key = {.callback = f->callback,
				      .pid = t->pid,
				      .id = f->id,
				      .phase = t->phase,
				      .family = 1,
				      .round = t->round,
				      .stack = crossing_stack(t)};
		bool nested = flags & RECORD_NESTED;

		add_to_sum(&key, nested ? 0 : duration, nested ? 0 : f->inner, f->value,
			   !(flags & RECORD_UNTIMED));
		return;
	}
	RESERVE(record_serialization, r);
	if (!r)
		return;
	fill_header(&r->header, t, RECORD_SERIALIZATION, f->start);
	r->header.id = f->id;
	r->header.flags = flags;
	r->header.stack = crossing_stack(t);
	r->duration = duration;
	r->inner = f->inner;
	r->bytes = f->value;
	r->parent = f->callback;
	bpf_ringbuf_submit(r, wake_flag());
}

/* ---- what asynchronous requests lead to ---- */

static __always_inline void write_continuation(struct thread *t, __u8 kind, __u64 scope,
					       __u64 resource, __u32 stack, __u64 now)
{
	/* Where calls are only summed up, nobody asks any more what each is a consequence of. What has begun must end. */
	if (t->events >= event_limit && kind != CONTINUATION_ENDED)
		return;
	RESERVE(record_continuation, r);
	if (!r)
		return;
	fill_header(&r->header, t, RECORD_CONTINUATION, now);
	r->header.kind = kind;
	r->header.stack = stack;
	r->scope = scope;
	r->resource = resource;
	bpf_ringbuf_submit(r, wake_flag());
}

/* Writes the record of a frame that has ended (or never will). */
__noinline int write_frame(struct thread *t, __u32 index, __u64 duration, __u32 flags)
{
	struct frame *f;

	if (!t)
		return 0;
	f = frame_at(t, index);
	flags |= f->flags;
	switch (f->family) {
	case FRAME_CROSSING: {
		__u64 parent = CALLBACK_NONE;

		if (f->outer != NO_FRAME)
			parent = frame_at(t, f->outer)->callback;
		write_call(t, f->start, duration, f->inner, f->callback, parent, f->kind, flags,
			   f->id);
		break;
	}
	case FRAME_SERIALIZATION:
		write_serialization(t, f, duration, flags);
		break;
	case FRAME_COMPILE: {
		RESERVE(record_compile, r);
		if (!r)
			break;
		fill_header(&r->header, t, RECORD_COMPILE, f->start);
		r->header.id = f->id;
		r->header.flags = flags;
		r->header.kind = f->kind;
		r->duration = duration;
		r->inner = f->inner;
		bpf_ringbuf_submit(r, wake_flag());
		break;
	}
	case FRAME_SPAN: {
		if (f->kind == SPAN_CALLBACK_SCOPE)
			write_continuation(t, CONTINUATION_ENDED, f->callback, 0, STACK_NONE,
					   f->start + duration);
		if (f->kind != SPAN_STEP)
			break;
		RESERVE(record_span, r);
		if (!r)
			break;
		fill_header(&r->header, t, RECORD_SPAN, f->start);
		r->header.id = f->id;
		r->header.flags = flags;
		r->duration = duration;
		bpf_ringbuf_submit(r, wake_flag());
		break;
	}
	}
	return 0;
}

/* What precedes the text; the same as in struct record_text. */
struct text_head {
	struct record_header header;
	__u64 duration;
	__s64 result;
	__s32 descriptor;
	__u32 length;
};
_Static_assert(sizeof(struct text_head) == TEXT_OFFSET, "the head of struct record_text");

/* Removes the innermost frame. */
static __always_inline int drop_frame(struct thread *t)
{
	struct frame *f;

	if (!t->depth)
		return -1;
	t->depth--;
	if (t->kept > t->depth)
		t->kept = t->depth;
	f = frame_at(t, t->depth);
	t->top[f->family & 3] = f->outer;
	return t->depth;
}

/* A frame takes its time from the one around it. */
static __always_inline void tell_outer(struct thread *t, struct frame *f, __u64 now)
{
	if (f->outer != NO_FRAME)
		frame_at(t, f->outer)->inner += now - f->start;
}

/* Ends the innermost frame, whose exit the program does not pass. Returns its index; negative if there is none. */
static __always_inline int abandon_frame(struct thread *t, __u64 now)
{
	int i = drop_frame(t);

	if (i < 0)
		return i;
	tell_outer(t, frame_at(t, i), now);
	/* Its value is still the address of the size. */
	if (frame_at(t, i)->family == FRAME_SERIALIZATION &&
	    frame_at(t, i)->kind == SIZE_FIELD_AT_RETURN)
		frame_at(t, i)->value = -1;
	write_frame(t, i, now - frame_at(t, i)->start, RECORD_UNFINISHED);
	return i;
}

/*
 * Drops the frames that the program left without passing their exit: their stack pointers lie below the
 * one of a frame that is alive now (the stack grows downwards).
 */
__noinline int drop_abandoned(struct thread *t, __u64 below, __u64 now)
{
	if (!t)
		return 0;
	for (int n = 0; n < MAX_ABANDONED; n++) {
		if (!t->depth || frame_at(t, t->depth - 1)->sp >= below)
			break;
		if (abandon_frame(t, now) < 0)
			break;
		count(COUNTER_ABANDONED, 1);
	}
	return 0;
}

static __always_inline bool has_abandoned(struct thread *t, __u64 below)
{
	return t->depth && frame_at(t, t->depth - 1)->sp < below;
}

static __always_inline __u8 most_frames(void)
{
	return count_only ? COUNTING_DEPTH : MAX_DEPTH;
}

/* Opens a frame and returns its index; negative if the shadow stack is full. */
__noinline int push_frame(struct thread *t, __u32 family, __u64 sp, __u64 now)
{
	struct frame *f;
	__u8 i;

	if (!t)
		return -1;
	if (has_abandoned(t, sp + 1))
		drop_abandoned(t, sp + 1, now);
	i = t->depth;
	if (i >= most_frames()) {
		count(COUNTER_DEPTH, 1);
		return -1;
	}
	f = frame_at(t, i);
	f->start = now;
	f->sp = sp;
	f->inner = 0;
	f->value = -1;
	f->family = family;
	f->kind = 0;
	f->flags = 0;
	f->id = STACK_NONE;
	f->outer = t->top[family & 3];
	f->callback = current_callback(t);
	t->top[family & 3] = i;
	t->depth = i + 1;
	return i;
}

/*
 * Closes the frame of an exit: the innermost one, whose stack pointer must lie within [lowest, highest] and
 * whose family must be right. Returns its index (it stays readable until the next push); negative, and
 * counted, if the enter was not seen.
 */
__noinline int pop_frame(struct thread *t, __u32 family, __u64 lowest, __u64 highest, __u64 now)
{
	struct frame *f;

	if (!t)
		return -1;
	if (has_abandoned(t, lowest))
		drop_abandoned(t, lowest, now);
	f = frame_at(t, t->depth - 1);
	/* Below the lowest: more frames than one hit may drop were abandoned at once. */
	if (!t->depth || f->sp > highest || f->sp < lowest || f->family != family) {
		/* Of a call that was nested too deep, which has been counted as that. */
		if (!(t->depth >= most_frames() && f->sp > highest))
			count(COUNTER_UNMATCHED_EXIT, 1);
		return -1;
	}
	tell_outer(t, f, now);
	return drop_frame(t);
}

/* A plain `switch` is merged by the compiler into a load from a computed context pointer, which the verifier refuses. */
#define LOAD_REGISTER(field)                                                                       \
	asm volatile("%0 = *(u64 *)(%1 + %2)"                                                      \
		     : "=r"(v)                                                                     \
		     : "r"(ctx), "i"(__builtin_offsetof(struct pt_regs, field)))

static __noinline __u64 register_value(struct pt_regs *ctx, __u32 number)
{
	__u64 v = 0;

	switch (number & 15) {
	case 0:
		LOAD_REGISTER(ax);
		break;
	case 1:
		LOAD_REGISTER(cx);
		break;
	case 2:
		LOAD_REGISTER(dx);
		break;
	case 3:
		LOAD_REGISTER(bx);
		break;
	case 4:
		LOAD_REGISTER(sp);
		break;
	case 5:
		LOAD_REGISTER(bp);
		break;
	case 6:
		LOAD_REGISTER(si);
		break;
	case 7:
		LOAD_REGISTER(di);
		break;
	case 8:
		LOAD_REGISTER(r8);
		break;
	case 9:
		LOAD_REGISTER(r9);
		break;
	case 10:
		LOAD_REGISTER(r10);
		break;
	case 11:
		LOAD_REGISTER(r11);
		break;
	case 12:
		LOAD_REGISTER(r12);
		break;
	case 13:
		LOAD_REGISTER(r13);
		break;
	case 14:
		LOAD_REGISTER(r14);
		break;
	default:
		LOAD_REGISTER(r15);
		break;
	}
	return v;
}

/*
 * A register of a struct that lies in the kernel's memory. Not inlined: each would have a place of its own on the stack, of
 * which a program and all it calls have 512 bytes.
 */
static __noinline __u64 kernel_register(unsigned long *of)
{
	__u64 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), of);
	return v;
}

/* A word of the program's memory, 0 where it cannot be read: then the kernel clears it. */
static __always_inline __u64 word_at(__u64 address)
{
	__u64 v;

	bpf_probe_read_user(&v, sizeof(v), (void *)address);
	return v;
}

/*
 * The same, verified once: there are a hundred places that read a word. Where calls nest too deep (the kernel permits eight), word_at serves.
 */
__noinline __u64 read_word(__u64 address)
{
	return word_at(address);
}

#endif
