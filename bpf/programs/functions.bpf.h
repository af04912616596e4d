/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * JavaScript functions and scripts: what stays of them while the garbage collector moves them, and how their names, sources and
 * positions are written when one is met for the first time.
 */
#ifndef NODEPROF_FUNCTIONS_H
#define NODEPROF_FUNCTIONS_H

/* JavaScript functions and scripts by what stays of them. */
struct function_key {
	/* V8's id of the script, or of a builtin; in the upper half what tells names that closures were given */
	__u64 script;
	__u32 thread; /* serial number: ids count from 1 in each isolate; of a script and its functions see keys_thread */
	__u32 literal;
};
#define LITERAL_IS_SCRIPT	  0xfffffffe /* the key is a script's */
#define LITERAL_IS_BUILTIN	  0xfffffffd
#define LITERAL_IS_NATIVE_BUILTIN 0xfffffffc
/* The key is that of baseline code: where it begins, and its function in place of the thread. */
#define LITERAL_IS_BASELINE 0xfffffffb
/* The function that a script's text is the body of. */
#define LITERAL_WRAPPED 1
/* Beside the number of a function that is the body of a CommonJS module. */
#define IS_BODY 0x80000000
/* Its parameters: exports, require, module, __filename, __dirname. */
#define MODULE_PARAMETERS 5

/* A function that is being learnt. */
struct function_at {
	__u64 shared, own_name; /* tagged */
	__u32 script, literal;
};

/* Scripts that a thread remembers; a power of two. */
#define SEEN_SCRIPTS 64

/* Objects that were looked at since the garbage collector ran last. */
struct seen_script {
	__u64 script; /* tagged */
	__u32 epoch;
	__u32 id, thread; /* as in keys */
	__u32 number;
	__u32 module; /* it is a CommonJS module */
};

struct seen {
	__u64 shared_map, accessor_map; /* of a SharedFunctionInfo, of an AccessorInfo */
	__u32 epoch;
	__u32 unused;
	struct seen_script scripts[SEEN_SCRIPTS];
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

/*
 * The least recently used go when it is full: functions of threads that have ended, which nobody else takes out. One that comes again after that
 * gets a new number and is told again. Allocated in advance, as all such tables are.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct function_key);
	__type(value, __u32);
} functions SEC(".maps");

/* The last numbers given. */
struct serial_numbers {
	__u32 stack, function, thread;
	__u32 code;  /* optimised code, each time it was made or moved */
	__u32 moved; /* any code, each time it was moved */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct serial_numbers);
} numbers SEC(".maps");

#ifndef NODEPROF_MAPS_ONLY

static __always_inline __u32 bounded(__u32 index, __u32 mask)
{
	/* As the verifier wants it, not as the compiler can prove it away. */
	asm volatile("%0 &= %1" : "+r"(index) : "r"(mask));
	return index;
}

/* What is counted up in `numbers`. */
enum number { NUMBER_STACK, NUMBER_FUNCTION, NUMBER_THREAD, NUMBER_CODE, NUMBER_MOVED };

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
	case NUMBER_MOVED:
		return __sync_fetch_and_add(&n->moved, 1) + 1;
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

/*
 * What a fresh number means found no room in the buffer: the next to meet the key gives it another number and tells that. Whatever the thread
 * remembers may lead to the number that nobody was told: it forgets it all, as after a garbage collection.
 */
__noinline int forget_number(struct thread *t, struct function_key *key)
{
	if (!t || !key)
		return 0;
	bpf_map_delete_elem(&functions, key);
	t->epoch++;
	return 0;
}

/* Writes a long text in pieces: the pieces' heads tell the length of the whole and where each lies in it. */
struct pieces {
	struct thread *thread;
	struct text_head *head;
	__u64 from, length;
	__u64 base; /* where in the whole they begin */
	bool lost;
};

/* Where it is follows from the index: what changed from one to the next the verifier would follow 64 times. */
static long write_piece(__u32 index, struct pieces *p)
{
	__u64 at = (__u64)index * PIECE_BYTES, n = p->length - at;

	if (at >= p->length)
		return 1;
	if (n > PIECE_BYTES)
		n = PIECE_BYTES;
	p->head->result = p->base + at;
	if (write_text(p->thread, p->head, p->from + at, n))
		return 0;
	p->lost = true;
	return 1;
}

