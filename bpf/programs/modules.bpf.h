/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* ES modules: which script one has, and which import statement was linked to which. */
#ifndef NODEPROF_MODULES_H
#define NODEPROF_MODULES_H

/* Beside the literals of functions.bpf.h: the key is a synthetic module's, by its hash. */
#define LITERAL_IS_MODULE 0xfffffffa

/* Words of a module behind its fixed ones that may be its code. */
#define MODULE_WORDS 8

struct module_search {
	struct image *image;
	__u64 module, script, name;
};

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
	key.thread = keys_thread(t, image, s.script);
	return script_number(t, image, s.script, key);
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
