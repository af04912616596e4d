/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What the probes of each family do at a hit. `now` is CLOCK_MONOTONIC in ns. */
#ifndef NODEPROF_FAMILIES_H
#define NODEPROF_FAMILIES_H

struct cookie {
	__u32 id; /* the cookie's id and binary: what goes into a record */
	__u8 action, detail, register_a, register_b, flags, binary;
};

static __always_inline struct cookie split_cookie(__u64 raw)
{
	struct cookie c = {
		.action = raw,
		.detail = raw >> COOKIE_DETAIL_SHIFT,
		.register_a = (raw >> COOKIE_REGISTER_A_SHIFT) & 15,
		.register_b = (raw >> COOKIE_REGISTER_B_SHIFT) & 15,
		.flags = raw >> COOKIE_FLAGS_SHIFT,
		.binary = raw >> COOKIE_BINARY_SHIFT,
		.id = raw >> COOKIE_BINARY_SHIFT,
	};
	return c;
}

/* Tells the string functions what a string is in the binary of this probe. */
static __always_inline void know_strings(struct thread *t, struct cookie *c)
{
	if (!ranges_of(t, c->binary))
		t->first_nonstring = 0;
}

/* The stack of an event at a function's entry: inside a crossing into C++ that one's, which was walked at its enter. */
static __always_inline __u32 event_stack(struct pt_regs *ctx, struct thread *t)
{
	__u8 i = t->top[FRAME_CROSSING];

	if (i != NO_FRAME && frame_at(t, i)->kind != CALL_TO_JS)
		return frame_at(t, i)->id;
	return walk_stack(t, ctx->ip, ctx->sp, ctx->bp, WALK_AT_ENTRY);
}

/* Where arguments lie in a FunctionCallbackInfo that is a frame. */
#define CALLBACK_INFO_ARGUMENTS 80

/* Writes a record with the path that `source` tells to be at this probe; `a` and `b`: the registers of the cookie. */
__noinline int write_path(struct thread *t, struct text_head *h, __u64 raw, __u64 a, __u64 b)
{
	__u64 handle = 0;

	if (!t || !h)
		return 0;
	switch ((raw >> COOKIE_DETAIL_SHIFT) & 15) {
	case PATH_STRING_VIEW:
		return write_text(t, h, b, a & 0x7fffffff);
	case PATH_C_STRING:
		return write_text(t, h, a, -1);
	case PATH_V8_HANDLE:
		handle = a;
		break;
	case PATH_ARGUMENT:
		/*
		 * FunctionCallbackInfo: implicit_args, values, length. Arguments lie upwards from values since
		 * V8 9 (reversed arguments). Since V8 14.6 it is the frame itself: length comes first, no address, and
		 * arguments are its last words.
		 */
		handle = read_word(a) >> 32 ? read_word(a + 8) : a + CALLBACK_INFO_ARGUMENTS;
		if (handle)
			handle += 8 * ((raw >> COOKIE_REGISTER_B_SHIFT) & 15);
		break;
	case PATH_COMPILER_SOURCE:
		/* v8::ScriptCompiler::Source: source_string at 0, resource_name at 8. */
		handle = read_word(a + 8);
		break;
	}
	return write_string(t, h, handle ? read_word(handle) : 0);
}

/* ---- crossings ---- */

/* What is called at a site that may serve both calls and constructions. */
static __always_inline __u8 kind_of_call(struct pt_regs *ctx, struct thread *t, struct cookie *c)
{
	struct ranges *ranges;
	__u64 caller;

	if (c->detail == CALL_BY_MARK)
		return t->pending_kind;
	if (c->detail != CALL_BY_CALLER)
		return c->detail;
	ranges = ranges_of(t, c->binary);
	if (!ranges)
		return CALL_SLOW;
	caller = read_word(ctx->bp + 8) - ranges->bias;
	return caller >= ranges->constructor_start && caller < ranges->constructor_end
		       ? CALL_CONSTRUCT
		       : CALL_SLOW;
}