/* False if a piece found no room; of what is longer than there are pieces the last one is the end of it. */
static __always_inline bool write_long_text(struct thread *t, struct text_head *h, __u64 from,
					    __u64 length)
{
	struct pieces p = {.thread = t, .head = h, .from = from, .length = length};

	h->duration = length;
	bpf_loop(LARGEST_TEXT / PIECE_BYTES, write_piece, &p, 0);
	if (length > LARGEST_TEXT && !p.lost) {
		h->result = length - PIECE_BYTES;
		p.lost = !write_text(t, h, from + length - PIECE_BYTES, PIECE_BYTES);
	}
	return !p.lost;
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

/* Whether a script's text may end in a source map: in JSON in base64, of which the last character is a brace. */
static __always_inline bool may_end_in_a_map(struct v8_string *source)
{
	__u32 width = source->two_byte ? 2 : 1;
	__u16 end = 0;

	if (source->length < 2)
		return false;
	bpf_probe_read_user(&end, width, (void *)(source->data + (source->length - 1) * width));
	if (end == '\n')
		bpf_probe_read_user(&end, width,
				    (void *)(source->data + (source->length - 2) * width));
	return end == '=' || end == '9';
}

/* Whether a script's text is the body of a function. */
static __always_inline bool is_wrapped(struct image *image, __u64 script)
{
	return instance_type(read_word(script - 1 + image->script_wrapped)) ==
	       image->fixed_array_type;
}

/* Whether it is that of a function with the parameters of a CommonJS module. */
static __always_inline bool is_module(struct image *image, __u64 script)
{
	__u64 parameters = read_word(script - 1 + image->script_wrapped), length;

	if (instance_type(parameters) != image->fixed_array_type)
		return false;
	length = read_word(parameters - 1 + 8);
	return (length >> 32 ? length >> 32 : length) == MODULE_PARAMETERS;
}

/*
 * Writes a script's name, where its source lies if that is outside of the heap, what wraps it, and where its first line is
 * said to stand. The text of one that is in no file (an eval's) is written too: else nothing would tell its lines; and of one that may have been made in
 * memory with its map. Such texts leave half of the buffer to all else. 0: there was no room for the name.
 */
__noinline int write_script(struct thread *t, struct image *image, __u64 script, __u32 number)
{
	struct text_head h = {};
	struct v8_string source = {}, name = {};
	__u64 tagged;
	bool wrapped, in_file;

	if (!t || !image)
		return 0;
	tagged = read_word(script - 1 + image->script_name);
	fill_header(&h.header, t, RECORD_SCRIPT, 0);
	h.header.id = number;
	wrapped = is_wrapped(image, script);
	h.header.kind = wrapped;
	/* Both offsets follow the name. */
	h.descriptor = read_word(script - 1 + image->script_name + 8) >> 32;
	h.header.extra = read_word(script - 1 + image->script_name + 16) >> 32;
	if (v8_string_data(t, read_word(script - 1 + image->script_source), &source)) {
		h.result = source.data - bias_of(t, image);
		h.duration = (__u64)source.length << 1 | source.two_byte;
	}
	v8_string_data(t, tagged, &name);
	if (!write_string(t, &h, tagged))
		return 0;
	if (!source.data)
		return 1;
	in_file = lies_in_a_file(&name, wrapped);
	if (in_file && !may_end_in_a_map(&source))
		return 1;
	if (bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA) >
	    bpf_ringbuf_query(&records, BPF_RB_RING_SIZE) / 2) {
		if (!in_file)
			count(COUNTER_SOURCES_LOST, 1);
		return 1;
	}
	fill_header(&h.header, t, RECORD_SOURCE, 0);
	h.header.id = number;
	h.header.kind = source.two_byte;
	h.descriptor = 0;
	if (!write_long_text(t, &h, source.data, (__u64)source.length << source.two_byte))
		count(COUNTER_SOURCES_LOST, 1);
	return 1;
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

	info += image->scope_flags - 8;
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

/* Whether an object is of this type, by its map if that has been seen. */
static __always_inline bool has_type(__u64 tagged, __u32 type, __u64 *seen)
{
	__u64 map = (tagged & 3) == 1 ? read_word(tagged - 1) : 0;

	if (map && map == *seen)
		return true;
	if (instance_type(tagged) != type)
		return false;
	if (map & 1)
		*seen = map;
	return true;
}

/*
 * The name that a closure itself has, if it is not its literal's: that of a method with a computed name, or one that was defined
 * later. It is a property; else there is an accessor. `m`: its map.
 */
__noinline __u64 own_name(struct thread *t, struct image *image, __u64 function, struct map_head *m,
			  __u64 *accessor_map)
{
	__u64 entry[3], value;
	__u32 details, index, size, start;

	if (!t || !image || !m || !accessor_map || !image->accessor_info_type)
		return 0;
	if (m->bits & MAP_IS_DICTIONARY) {
		struct name_search s = {.thread = t};
		__u64 dictionary = read_word(function - 1 + 8) - 1;
		__u32 capacity = read_word(dictionary + 32) >> 32;

		s.entries = dictionary + image->dictionary_first;
		bpf_loop(capacity < MOST_PROPERTIES ? capacity : MOST_PROPERTIES, find_name, &s, 0);
		return v8_string_length(t, s.value) > 0 ? s.value : 0;
	}
	/* Key, details, value of the second descriptor, which is the name; the first one is the length. */
	value = read_word(m->map - 1 + image->map_descriptors) - 1 + image->descriptors_first +
		sizeof(entry);
	if (bpf_probe_read_user(entry, sizeof(entry), (void *)value))
		return 0;
	value = entry[2];
	if (has_type(value, image->accessor_info_type, accessor_map) || !is_name(t, entry[0]))
		return 0;
	details = entry[1] >> 32;
	if (!(details & image->details_location)) {
		index = details >> DETAILS_INDEX_SHIFT & DETAILS_INDEX_MASK;
		size = m->sizes & 0xff;
		start = m->sizes >> 8 & 0xff;
		index += start;
		if (index < size)
			value = read_word(function - 1 + index * 8);
		else
			value = read_word(read_word(function - 1 + 8) - 1 + 16 +
					  (index - size) * 8);
	}
	return v8_string_length(t, value) > 0 ? value : 0;
}

/* What tells two names from each other, in a word; not 0. Of long ones the beginning, or the `end`, in which paths differ. */
__noinline __u64 text_hash(struct thread *t, __u64 name, bool end)
{
	__u64 words[HASHED_NAME / 8] = {}, hash;
	struct v8_string s = {};
	__u32 n;

	if (!t || !v8_string_data(t, name, &s))
		return 1;
	n = s.length << s.two_byte;
	hash = n << 1 | s.two_byte;
	if (n > HASHED_NAME - 1) {
		s.data += end ? n - (HASHED_NAME - 1) : 0;
		n = HASHED_NAME - 1;
	}
	bpf_probe_read_user(words, bounded(n, HASHED_NAME - 1), (void *)s.data);
	for (int i = 0; i < HASHED_NAME / 8; i++) {
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 32;
	}
	return hash | 1;
}

static __always_inline __u64 name_hash(struct thread *t, __u64 name)
{
	return text_hash(t, name, false);
}

/* Writes a function's name and place; 0: there was no room for them. */
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
		return write_string(t, &h, scope.name);
	}
	return 1;
}

