/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Reading V8 strings. The layout is the same in V8 9.4 to 14.6 without pointer compression:
 * map at 0, length (int32) at 12, characters at 16; cons string: first at 16, second at 24; thin string: actual
 * at 16; sliced: parent at 16, offset (Smi) at 24; external: resource data at 24. A tagged pointer has its lowest two bits 01.
 * The representation and encoding are in the low bits of the instance type (u16 at map + 12):
 * bits 0-2: 0 sequential, 1 cons, 2 external, 3 sliced, 5 thin; bit 3: one byte per character.
 */
#ifndef NODEPROF_V8_H
#define NODEPROF_V8_H

#define STRING_REPRESENTATION 7
#define STRING_SEQUENTIAL     0
#define STRING_CONS	      1
#define STRING_EXTERNAL	      2
#define STRING_SLICED	      3
#define STRING_THIN	      5
#define STRING_ONE_BYTE	      8

struct v8_string {
	__u64 data;
	__u32 length; /* characters */
	bool two_byte;
};

/* Neither of these is a type. */
#define NO_TYPE	     0xffff
#define NOT_A_STRING NO_TYPE

/*
 * The map that the first word of an object tells. In the middle of a collection an object that has moved holds its new address there, and most are
 * what they were but for that. (A sample falls there only where the collection's end is not probed.)
 */
static __always_inline bool has_moved(__u64 word)
{
	return word && !(word & 7);
}

static __always_inline __u64 map_of(__u64 word)
{
	return has_moved(word) ? word_at(word) : word;
}

static __always_inline __u64 v8_map(__u64 tagged)
{
	return map_of(word_at(tagged - 1));
}

/* Instance type of the objects of a map, or NO_TYPE. */
static __always_inline __u32 type_of_map(__u64 map)
{
	__u16 type;

	if ((map & 3) != 1 || bpf_probe_read_user(&type, sizeof(type), (void *)(map - 1 + 12)))
		return NO_TYPE;
	return type;
}

/* What a map tells of its objects. */
struct map_head {
	__u64 map; /* tagged */
	/* From its second word on: sizes in its first two bytes, the instance type in its upper half; then bits. */
	__u64 sizes, bits;
	__u64 moved; /* the object has moved, in the middle of a collection */
};

/* Reads the map of an object; returns the instance type, or NO_TYPE. */
static __always_inline __u32 read_map(__u64 tagged, struct map_head *m)
{
	if ((tagged & 3) != 1)
		return NO_TYPE;
	m->map = word_at(tagged - 1);
	m->moved = has_moved(m->map);
	m->map = map_of(m->map);
	if ((m->map & 3) != 1 ||
	    bpf_probe_read_user(&m->sizes, 2 * sizeof(__u64), (void *)(m->map - 1 + 8)))
		return NO_TYPE;
	return m->sizes >> 32 & 0xffff;
}

static __always_inline __u32 type_at(__u64 tagged)
{
	return (tagged & 3) == 1 ? type_of_map(v8_map(tagged)) : NO_TYPE;
}

/* Instance type of an object, or NO_TYPE. */
__noinline __u32 instance_type(__u64 tagged)
{
	return type_at(tagged);
}

static __always_inline __u32 string_type(struct thread *t, __u32 type)
{
	return type < t->first_nonstring ? type : NOT_A_STRING;
}

/* Instance type of a V8 string, or NOT_A_STRING. */
static __always_inline __u32 v8_string_type(struct thread *t, __u64 tagged)
{
	return string_type(t, instance_type(tagged));
}

/* The first words of a string. */
struct string_head {
	__u64 map;
	__u64 length; /* in the upper half; a hash in the lower one */
	__u64 first, second;
};