static __always_inline void call_enter(struct pt_regs *ctx, struct thread *t, struct cookie *c,
				       __u64 a, __u64 now)
{
	__u8 kind = kind_of_call(ctx, t, c);
	__u64 callback;
	int i;

	if (c->flags & COOKIE_IN_SLOT)
		a = read_word(a - 8 * (__u64)(c->id >> 8));
	callback = as_linked(t, c->binary, a);
	t->announced = a;
	if (count_only) {
		tally_call(t, callback, kind, now);
		return;
	}
	i = push_frame(t, FRAME_CROSSING, ctx->sp, now);
	if (i < 0) {
		write_call(t, now, 0, 0, callback, current_callback(t), kind, RECORD_UNTIMED,
			   walk_stack(t, ctx->ip, ctx->sp, ctx->bp, WALK_FROM_JAVASCRIPT));
		return;
	}
	frame_at(t, i)->callback = callback;
	frame_at(t, i)->kind = kind;
	frame_at(t, i)->id = walk_stack(t, ctx->ip, ctx->sp, ctx->bp, WALK_FROM_JAVASCRIPT);
}

static __always_inline void call_exit(struct pt_regs *ctx, struct thread *t, __u64 now)
{
	/* `push %rbp` sites see the stack pointer 8 above the frame pointer that the exit sees. */
	int i = pop_frame(t, FRAME_CROSSING, ctx->sp, ctx->bp + 16, now);

	if (i >= 0)
		write_frame(t, i, now - frame_at(t, i)->start, 0);
}

/* A probe may lie a few instructions behind the entry, where the first one would be slow. */
#define MAX_PROBE_DISTANCE 64

/* A callback's own code is no larger; what V8 calls it from lies further away. */
#define MAX_CALLBACK_BYTES 4096

/* Whether the callback that is entered here was entered by another one, in whose place it is or which has called it. */
static __always_inline bool is_onward(struct pt_regs *ctx, struct thread *t, struct cookie *c)
{
	bool onward = false;
	__u64 caller;

	/* Its group. */
	if (!c->detail) {
		t->onward_sp = 0;
		return false;
	}
	caller = read_word(ctx->sp);
	if (t->onward_sp && t->onward_group == c->detail && t->onward_ip != ctx->ip)
		onward = (ctx->sp == t->onward_sp && caller == t->onward_caller) ||
			 (ctx->sp < t->onward_sp && caller - t->onward_ip < MAX_CALLBACK_BYTES);
	if (onward) {
		/* What goes on once more is remembered as it began. */
		if (!(c->flags & COOKIE_GOES_ON))
			t->onward_sp = 0;
		t->announced = 0;
		return true;
	}
	t->onward_sp = c->flags & COOKIE_GOES_ON ? ctx->sp : 0;
	t->onward_caller = caller;
	t->onward_group = c->detail;
	t->onward_ip = ctx->ip;
	return false;
}