/* Writes the table that tells a position in the source for an offset into the bytecode, if there is any; 0: there was no room for it. */
__noinline int write_positions(struct thread *t, struct image *image, __u64 array, __u32 number)
{
	__u64 table, length;
	__u32 type;
	struct text_head h = {};

	if (!t || !image || instance_type(array) != image->bytecode_type)
		return 1;
	table = read_word(array - 1 + image->bytecode_positions);
	type = instance_type(table);
	if (type != image->byte_array_type &&
	    (type != image->trusted_byte_array_type || !image->trusted_byte_array_type))
		return 1;
	length = read_word(table - 1 + 8) >> 32;
	if (!length)
		return 1;
	fill_header(&h.header, t, RECORD_POSITIONS, 0);
	h.header.id = number;
	h.descriptor = image->bytecode_data;
	return write_long_text(t, &h, table - 1 + 16, length);
}

/* What a function has been compiled to. */
enum compiled { COMPILED_BYTECODE, COMPILED_BASELINE };

/*
 * A function's bytecode, or its baseline code; 0: it has none. Its data come before its name, in the newest versions in two words: they are
 * bytecode, or baseline code, which has its bytecode in the place where optimised code has something else, or (V8 9.4) an object of both.
 */
__noinline __u64 compiled_to(struct image *image, __u64 shared, __u32 wanted)
{
	if (!image || !image->code_deopt)
		return 0;
	for (int i = 1; i <= 2; i++) {
		__u64 data = read_word(shared - 1 + image->shared_name_or_scope - i * 8);
		__u64 code = data, bytecode = data;
		__u32 type = instance_type(data);

		if (type == image->baseline_data_type && type) {
			code = read_word(data - 1 + 8);
			bytecode = read_word(data - 1 + 16);
		} else if (type == image->code_type) {
			bytecode = read_word(data - 1 + image->code_deopt);
		} else if (type != image->bytecode_type) {
			continue;
		}
		if (instance_type(bytecode) == image->bytecode_type)
			return wanted == COMPILED_BYTECODE ? bytecode : code;
	}
	return 0;
}

