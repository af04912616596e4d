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
	ACTION_PARSE,
	ACTION_COLLECTION_BEGIN,
	ACTION_COLLECTION_END,
	ACTION_IMPORT,
	ACTION_CODE,
	ACTION_CODE_MOVED,
	ACTION_WASM_MODULE,
	ACTION_WASM_CODE,
	ACTION_WASM_SCRIPT,
	ACTION_REQUEST,
	ACTION_RESUME,
	ACTION_CALLBACK_SCOPE,
	ACTION_REQUEST_SCOPE,
	ACTION_CALLBACK_SCOPE_END,
	ACTION_ISOLATE_TAKEN,
	ACTION_CALIBRATE,
};

/*
 * The cookie of an attach point, low bits first:
 *   action 8 | detail 8 | register 4 | register 4 | flags 8 | binary 8 | id 24
 * The id is the index of the probe, or of the callback, in the plan of the binary; with COOKIE_IN_SLOT, where the slot is.
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
/* Of a call site: the callback's address is not in the register, but in the word of memory that lies this many words (the id) below it. */
#define COOKIE_IN_SLOT 4
/* The callback goes on in another one of its group (the detail; 0: it is of none), whose entry is no call of its own. */
#define COOKIE_GOES_ON 8

/* Details: kinds of a call site. */
enum call_kind {
	CALL_SLOW,
	CALL_FAST,
	CALL_GETTER,
	CALL_CONSTRUCT,
	CALL_TO_JS,
	CALL_BY_MARK,
	CALL_BY_CALLER
};

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
	RECORD_WALK,
	RECORD_FUNCTION,
	RECORD_FUNCTION_NAME,
	RECORD_SCRIPT,
	RECORD_POSITIONS,
	RECORD_IMPORT,
	RECORD_SAMPLE,
	RECORD_WAIT,
	RECORD_MAPPING,
	RECORD_UNMAP,
	RECORD_SOURCE,
	RECORD_CODE,
	RECORD_INLINED,
	RECORD_CODE_POSITIONS,
	RECORD_BASELINE,
	RECORD_CODE_MOVED,
	RECORD_CONTINUATION,
	RECORD_ENVIRONMENT,
	RECORD_WASM,
	RECORD_WASM_NAMES, /* a text: the names of functions in a module's bytes. The module is told by the header's id and the descriptor */
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

/* Of a phase: a node that the process executed in the place of another one, which had passed milestones. */
#define PHASE_LATER_IMAGE 0x80

