// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The maps alone. They are made first, so that the two program objects, which share them, can be loaded at
 * the same time on two cores.
 */
#include "types.h"
#include <bpf/bpf_helpers.h>
#include "records.h"
#include "thread.bpf.h"
#define NODEPROF_MAPS_ONLY
#include "stack.bpf.h"
#include "mappings.bpf.h"

char LICENSE[] SEC("license")
= "Dual MIT/GPL";

/* The record types, so that their BTF is kept for the decoder. */
struct {
	struct record_header header;
	struct record_call call;
	struct record_serialization serialization;
	struct record_milestone milestone;
	struct record_span span;
	struct record_compile compile;
	struct record_text text;
	struct record_fork fork;
	struct record_exit exit;
	struct record_walk walk;
	struct record_function function;
	struct record_import import_;
	struct record_code code;
	struct record_inlined inlined;
	struct record_baseline baseline;
	struct record_code_moved code_moved;
	struct record_wasm wasm;
	struct record_continuation continuation;
	struct record_sample sample;
	struct record_wait wait;
	struct record_mapping mapping;
	struct record_unmap unmap;
	struct sum_key sum_key;
	struct sum sum;
	struct image image;
	struct file_key file_key;
	struct piece piece;
} record_types SEC(".rodata.types");