/* The bytecode of a function of which `fp` is a frame. */
__noinline __u64 bytecode_of(struct image *image, __u64 shared, __u64 fp)
{
	__u64 there = read_word(fp - 32), bytecode, name;

	if (!image)
		return 0;
	/* Optimised code has something else there, also what an interpreter's frame has left: the bytecode of any function. */
	name = shared - 1 + image->shared_name_or_scope;
	if ((there & 3) == 1 && (there == read_word(name - 8) || there == read_word(name - 16)))
		return there;
	bytecode = compiled_to(image, shared, COMPILED_BYTECODE);
	return bytecode ?: there;
}

/* A frame of baseline code. */
struct baseline_frame {
	__u64 function, bytecode; /* tagged */
	__u64 pc;
	__u32 number; /* of the function */
};

/*
 * Writes what tells where in its bytecode a function calls whose baseline code is on a stack, unless that has been written. Which code it is, is certain: it has
 * the frame's bytecode, and the call lies in it.
 */
__noinline int write_baseline(struct thread *t, struct image *image, struct baseline_frame *f)
{
	struct function_key key = {.literal = LITERAL_IS_BASELINE};
	struct text_head h = {};
	__u64 shared, code, start, table;
	__u32 size, number;
	bool fresh;

	if (!t || !image || !f)
		return 0;
	shared = read_word(f->function - 1 + image->function_shared);
	code = compiled_to(image, shared, COMPILED_BASELINE);
	if (instance_type(code) != image->code_type ||
	    compiled_to(image, shared, COMPILED_BYTECODE) != f->bytecode)
		return 0;
	start = code - 1 + image->code_start;
	if (!image->code_embedded)
		start = read_word(start);
	size = read_word(code - 1 + image->code_size);
	if (f->pc - start >= size)
		return 0;
	key.script = start;
	key.thread = f->number;
	number = number_of(&key, &fresh);
	if (!fresh)
		return 0;
	RESERVE(record_baseline, r);
	if (!r)
		return forget_number(t, &key);
	fill_header(&r->header, t, RECORD_BASELINE, bpf_ktime_get_ns());
	r->header.id = number;
	r->start = start;
	r->size = size;
	r->function = f->number;
	bpf_ringbuf_submit(r, wake_flag());
	fill_header(&h.header, t, RECORD_CODE_POSITIONS, 0);
	h.header.id = number;
	h.header.kind = CODE_OFFSETS;
	table = read_word(code - 1 + image->code_positions);
	if (!write_long_text(t, &h, table - 1 + 16, read_word(table - 1 + 8) >> 32))
		return forget_number(t, &key);
	h.header.kind = CODE_BYTECODE;
	if (!write_long_text(t, &h, f->bytecode - 1 + image->bytecode_data,
			     read_word(f->bytecode - 1 + 8) >> 32))
		return forget_number(t, &key);
	return 0;
}

