/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Reading V8 strings. The layout is the same in V8 9.4 to 14.6 without pointer compression:
 * map at 0, length (int32) at 12, characters at 16; cons string: first at 16; thin string: actual at 16;
 * sliced: parent at 16; external: resource data at 24. A tagged pointer has its lowest two bits 01.
 * The representation and encoding are in the low bits of the instance type (u16 at map + 12):
 * bits 0-2: 0 sequential, 1 cons, 2 external, 3 sliced, 5 thin; bit 3: one byte per character.
 */
#ifndef NODEPROF_V8_H
#define NODEPROF_V8_H

#define STRING_REPRESENTATION 7
#define STRING_ONE_BYTE 8
#define FIRST_NON_STRING_TYPE 128

struct v8_string {
	__u64 data;
	__u32 length; /* characters */
	bool two_byte;
};

/* The length of the string, or negative if it is none. */
static __always_inline __s64 v8_string_length(__u64 tagged)
{
	__u64 map;
	__u16 type = 0xffff;
	__s32 length = -1;

	if ((tagged & 3) != 1)
		return -1;
	map = read_word(tagged - 1);
	if ((map & 3) != 1 || bpf_probe_read_user(&type, sizeof(type), (void *)(map - 1 + 12)) ||
	    type >= FIRST_NON_STRING_TYPE)
		return -1;
	bpf_probe_read_user(&length, sizeof(length), (void *)(tagged - 1 + 12));
	return length;
}

/* Finds the characters of a string; follows cons, thin and sliced strings that wrap a single other one. */
static __always_inline bool v8_string_data(__u64 tagged, struct v8_string *s)
{
	for (int i = 0; i < 3; i++) {
		__u64 map;
		__u16 type = 0xffff;
		__s32 length = 0;

		if ((tagged & 3) != 1)
			return false;
		map = read_word(tagged - 1);
		if ((map & 3) != 1 || bpf_probe_read_user(&type, sizeof(type), (void *)(map - 1 + 12)) ||
		    type >= FIRST_NON_STRING_TYPE)
			return false;
		bpf_probe_read_user(&length, sizeof(length), (void *)(tagged - 1 + 12));
		s->length = length;
		s->two_byte = !(type & STRING_ONE_BYTE);
		switch (type & STRING_REPRESENTATION) {
		case 0:
			s->data = tagged - 1 + 16;
			return true;
		case 2:
			s->data = read_word(tagged - 1 + 24);
			return s->data != 0;
		case 1: /* a flattened cons string has all in its first half */
		case 5:
			tagged = read_word(tagged - 1 + 16);
			break;
		default:
			return false;
		}
	}
	return false;
}

#endif
