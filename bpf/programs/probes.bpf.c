// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The programs at probes. All entry probes of a process share one uprobe_multi link, all return probes another:
 * detaching costs one RCU grace period per link, however many probes it has. The cookie of an attach
 * point tells what to do there.
 */
#include "types.h"
#include <bpf/bpf_helpers.h>
#include "kernel.h"
#include "records.h"
#include "thread.bpf.h"
#include "text.bpf.h"
#include "v8.bpf.h"
#include "stack.bpf.h"
#include "modules.bpf.h"
#include "code.bpf.h"
#include "wasm.bpf.h"
#include "families.bpf.h"

char LICENSE[] SEC("license")
= "Dual MIT/GPL";

/* Whether a hit is written by itself also where calls are only counted. */
static __always_inline bool needs_time(__u8 action)
{
	return !(action >= ACTION_CALL_ENTER && action <= ACTION_TO_JS) &&
	       action != ACTION_SERIALIZATION;
}

SEC("uprobe.multi")
int on_entry(struct pt_regs *ctx)
{
	/* Where calls are only counted, few hits need the time: it takes a tenth of all that the others do. */
	__u64 now = count_only ? 0 : bpf_ktime_get_ns(), raw = bpf_get_attach_cookie(ctx);
	struct cookie c = split_cookie(raw);
	struct thread *t = current_thread();
	__u64 a, b;

	if (!t)
		return 0;
	count_hit(t);
	if (t->tid != t->pid)
		follow_phase(t);
	if (count_only && (!milestones_passed(t) || needs_time(c.action)))
		now = bpf_ktime_get_ns();
	t->image = c.binary + 1;
	if (t->requirer)
		write_import(t, now);
	a = register_value(ctx, c.register_a);
	b = register_value(ctx, c.register_b);
	switch (c.action) {
	case ACTION_CALL_ENTER:
		call_enter(ctx, t, &c, a, now);
		break;
	case ACTION_CALL_EXIT:
		call_exit(ctx, t, now);
		break;
	case ACTION_CALL_MARK:
		t->pending_kind = a & 1 ? CALL_CONSTRUCT : CALL_SLOW;
		break;
	case ACTION_FAST_ENTRY:
	case ACTION_PROPERTY_ENTRY:
	case ACTION_CALLBACK_ENTRY:
		entry_only(ctx, t, &c, now);
		break;
	case ACTION_TO_JS: {
		int i;

		if (count_only) {
			tally_call(t, CALLBACK_BY_INDEX, CALL_TO_JS, now);
			break;
		}
		i = push_frame(t, FRAME_CROSSING, ctx->sp, now);
		if (i < 0) {
			write_call(t, now, 0, 0, CALLBACK_BY_INDEX, current_callback(t), CALL_TO_JS,
				   RECORD_UNTIMED,
				   walk_stack(t, ctx->ip, ctx->sp, ctx->bp, WALK_AT_ENTRY));
			break;
		}
		t->entered = 1;
		frame_at(t, i)->callback = CALLBACK_BY_INDEX;
		frame_at(t, i)->kind = CALL_TO_JS;
		frame_at(t, i)->value = read_word(ctx->sp);
		frame_at(t, i)->id = walk_stack(t, ctx->ip, ctx->sp, ctx->bp, WALK_AT_ENTRY);
		break;
	}
	case ACTION_MILESTONE:
		milestone(t, &c, a, b, now);
		break;
	case ACTION_SPAN:
		span_enter(ctx, t, &c, now);
		break;
	case ACTION_LOOKUP:
		know_strings(t, &c);
		lookup(ctx, t, &c, raw, a, b, now);
		break;
	case ACTION_SERIALIZATION:
		know_strings(t, &c);
		serialization_enter(ctx, t, &c, a, now);
		break;
	case ACTION_COMPILE:
		know_strings(t, &c);
		compile_enter(ctx, t, &c, raw, a, b, now);
		break;
	case ACTION_CODE_CACHE_HIT:
		mark_cached(t, true);
		break;
	case ACTION_PARSE:
		/* V8 has rejected what the cache had. */
		mark_cached(t, false);
		break;
	case ACTION_IMPORT: {
		int i = c.flags & COOKIE_HAS_RETURN ? push_frame(t, FRAME_SPAN, ctx->sp, now) : -1;

		if (i >= 0) {
			frame_at(t, i)->kind = SPAN_OWN;
			frame_at(t, i)->value = a;
		}
		break;
	}
	case ACTION_CODE: {
		/* The first word of V8's CodeBuilder is its isolate. */
		int i = record_stacks ? push_frame(t, FRAME_SPAN, ctx->sp, now) : -1;

		if (i >= 0) {
			frame_at(t, i)->kind = SPAN_OWN;
			frame_at(t, i)->value = read_word(ctx->di);
		}
		break;
	}
	case ACTION_CODE_MOVED:
		if (record_stacks)
			write_code_moved(t, read_word(ctx->di) - 1, a, now);
		break;
	case ACTION_WASM_MODULE:
		if (record_stacks)
			write_wasm(t, WASM_MODULE, a, b, now);
		break;
	case ACTION_WASM_CODE:
		if (record_stacks)
			write_wasm(t, WASM_CODE | b << 32, a,
				   ctx->sp + ((raw >> COOKIE_DETAIL_SHIFT) & 255) * 8, now);
		break;
	case ACTION_WASM_SCRIPT: {
		int i = record_stacks ? push_frame(t, FRAME_SPAN, ctx->sp, now) : -1;

		if (i >= 0) {
			frame_at(t, i)->kind = SPAN_OWN;
			frame_at(t, i)->value = read_word(a);
		}
		break;
	}
	case ACTION_REQUEST:
		if (record_stacks)
			write_continuation(t, CONTINUATION_REQUESTED, 0, a, event_stack(ctx, t),
					   now);
		break;
	case ACTION_RESUME:
		t->resumed = a;
		break;
	case ACTION_CALLBACK_SCOPE:
		if (record_stacks && t->resumed)
			write_continuation(t, CONTINUATION_BEGUN, a, t->resumed, STACK_NONE, now);
		t->resumed = 0;
		break;
	case ACTION_REQUEST_SCOPE:
		if (record_stacks)
			write_continuation(t, CONTINUATION_BEGUN, a, b, STACK_NONE, now);
		break;
	case ACTION_CALLBACK_SCOPE_END: {
		int i = record_stacks ? push_frame(t, FRAME_SPAN, ctx->sp, now) : -1;

		if (i >= 0) {
			frame_at(t, i)->kind = SPAN_CALLBACK_SCOPE;
			frame_at(t, i)->callback = a;
			frame_at(t, i)->value = read_word(ctx->sp);
		}
		break;
	}
	case ACTION_COLLECTION_BEGIN:
		begin_collection(ctx, t);
		break;
	case ACTION_COLLECTION_END:
		end_collection(t);
		break;
	case ACTION_ISOLATE_TAKEN:
		t->epoch++;
		break;
	}
	return 0;
}

