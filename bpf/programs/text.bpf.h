/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Records that end in a text: a path, a name, a table. */
#ifndef NODEPROF_TEXT_H
#define NODEPROF_TEXT_H

/* Writes `length` bytes (or up to NUL if negative) of the program's memory behind the head; 0: there was no room for the record. */
__noinline int write_text(struct thread *t, struct text_head *h, __u64 pointer, __s64 length)
{
	__s64 got;

	if (!t || !h)
		return 0;
	if (length < TEXT_SMALL) {
		RESERVE(record_text, r);
		if (!r)
			return 0;
		__builtin_memcpy(r, h, sizeof(*h));
		if (length < 0) {
			got = bpf_probe_read_user_str(r->text, TEXT_SMALL, (void *)pointer);
			r->length = got > 0 ? got - 1 : 0;
		} else {
			__u32 n = length & 255;

			if (n > TEXT_SMALL)
				n = TEXT_SMALL;
			r->length = n;
			got = bpf_probe_read_user(r->text, n, (void *)pointer);
		}
		if (got < TEXT_SMALL) { /* else it may be longer: take the large record */
			if (got < 0) {
				r->length = 0;
				r->header.flags |= RECORD_NO_TEXT;
				count(COUNTER_UNREADABLE, 1);
			}
			bpf_ringbuf_submit(r, wake_flag());
			return 1;
		}
		bpf_ringbuf_discard(r, BPF_RB_NO_WAKEUP);
	}
	{
		RESERVE(record_text_large, r);
		if (!r)
			return 0;
		__builtin_memcpy(r, h, sizeof(*h));
		if (length < 0) {
			got = bpf_probe_read_user_str(r->text, TEXT_LARGE, (void *)pointer);
			r->length = got > 0 ? got - 1 : 0;
		} else {
			__u32 n = length > TEXT_LARGE - 1 ? TEXT_LARGE - 1 : length;

			n &= TEXT_LARGE - 1;
			r->length = n;
			got = bpf_probe_read_user(r->text, n, (void *)pointer);
			if (length > TEXT_LARGE - 1)
				r->header.flags |= RECORD_TRUNCATED;
		}
		if (got < 0) {
			r->length = 0;
			r->header.flags |= RECORD_NO_TEXT;
			count(COUNTER_UNREADABLE, 1);
		}
		bpf_ringbuf_submit(r, wake_flag());
	}
	return 1;
}

#endif