struct record_header {
	__u8 type;
	__u8 flags;
	__u8 kind;
	__u8 phase;
	__u32 pid;
	__u32 tid;
	__u32 id; /* the cookie's id and binary, of a call the binary alone; or a syscall's number */
	__u64 time;  /* CLOCK_MONOTONIC, ns */
	__u32 stack; /* of a RECORD_WALK, 0: none */
	__u32 extra; /* of a RECORD_FILE: which open file it was, 0: not told; of a RECORD_SCRIPT: columns before its first one */
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

/* The header's kind is the round of the new process: another one of the same number had another round. */
struct record_fork {
	struct record_header header;
	__u32 child_pid;
	__u32 child_tid;
};

struct record_exit {
	struct record_header header;
	__s32 exit_code; /* as in wait(2): of the last thread that of the process */
	__u32 last; /* none of its process is left: of several that end at once each may be it */
	__u64 user, system; /* ns, by ticks */
	__u64 runtime;	    /* ns, sum of both, as of the latest tick */
	__u64 max_rss;	    /* pages */
};

/* What a frame of a stack is. */
enum frame_code {
	FRAME_MACHINE,	   /* code is an address */
	FRAME_INTERPRETED, /* code is a function's number, position an offset into its bytecode */
	FRAME_BASELINE, /* code is a function's number, position an address in its machine code */
	FRAME_COMPILED, /* the same, optimised code or a builtin */
};
/* Flag of a frame's kind: position is the address of a call. */
#define FRAME_CALLING 128

/* No stack; the caller of an outermost frame. */
#define STACK_NONE 0
/* Kind of a RECORD_LOOKUP: not a package.json, but what a module or an add-on is to be made of. */
#define LOOKUP_IS_LOAD 1
/* Flag of a RECORD_WALK: frames outside of its outermost one are missing. */
#define RECORD_CUT 1
/* More frames than any start was seen to nest: express needs 120, webpack 250. */
#define WALK_FRAMES 512
/* Threads that walk at the same time; a power of two. Others take turns. */
#define WALK_SLOTS 64
/* A frame's position lies below its kind. */
#define WALK_KIND_SHIFT 56

struct walk_frame {
	__u64 code;
	__u64 position;
};

/* Frames that were seen for the first time below their caller. */
struct record_walk {
	struct record_header header;
	__u32 first; /* number of the outermost of them; the others count on inwards */
	__u32 base;  /* number of the stack around them, or STACK_NONE */
	__u32 count;
	__u32 unused;
	struct walk_frame
		frames[WALK_FRAMES]; /* from the outermost inwards; as many as there are */
};

/* An import statement was linked to a module; both are numbers of RECORD_SCRIPTs. */
struct record_import {
	struct record_header header;
	__u32 requirer, loaded;
};

/* A longer name follows in a RECORD_FUNCTION_NAME. */
#define NAME_LENGTH 128

/* A JavaScript function, written when it is first seen; the header's id is its number. */
struct record_function {
	struct record_header header;
	__u32 script;	/* number of its RECORD_SCRIPT, 0: a builtin of V8 */
	__u32 literal;	/* number of the function literal in its script */
	__u32 flags;	/* of the SharedFunctionInfo */
	__u32 length;	/* of the name, bytes */
	__u64 position; /* where it begins: a Smi, in the upper half; 0: not known */
	char name[NAME_LENGTH];
};

/*
 * V8 has made code. Optimised: the header's id is the code's number. What is inlined in it follows in RECORD_INLINED, its table of positions
 * in RECORD_CODE_POSITIONS. Or, if it has none, its translations: then the functions that are inlined follow by the numbers of their literals.
 */
struct record_code {
	struct record_header header;
	__u64 start;
	__u32 size;
	__u32 function; /* number of its RECORD_FUNCTION; 0: code that is not optimised, of which nothing follows */
	__u32 exits; /* bytes before those of its instructions that leave it for less optimised code */
	__u16 opcodes; /* of its translations, where these tell what is inlined at a call; 0: its table of positions does */
	__u16 inlined; /* functions that are inlined in it, if its translations tell where */
};

/* What a RECORD_CODE_POSITIONS has; the header's kind. */
#define CODE_POSITIONS	  0 /* the table of positions */
#define CODE_SAFEPOINTS	  1 /* what lies behind the instructions: Maglev's safepoint table first */
#define CODE_EXITS	  2 /* exits after calls, 3 words each; before them: the descriptor */
#define CODE_TRANSLATIONS 3 /* what stands for the frames at the exits */
#define CODE_OFFSETS	  4 /* baseline code: bytes that each instruction of the bytecode became */
#define CODE_BYTECODE	  5 /* what it was made of */

/* A frame of baseline code was seen, whose offsets and bytecode follow in RECORD_CODE_POSITIONS. The header's id is the code's number. */
struct record_baseline {
	struct record_header header;
	__u64 start;
	__u32 size;
	__u32 function; /* number of its RECORD_FUNCTION, which frames use */
};

/* Code that the garbage collector has moved, by the address of its first instruction. */
struct record_code_moved {
	struct record_header header;
	__u64 from;
	__u64 to;
};

/* What a record about WebAssembly tells; the header's kind. */
#define WASM_MODULE 0 /* a module is there, of which code may be made */
#define WASM_CODE   1 /* code of a function: its number */
#define WASM_SCRIPT 2 /* what V8 names it by: number of a RECORD_SCRIPT */

struct record_wasm {
	struct record_header header;
	__u64 module; /* by its address */
	__u64 start, size;
	__u32 number;
	__u32 unused;
};

/* What a record of an asynchronous request tells; the header's kind. */
#define CONTINUATION_REQUESTED 0 /* it is made, where the header's stack tells */
#define CONTINUATION_BEGUN     1 /* node calls back; from here on all that runs is its consequence */
#define CONTINUATION_ENDED     2 /* with all promises that this has settled */

struct record_continuation {
	struct record_header header;
	__u64 scope;	/* node's callback scope, by its address; 0: of no scope yet */
	__u64 resource; /* the request, by its address; 0: of none */
};

/* A function that is inlined in optimised code, which the header's id tells. */
struct record_inlined {
	struct record_header header;
	__u64 position; /* of its call: V8's SourcePosition */
	__u32 index;	/* by which positions name it */
	__u32 function; /* number of its RECORD_FUNCTION, 0: not known */
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
/* The environment of a program: most have less than 4 KB, those of CI systems two or three times as much. */
#define ENVIRONMENT_BYTES 16384
struct record_environment {
	struct record_header header;
	__u64 duration;
	__s64 result;
	__s32 descriptor;
	__u32 length;
	char text[ENVIRONMENT_BYTES];
};
/*
 * A text that is longer comes in records of this size, in order: their `result` tells where in it, their `duration` how long it is. Even,
 * so that no character is torn.
 */
#define PIECE_BYTES 4094
/* Of what is longer only the last piece follows: a table of positions of some 20,000 lines, the text of an eval. */
#define LARGEST_TEXT (64 * PIECE_BYTES)
/* What precedes the text in both. */
#define TEXT_OFFSET __builtin_offsetof(struct record_text, text)

/* A CPU sample. Frames of the kernel are few: the deepest reads of a file have some 30. */
#define KERNEL_FRAMES 32
struct record_sample {
	struct record_header header;
	__u64 weight; /* CPU time it stands for, ns */
	__u64 ip;     /* of the program: where it was, or where it called the kernel */
	__u32 depth;  /* frames of the kernel */
	__u32 unused;
	__u64 kernel[KERNEL_FRAMES];
};

/* What kept a thread off the CPU; flags of a wait. */
#define WAIT_PREEMPTED 1 /* it could have run on */
#define WAIT_FAULT     2 /* in an exception, not in a system call */
#define WAIT_DISK      4 /* for a block device */

/* A time off the CPU, written when the thread runs again; header.id is the system call or -1. */
struct record_wait {
	struct record_header header;
	__u64 duration;
	__u64 runnable; /* of it: from the wake-up on */
	__u64 ip;	/* of the program: where it was, or where it called the kernel */
};

/* How a file came to be mapped; header.kind. */
enum mapping_kind {
	MAPPING_EXEC, /* by an exec: start_code to end_code of the program */
	MAPPING_MMAP, /* by mmap */
};

/* Executable code of a file in memory. */
struct record_mapping {
	struct record_header header;
	__u64 start, size;
	__u64 offset;	   /* in the file; of an exec: not told */
	__u64 interpreter; /* of an exec: where its ELF header lies, 0: none */
	__u64 vdso;	   /* of an exec: where its ELF header lies, 0: none */
	__u64 inode, file_size;
	__u32 length;
	__u32 whole; /* the text reaches up to the root */
	char text
		[TEXT_LARGE]; /* the components of the path, innermost first, each with a NUL behind it */
};

/* munmap, or mremap to another place. */
struct record_unmap {
	struct record_header header;
	__u64 start, size;
	__u64 to, to_size; /* 0: nowhere */
};

/* Sums of calls that are not written one by one. */
struct sum_key {
	__u64 callback; /* for serialization: the crossing around it */
	__u32 pid;
	__u32 id; /* serialization: the cookie's id and binary; else the binary alone */
	__u8 kind;
	__u8 phase;
	__u8 family; /* 0 crossings, 1 serialization, 2 callback entries (verify) */
	__u8 round;  /* of the process, as the record of its fork has it */
	__u32 stack;
};
struct sum {
	__u64 calls;
	__u64 timed;
	__u64 total;
	__u64 own;
	__u64 bytes;
};

/* Per node binary: address ranges that tell a caller's sort, as the linker wrote them. */
struct image {
	__u64 segment; /* the first executable one: the kernel tells where it has put that */
	__u64 text_start, text_end;
	__u64 builtins_start, builtins_end;
	__u64 first_nonstring; /* V8 instance types below are strings */
	__u64 constructor_start, constructor_end;
	__u64 call_add_on,
		load_add_on; /* callbacks in which functions of add-ons run; 0: not known */
	/* V8's layout, as probes/src/v8.rs explains it; function_shared is 0 if it is not known. */
	__u8 function_shared, shared_name_or_scope, shared_script, shared_flags;
	__u8 script_source, script_name, script_id, script_wrapped;
	__u8 bytecode_positions, bytecode_data, scope_first, scope_has_position;
	__u8 map_descriptors, descriptors_first, details_location, dictionary_first;
	__u8 scope_flags;
	__u8 opcodes;		  /* of a Code's translations; 0: not known */
	__u16 code_type;	  /* of a Code */
	__u16 baseline_data_type; /* 0: there is none */
	__u16 first_function_type, last_function_type, shared_type, script_type;
	__u16 scope_type, bytecode_type, fixed_array_type, byte_array_type, trusted_byte_array_type;
	__u16 function_template_type, source_text_module_type, builtin_exit_frame;
	__u16 accessor_info_type; /* 0: names of closures are not read */
	__u16 first_context_type, last_context_type;
	__u16 synthetic_module_type;
	/* Of a Code: offsets; code_deopt is 0 if they are not known. */
	__u8 code_deopt, code_positions, code_start, code_size;
	__u8 code_embedded; /* code_start is where the instructions lie, not where their address does */
	/* Indices into its DeoptimizationData. */
	__u8 deopt_literals, deopt_shared, deopt_inlining;
	__u8 deopt_wrapped; /* there is an object around the SharedFunctionInfo */
	__u8 code_flags;    /* 0: its table of positions is right, if there is one */
	__u8 baseline_kind; /* one more than it, when one was seen: Maglev's */
	__u8 position_independent;
	__u8 wasm_frame;      /* 0: there is none */
	__u8 collection_ends; /* the end of a garbage collection is probed */
	/* Numbers of the milestones that somebody waits for; the same: not known. */
	__u8 loop_start, loop_exit;
};
/* As many as a cookie tells apart. */
#define MAX_IMAGES 256

/* A file, as the kernel knows it: what stat calls its device is another number on some file systems. */
struct file_key {
	__u64 inode, size, device;
};

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
	COUNTER_STACKS_LOST,	/* stacks that could not be walked or kept */
	COUNTER_SAMPLES,	/* ticks in the tree */
	COUNTER_SWITCHES,	/* of threads of the tree, off the CPU and on it */
	COUNTER_WAITS_LIMIT,	/* short waits beyond the limit per second */
	COUNTER_FOREIGN,	/* processes that took over others' rights */
	COUNTER_SOURCES_LOST,	/* texts of scripts that are in no file */
	COUNTER_MAX,
};
#endif