/* Reads them; returns the instance type, or NO_TYPE. An object shorter than them may be the last one on its page: then without the second. */
static __always_inline __u32 string_head_at(__u64 tagged, struct string_head *s)
{
	if ((tagged & 3) != 1)
		return NO_TYPE;
	if (bpf_probe_read_user(s, sizeof(*s), (void *)(tagged - 1)) &&
	    bpf_probe_read_user(s, sizeof(*s) - 8, (void *)(tagged - 1)))
		return NO_TYPE;
	s->map = map_of(s->map);
	return type_of_map(s->map);
}

/* The same, verified once. */
__noinline __u32 read_string_head(__u64 tagged, struct string_head *s)
{
	return s ? string_head_at(tagged, s) : NO_TYPE;
}

/* The length of the string, or negative if it is none. */
__noinline __s64 v8_string_length(struct thread *t, __u64 tagged)
{
	__u64 head[2];

	if (!t || (tagged & 3) != 1 ||
	    bpf_probe_read_user(head, sizeof(head), (void *)(tagged - 1)) ||
	    string_type(t, type_of_map(map_of(head[0]))) == NOT_A_STRING)
		return -1;
	return (__s32)(head[1] >> 32);
}

/* Strings that stand between a string and its characters: a slice of a flattened cons string of a thin one, and one to spare. */
#define STRING_INDIRECTIONS 4

/* Finds the characters of a string that lie in one piece; false for a cons string that is not flattened yet. */
__noinline int v8_string_data(struct thread *t, __u64 tagged, struct v8_string *s)
{
	__u64 skipped = 0;

	if (!t || !s)
		return false;
	s->data = 0;
	for (int i = 0; i < STRING_INDIRECTIONS; i++) {
		struct string_head head = {};
		__u32 type = string_type(t, read_string_head(tagged, &head));

		if (!i)
			s->length = head.length >> 32;
		if (type == NOT_A_STRING)
			return false;
		s->two_byte = !(type & STRING_ONE_BYTE);
		switch (type & STRING_REPRESENTATION) {
		case STRING_CONS:
			/* Flattened: the second half is empty. */
			if (v8_string_length(t, head.second))
				return false;
			tagged = head.first;
			break;
		case STRING_SLICED:
			skipped += head.second >> 32;
			tagged = head.first;
			break;
		case STRING_THIN:
			tagged = head.first;
			break;
		case STRING_EXTERNAL:
			s->data = head.second;
			if (!s->data)
				return false;
			s->data += skipped << s->two_byte;
			return true;
		default:
			s->data = tagged - 1 + 16 + (skipped << s->two_byte);
			return true;
		}
	}
	return false;
}

/* A path joined from its components has a cons string per component; longer ones are reported as unreadable. */
#define MAX_PIECES (3 * PIECE_STACK)

struct string_walk {
	struct record_text_large *record;
	struct thread *thread;
	struct piece_stack *open;
	__u32 length;
	bool readable;
};

#ifdef NODEPROF_TICKS
/* A tick may fall into the reading of a string by the same thread. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct piece_stack);
} tick_pieces SEC(".maps");
#endif

static __always_inline struct piece_stack *pieces_of(struct thread *t)
{
#ifdef NODEPROF_TICKS
	__u32 zero = 0;

	return bpf_map_lookup_elem(&tick_pieces, &zero);
#else
	return &t->open_pieces;
#endif
}

/* The bound as the verifier wants it, not as the compiler can prove it away. */
static __always_inline __u32 piece_slot(__u32 index)
{
	asm volatile("%0 &= %1" : "+r"(index) : "i"(PIECE_STACK - 1));
	return index;
}

