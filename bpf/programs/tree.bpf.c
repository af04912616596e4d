// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The programs that follow the process tree, its mappings, its files and its waits. They alone read kernel structures. */
#include "types.h"
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "records.h"
#include "thread.bpf.h"
#include "mappings.bpf.h"
#include "processes.bpf.h"
#include "text.bpf.h"
#include "files.bpf.h"
#include "waits.bpf.h"

char LICENSE[] SEC("license")
= "Dual MIT/GPL";