SEC("uretprobe.multi")
int on_return(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns(), raw = bpf_get_attach_cookie(ctx);
	struct cookie c = split_cookie(raw);
	struct thread *t = current_thread();
	int i = -1;
	__u64 sp = ctx->sp - 8;

	if (!t)
		return 0;
	count_hit(t);
	if (t->tid != t->pid)
		follow_phase(t);
	switch (c.action) {
	case ACTION_SERIALIZATION:
		know_strings(t, &c);
		serialization_return(ctx, t, &c, now);
		return 0;
	case ACTION_TO_JS:
		i = pop_frame(t, FRAME_CROSSING, sp, sp, now);
		break;
	case ACTION_COMPILE:
		i = pop_frame(t, FRAME_COMPILE, sp, sp, now);
		break;
	case ACTION_SPAN:
		i = pop_frame(t, FRAME_SPAN, sp, sp, now);
		break;
	case ACTION_IMPORT:
		i = pop_frame(t, FRAME_SPAN, sp, sp, now);
		if (i >= 0) {
			t->requirer = read_word(frame_at(t, i)->value);
			t->loaded = ctx->ax ? read_word(ctx->ax) : 0;
		}
		return 0;
	case ACTION_CALLBACK_SCOPE_END:
		i = pop_frame(t, FRAME_SPAN, sp, sp, now);
		if (i >= 0)
			write_continuation(t, CONTINUATION_ENDED, frame_at(t, i)->callback, 0,
					   STACK_NONE, now);
		return 0;
	case ACTION_WASM_SCRIPT:
		i = pop_frame(t, FRAME_SPAN, sp, sp, now);
		if (i >= 0 && ctx->ax)
			write_wasm_script(t, frame_at(t, i)->value, read_word(ctx->ax), now);
		return 0;
	case ACTION_CODE:
		i = pop_frame(t, FRAME_SPAN, sp, sp, now);
		if (i >= 0 && ctx->ax)
			write_code(t, read_word(ctx->ax), frame_at(t, i)->value, now);
		return 0;
	}
	if (i >= 0)
		write_frame(t, i, now - frame_at(t, i)->start, 0);
	return 0;
}