/* Takes one piece off the stack: copies its characters, or puts its parts on the stack. */
static long walk_piece(__u32 index, struct string_walk *w)
{
	__u64 piece, data = 0;
	__u32 n, at = w->length, depth = w->open->count;
	__u32 type;
	struct string_head string;
	struct piece head = {};

	if (!depth)
		return 1;
	depth--;
	piece = w->open->pieces[piece_slot(depth)];
	w->open->count = depth;
	w->readable = false; /* until this piece is */
	type = string_type(w->thread, string_head_at(piece, &string));
	if (type == NOT_A_STRING || depth > PIECE_STACK - 2)
		return 1;
	n = string.length >> 32;
	switch (type & STRING_REPRESENTATION) {
	case STRING_CONS:
		w->open->pieces[piece_slot(depth)] = string.second;
		w->open->pieces[piece_slot(depth + 1)] = string.first;
		w->open->count = depth + 2;
		w->readable = true;
		return 0;
	case STRING_THIN:
		w->open->pieces[piece_slot(depth)] = string.first;
		w->open->count = depth + 1;
		w->readable = true;
		return 0;
	case STRING_SLICED:
		/* The parent is flat, or stands for one that was made the only one of its kind; the offset is a Smi. */
		data = string.first;
		type = type_at(data);
		if ((type & STRING_REPRESENTATION) == STRING_THIN) {
			data = word_at(data - 1 + 16);
			type = type_at(data);
		}
		if ((type & STRING_REPRESENTATION) == STRING_EXTERNAL)
			data = word_at(data - 1 + 24);
		else
			data = data - 1 + 16;
		data += (string.second >> 32) * (type & STRING_ONE_BYTE ? 1 : 2);
		break;
	case STRING_EXTERNAL:
		data = string.second;
		break;
	default:
		data = piece - 1 + 16;
	}
	head.two_byte = !(type & STRING_ONE_BYTE);
	if (head.two_byte)
		n *= 2;
	if (n >= TEXT_LARGE / 2 || at >= TEXT_LARGE / 2 - sizeof(head))
		return 1;
	head.bytes = n;
	asm volatile("%0 &= %1" : "+r"(at) : "i"(TEXT_LARGE / 2 - 1));
	asm volatile("%0 &= %1" : "+r"(n) : "i"(TEXT_LARGE / 2 - 1));
	__builtin_memcpy(w->record->text + at, &head, sizeof(head));
	if (bpf_probe_read_user(w->record->text + at + sizeof(head), n, (void *)data))
		return 1;
	w->length = at + sizeof(head) + n;
	w->readable = true;
	return 0;
}

/* Writes a record with a string of several pieces (cons and sliced strings); 0: there was no room for it. */
__noinline int write_pieces(struct thread *t, struct text_head *h, __u64 tagged)
{
	struct string_walk w = {.thread = t};

	if (!t || !h)
		return 0;
	w.open = pieces_of(t);
	if (!w.open)
		return 0;
	RESERVE(record_text_large, r);
	if (!r)
		return 0;
	w.record = r;
	w.open->pieces[0] = tagged;
	w.open->count = 1;
	bpf_loop(MAX_PIECES, walk_piece, &w, 0);
	w.readable &= !w.open->count;
	__builtin_memcpy(r, h, sizeof(*h));
	r->header.flags |= RECORD_PIECES;
	if (!w.readable) {
		r->header.flags |= RECORD_NO_TEXT;
		w.length = 0;
		count(COUNTER_UNREADABLE, 1);
	}
	r->length = w.length;
	bpf_ringbuf_submit(r, wake_flag());
	return 1;
}

/* Writes the characters of a V8 string behind the head; 0: there was no room for the record. */
__noinline int write_string(struct thread *t, struct text_head *h, __u64 tagged)
{
	struct v8_string s = {};

	if (!t || !h)
		return 0;
	if (tagged && v8_string_data(t, tagged, &s)) {
		__u64 n = s.length;

		if (s.two_byte) {
			h->header.flags |= RECORD_TWO_BYTE;
			n *= 2;
		} else {
			h->header.flags |= RECORD_LATIN1;
		}
		return write_text(t, h, s.data, n & 0x7fffffff);
	}
	if (tagged && v8_string_type(t, tagged) != NOT_A_STRING)
		return write_pieces(t, h, tagged);
	h->header.flags |= RECORD_NO_TEXT;
	return write_text(t, h, 0, 0);
}

#endif
