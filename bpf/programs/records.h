/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What crosses from the kernel to user space, and what user space hands down with each attach point.
 * The only definition: Rust takes these types from the BTF of the compiled programs.
 */
#ifndef NODEPROF_RECORDS_H
#define NODEPROF_RECORDS_H

/* What a probe does; the low byte of its cookie. */
enum action {
	ACTION_NONE,
	ACTION_CALL_ENTER,
	ACTION_CALL_EXIT,
	ACTION_CALL_MARK,
	ACTION_CALL_MARK_FLAG,
	ACTION_FAST_ENTRY,
	ACTION_PROPERTY_ENTRY,
	ACTION_CALLBACK_ENTRY,
	ACTION_TO_JS,
	ACTION_MILESTONE,
	ACTION_SPAN,
	ACTION_LOOKUP,
	ACTION_SERIALIZATION,
	ACTION_COMPILE,
	ACTION_CODE_CACHE_HIT,
	ACTION_CALIBRATE,
};

/*
 * The cookie of an attach point, low bits first:
 *   action 8 | detail 8 | register 4 | register 4 | flags 8 | binary 8 | id 24
 * The id is the index of the probe, or of the callback, in the plan of the binary.
 */
#define COOKIE_DETAIL_SHIFT	8
#define COOKIE_REGISTER_A_SHIFT 16
#define COOKIE_REGISTER_B_SHIFT 20
#define COOKIE_FLAGS_SHIFT	24
#define COOKIE_BINARY_SHIFT	32
#define COOKIE_ID_SHIFT		40

/* Flags of a cookie. */
#define COOKIE_HAS_RETURN 1
/* A callback's entry is the only place where its call from optimised code is seen. */
#define COOKIE_IS_CROSSING 2

/* Details: kinds of a call site. */
enum call_kind { CALL_SLOW, CALL_FAST, CALL_GETTER, CALL_CONSTRUCT, CALL_TO_JS, CALL_BY_MARK };

/* Details: where a path is. */
enum path_source {
	PATH_NONE,
	PATH_STRING_VIEW,
	PATH_C_STRING,
	PATH_V8_HANDLE,
	PATH_ARGUMENT,
	PATH_COMPILER_SOURCE
};

/* Details: where a size is. */
enum size_source {
	SIZE_UNKNOWN,
	SIZE_LENGTH_ARGUMENT,
	SIZE_SIZE_ARGUMENT,
	SIZE_RETURNED_STRING,
	SIZE_STRING_ARGUMENT,
	SIZE_RETURNED_SIZE,
	SIZE_FIELD_AT_RETURN,
};

enum record_type {
	RECORD_CALL = 1,
	RECORD_SERIALIZATION,
	RECORD_MILESTONE,
	RECORD_SPAN,
	RECORD_LOOKUP,
	RECORD_COMPILE_ENTER,
	RECORD_COMPILE,
	RECORD_FILE,
	RECORD_FORK,
	RECORD_EXEC,
	RECORD_EXIT,
	RECORD_IO_URING,
};

/* Flags of a record. */
#define RECORD_UNFINISHED 1   /* entered, never left */
#define RECORD_UNTIMED	  2   /* only the entry is probed */
#define RECORD_NESTED	  4   /* inside another of its family */
#define RECORD_CACHED	  8   /* code taken from a cache */
#define RECORD_LATIN1	  8   /* records with text: one byte a character */
#define RECORD_TWO_BYTE	  16  /* text is UTF-16 */
#define RECORD_TRUNCATED  32  /* text was longer */
#define RECORD_NO_TEXT	  64  /* text could not be read */
#define RECORD_PIECES	  128 /* text is a row of pieces, each with its struct piece before it */

/* Part of a V8 string: followed by its bytes. */
struct piece {
	__u16 bytes;
	__u16 two_byte;
};

/* A callback is an address, or an index into the plan's callbacks with this bit set. */
#define CALLBACK_BY_INDEX (1ULL << 63)
/* No callback. */
#define CALLBACK_NONE 0