static __always_inline void entry_only(struct pt_regs *ctx, struct thread *t, struct cookie *c,
				       __u64 now)
{
	struct ranges *ranges = ranges_of(t, c->binary);
	__u64 caller, callback = CALLBACK_BY_INDEX | (c->id >> 8);
	__u8 kind = c->action == ACTION_FAST_ENTRY	 ? CALL_FAST
		    : c->action == ACTION_CALLBACK_ENTRY ? CALL_SLOW
							 : CALL_GETTER;

	if (!ranges)
		return;
	if (c->action == ACTION_CALLBACK_ENTRY) {
		struct sum_key key = {.callback = callback,
				      .pid = t->pid,
				      .id = t->image - 1,
				      .family = 2,
				      .round = t->round};

		if (verify)
			add_to_sum(&key, 0, 0, 0, false);
		if (!(c->flags & COOKIE_IS_CROSSING))
			return;
	}
	if (c->action != ACTION_FAST_ENTRY && is_onward(ctx, t, c))
		return;
	if (c->action != ACTION_FAST_ENTRY) {
		/* Has a call site just announced this very function? (Builtins may be mapped anywhere.) */
		__u64 announced = t->announced;

		t->announced = 0;
		if (announced && ctx->ip - announced < MAX_PROBE_DISTANCE)
			return;
	}
	if (c->action != ACTION_PROPERTY_ENTRY) {
		/* Optimised code lies outside of the binary; C++ that calls a callback itself does not cross. */
		caller = read_word(ctx->sp) - ranges->bias;
		if (caller >= ranges->text_start && caller < ranges->text_end &&
		    !(caller >= ranges->builtins_start && caller < ranges->builtins_end)) {
			count(COUNTER_DIRECT_CALLS, 1);
			return;
		}
	}
	if (count_only) {
		tally_call(t, callback, kind, now);
		return;
	}
	t->call_stack =
		walk_stack(t, ctx->ip, ctx->sp, ctx->bp, WALK_AT_ENTRY | WALK_FROM_JAVASCRIPT);
	t->call_at = now;
	write_call(t, now, 0, 0, callback, current_callback(t), kind, RECORD_UNTIMED,
		   t->call_stack);
}

/* ---- serialization ---- */

static __always_inline void serialization_enter(struct pt_regs *ctx, struct thread *t,
						struct cookie *c, __u64 a, __u64 now)
{
	int i;
	bool nested = t->top[FRAME_SERIALIZATION] != NO_FRAME;
	__s64 value = -1;

	switch (c->detail & 15) {
	case SIZE_LENGTH_ARGUMENT:
		value = (__s32)a;
		break;
	case SIZE_SIZE_ARGUMENT:
		value = a & 0x7fffffffffffffff;
		break;
	case SIZE_STRING_ARGUMENT:
		value = a ? v8_string_length(t, read_word(a)) : -1;
		break;
	case SIZE_FIELD_AT_RETURN:
		value = a + (c->detail >> 4) * 8;
		break;
	}
	i = count_only ? -1 : push_frame(t, FRAME_SERIALIZATION, ctx->sp, now);
	if (i < 0) {
		struct frame single = {
			.start = now, .id = c->id, .value = value, .callback = current_callback(t)};

		if ((c->detail & 15) == SIZE_FIELD_AT_RETURN)
			single.value = -1;
		write_serialization(t, &single, 0, RECORD_UNTIMED | (nested ? RECORD_NESTED : 0));
		return;
	}
	frame_at(t, i)->id = c->id;
	frame_at(t, i)->value = value;
	frame_at(t, i)->kind = c->detail & 15;
	frame_at(t, i)->flags = nested ? RECORD_NESTED : 0;
	if (c->flags & COOKIE_HAS_RETURN)
		return;
	/* No return probe: the call is counted, its time is not known. */
	if ((c->detail & 15) == SIZE_FIELD_AT_RETURN)
		frame_at(t, i)->value = -1;
	drop_frame(t);
	write_frame(t, i, 0, RECORD_UNTIMED);
}

static __always_inline void serialization_return(struct pt_regs *ctx, struct thread *t,
						 struct cookie *c, __u64 now)
{
	/* The return probe runs after the `ret` has taken the return address off the stack. */
	int i = pop_frame(t, FRAME_SERIALIZATION, ctx->sp - 8, ctx->sp - 8, now);
	struct frame *f;

	if (i < 0)
		return;
	f = frame_at(t, i);
	switch (c->detail & 15) {
	case SIZE_LENGTH_ARGUMENT:
		if (f->value >= 0)
			break; /* fallthrough: a negative length means "until NUL" */
	case SIZE_RETURNED_STRING:
		f->value = ctx->ax ? v8_string_length(t, read_word(ctx->ax)) : -1;
		break;
	case SIZE_RETURNED_SIZE:
		f->value = ctx->ax & 0x7fffffffffffffff;
		break;
	case SIZE_FIELD_AT_RETURN:
		f->value = read_word(f->value);
		break;
	}
	write_frame(t, i, now - f->start, 0);
}