/*
 * What stands for the thread in the keys of a script and its functions. One thread may have several isolates (isolated-vm), each with ids from 1 of
 * its own: lengths and the ends of names tell their scripts from each other, and their beginnings those that have no name.
 */
__noinline __u32 keys_thread(struct thread *t, struct image *image, __u64 script)
{
	__u64 name, source, hash;

	if (!t || !image)
		return 0;
	name = read_word(script - 1 + image->script_name);
	source = read_word(script - 1 + image->script_source);
	if (v8_string_length(t, name) > 0)
		hash = text_hash(t, name, true);
	else
		hash = text_hash(t, source, false);
	hash ^= v8_string_length(t, source);
	hash *= 0x9e3779b97f4a7c15ULL;
	return t->serial ^ hash >> 32;
}

/* The number of a script; writes it if it is new. `key` is that of one of its functions. */
static __always_inline __u32 script_number(struct thread *t, struct image *image, __u64 script,
					   struct function_key key)
{
	__u32 number;
	bool fresh;

	key.literal = LITERAL_IS_SCRIPT;
	number = number_of(&key, &fresh);
	if (fresh && !write_script(t, image, script, number))
		forget_number(t, &key);
	return number;
}

/* The script of a function: its number, and its part in *key; false if it is none. */
static __always_inline bool script_of(struct thread *t, struct image *image, struct seen *seen,
				      __u64 script, struct function_key *key, __u32 *number,
				      bool *module)
{
	struct seen_script *s =
		&seen->scripts[bounded(script >> 3 ^ script >> 9, SEEN_SCRIPTS - 1)];

	if (s->script != script || s->epoch != seen->epoch) {
		if (instance_type(script) != image->script_type)
			return false;
		key->script = s->id = read_word(script - 1 + image->script_id) >> 32;
		key->thread = s->thread = keys_thread(t, image, script);
		s->number = script_number(t, image, script, *key);
		s->module = is_module(image, script);
		s->script = script;
		s->epoch = seen->epoch;
	}
	key->script = s->id;
	key->thread = s->thread;
	*number = s->number;
	*module = s->module;
	return true;
}

/* The number of a closure's function, 0 if it is none, and IS_BODY; `fp`: a frame of it. */
__noinline __u32 learn_function(struct thread *t, struct seen *seen, __u32 binary, __u64 function,
				__u64 fp)
{
	struct image *image = bpf_map_lookup_elem(&images, &binary);
	struct function_key key = {};
	struct function_at f = {};
	struct map_head map = {};
	__u64 shared, script;
	__u32 number;
	bool fresh, module = false;
	__u32 type;

	if (!t || !seen || !image || !image->function_shared)
		return 0;
	if (seen->epoch != t->epoch) {
		seen->epoch = t->epoch;
		seen->shared_map = seen->accessor_map = 0;
	}
	type = read_map(function, &map);
	if (map.moved || !map.map) {
		/* In the middle of a collection: addresses seen until its end are good for nothing later. */
		t->epoch++;
	}
	if (type < image->first_function_type || type > image->last_function_type)
		return 0;
	f.shared = shared = read_word(function - 1 + image->function_shared);
	if (!has_type(shared, image->shared_type, &seen->shared_map))
		return 0;
	t->first_nonstring = image->first_nonstring;
	script = read_word(shared - 1 + image->shared_script);
	key.thread = t->serial;
	if (script_of(t, image, seen, script, &key, &f.script, &module)) {
		/* Behind the flags. */
		key.literal = read_word(shared - 1 + image->shared_flags) >> 32;
		f.own_name = own_name(t, image, function, &map, &seen->accessor_map);
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
		if (!write_function(t, image, &f, number) ||
		    !write_positions(t, image, bytecode_of(image, shared, fp), number))
			forget_number(t, &key);
	}
	if (module && key.literal == LITERAL_WRAPPED)
		number |= IS_BODY;
	return number;
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

#endif
#endif