struct record_header {
	__u8 type;
	__u8 flags;
	__u8 kind;
	__u8 phase;
	__u32 pid;
	__u32 tid;
	__u32 id;   /* the cookie's id and binary, or a syscall's number */
	__u64 time; /* CLOCK_MONOTONIC, ns */
};

/* A crossing, written when it ends. */
struct record_call {
	struct record_header header;
	__u64 duration;
	__u64 inner; /* of the duration: in nested crossings */
	__u64 callback;
	__u64 parent;
};

struct record_serialization {
	struct record_header header;
	__u64 duration;
	__u64 inner;
	__s64 bytes; /* negative: not known */
	__u64 parent;
};

struct record_milestone {
	struct record_header header;
	__u64 timestamp; /* Node's own */
	__u32 number;
	__u32 unused;
};

struct record_span {
	struct record_header header;
	__u64 duration;
};

struct record_compile {
	struct record_header header;
	__u64 duration;
	__u64 inner;
};

struct record_fork {
	struct record_header header;
	__u32 child_pid;
	__u32 child_tid;
};

struct record_exit {
	struct record_header header;
	__s32 exit_code;    /* as in wait(2) */
	__u32 last;	    /* the last thread of its process */
	__u64 user, system; /* ns, by ticks */
	__u64 runtime;	    /* ns, exact sum of both */
	__u64 max_rss;	    /* pages */
};

/*
 * Records with a text come in two sizes, because a ring buffer reservation has to have a constant size:
 * 232 bytes hold nearly all paths of a node_modules tree, 4096 is PATH_MAX.
 */
#define TEXT_SMALL 232
#define TEXT_LARGE 4096
struct record_text {
	struct record_header header;
	__u64 duration;
	__s64 result;
	__s32 descriptor; /* directory or file, for file operations */
	__u32 length;
	char text[TEXT_SMALL];
};
struct record_text_large {
	struct record_header header;
	__u64 duration;
	__s64 result;
	__s32 descriptor;
	__u32 length;
	char text[TEXT_LARGE];
};
/* What precedes the text in both. */
#define TEXT_OFFSET __builtin_offsetof(struct record_text, text)

/* Sums of calls that are not written one by one. */
struct sum_key {
	__u64 callback; /* for serialization: the crossing around it */
	__u32 pid;
	__u32 id; /* serialization: the cookie's id and binary, else 0 */
	__u8 kind;
	__u8 phase;
	__u8 family; /* 0 crossings, 1 serialization, 2 callback entries (verify) */
	__u8 unused[5];
};
struct sum {
	__u64 calls;
	__u64 timed;
	__u64 total;
	__u64 own;
	__u64 bytes;
};

/* Per node binary: address ranges that tell a caller's sort. */
struct image {
	__u64 text_start, text_end;
	__u64 builtins_start, builtins_end;
	__u64 first_nonstring; /* V8 instance types below are strings */
};
#define MAX_IMAGES 64

/* Things lost or counted by the programs, one slot each. */
enum counter {
	COUNTER_HITS,		/* of uprobes and return probes in the tree */
	COUNTER_SYSCALLS,	/* entries and exits in the tree */
	COUNTER_RING_FULL,	/* records that found no room */
	COUNTER_UNMATCHED_EXIT, /* an exit without its enter */
	COUNTER_ABANDONED,	/* an enter whose frame was left without its exit */
	COUNTER_DEPTH,		/* frames deeper than the shadow stack */
	COUNTER_SUMS_FULL,	/* calls that found no room in the sums */
	COUNTER_NO_STATE,	/* threads that could not be followed */
	COUNTER_DIRECT_CALLS,	/* callbacks called by C++ directly: no crossing */
	COUNTER_UNREADABLE,	/* memory of the program that could not be read */
	COUNTER_ENTERS,
	COUNTER_EXITS,
	COUNTER_MAX,
};
#endif