/* ---- phases ---- */

static __always_inline void milestone(struct thread *t, struct cookie *c, __u64 a, __u64 b,
				      __u64 now)
{
	__u32 binary = c->binary;
	struct image *image = bpf_map_lookup_elem(&images, &binary);
	bool is_main = t->pid == t->tid;
	/* In a binary whose numbers of them are not known each one may be the start of the loop. */
	bool starts_loop =
		!image || image->loop_start == image->loop_exit || a == image->loop_start;
	/* `--until loop-start` waits for one, and the memory reading. A wake-up is two interrupts, some 20 us on a virtual machine. */
	bool is_awaited = starts_loop || a == image->loop_exit;

	flush_counters(t);
	flush_tallies(t);
	/* A worker's environment has milestones of its own; phases are the main thread's. */
	if (is_main && milestones_passed(t) < PHASE_LATER_IMAGE - 1)
		t->phase++;
	if (is_main && starts_loop)
		t->settled = 1;
	RESERVE(record_milestone, r);
	if (!r)
		return;
	fill_header(&r->header, t, RECORD_MILESTONE, now);
	r->header.id = c->id;
	r->number = a;
	r->unused = 0;
	r->timestamp = b;
	bpf_ringbuf_submit(r, is_main && is_awaited ? wake_now() : wake_flag());
}

static __always_inline void span_enter(struct pt_regs *ctx, struct thread *t, struct cookie *c,
				       __u64 now)
{
	if (c->flags & COOKIE_HAS_RETURN) {
		int i = push_frame(t, FRAME_SPAN, ctx->sp, now);

		if (i >= 0) {
			frame_at(t, i)->id = c->id;
			frame_at(t, i)->value = read_word(ctx->sp);
		}
		return;
	}
	RESERVE(record_span, r);
	if (!r)
		return;
	fill_header(&r->header, t, RECORD_SPAN, now);
	r->header.id = c->id;
	r->header.flags = RECORD_UNTIMED;
	r->duration = 0;
	bpf_ringbuf_submit(r, wake_flag());
}

/* ---- package.json and compilation ---- */

static __always_inline void lookup(struct pt_regs *ctx, struct thread *t, struct cookie *c,
				   __u64 raw, __u64 a, __u64 b, __u64 now)
{
	struct text_head h = {};

	fill_header(&h.header, t, RECORD_LOOKUP, now);
	h.header.id = c->id;
	/* The same of what a module is to be made of: nobody asks for its stack. */
	h.header.kind = c->detail >> 4;
	if (h.header.kind != LOOKUP_IS_LOAD)
		h.header.stack = event_stack(ctx, t);
	write_path(t, &h, raw, a, b);
}

static __always_inline void compile_enter(struct pt_regs *ctx, struct thread *t, struct cookie *c,
					  __u64 raw, __u64 a, __u64 b, __u64 now)
{
	struct text_head h = {};
	int i;

	fill_header(&h.header, t, RECORD_COMPILE_ENTER, now);
	h.header.id = c->id;
	h.header.kind = c->detail >> 4;
	h.header.stack = event_stack(ctx, t);
	write_path(t, &h, raw, a, b);
	if (!(c->flags & COOKIE_HAS_RETURN))
		return;
	i = push_frame(t, FRAME_COMPILE, ctx->sp, now);
	if (i >= 0) {
		frame_at(t, i)->id = c->id;
		frame_at(t, i)->value = read_word(ctx->sp);
		frame_at(t, i)->kind = c->detail >> 4;
	}
}

static __always_inline void mark_cached(struct thread *t, bool cached)
{
	__u8 i = t->top[FRAME_COMPILE];

	if (i == NO_FRAME)
		return;
	if (cached)
		frame_at(t, i)->flags |= RECORD_CACHED;
	else
		frame_at(t, i)->flags &= ~RECORD_CACHED;
}

#endif
