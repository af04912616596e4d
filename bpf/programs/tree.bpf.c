// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The programs that follow the process tree. They alone read kernel structures. */
#include "types.h"
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "records.h"
#include "thread.bpf.h"
#include "processes.bpf.h"

char LICENSE[] SEC("license")
= "Dual MIT/GPL";
