/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a processor that the lab can play is made of. These are the names, formats
 * and encodings of its performance units, and what of the model each event counts.
 *
 * The tables are written from the vendors' lists and from arch/x86/events and
 * drivers/perf of Linux 6.12. They do not come from the product's tables: the two
 * must meet in the numbers alone.
 *
 *   processor.c   which processor this machine plays; finds events in its tables
 *   intel.c ...   the tables, one file for each maker
 *   uncore_pmu.c  the units outside the cores
 *   plain.c       how these count
 *   files.c       sysfs files whose text is known at load
 */
#ifndef RONDPOINT_PROCESSOR_H
#define RONDPOINT_PROCESSOR_H

#include <linux/perf_event.h>
#include <linux/sysfs.h>
#include <linux/types.h>

#include "layout.h"

/* A sysfs file; lists end with a NULL name. */
struct rp_text {
	const char *name, *text;
};

/* Bits of rp_core_event.counts: the model's events that are added up ... */
#define RP_COUNTS(event) BIT_ULL(RP_EVENT_##event)
/* ... and lines that the CPU reads, prefetches included, from its own node's DRAM or another's. */
#define RP_COUNTS_OWN_NODE BIT_ULL(62)
#define RP_COUNTS_OTHER_NODES BIT_ULL(63)

/* An event of the cores' unit. A list ends with counts 0. */
struct rp_core_event {
	u64 config;
	u64 counts;
	bool has_latency; /* config1 is a threshold, cycles */
};

/* What a unit outside the cores can count for its node. */
enum rp_quantity {
	RP_READ_LINES = 1, /* that the node's memory was read for */
	RP_WRITTEN_LINES,
	RP_ACCESSED_LINES, /* both */
	RP_FETCHED_LOCAL, /* lines that the node's CPUs read from its own memory */
	RP_FETCHED_REMOTE, /* and from others' */
	RP_HOME_READS_LOCAL, /* lines that the node's own CPUs read from its memory */
	RP_HOME_READS_REMOTE, /* and others' CPUs */
	RP_HOME_WRITES_LOCAL,
	RP_HOME_WRITES_REMOTE,
	RP_SENT_BYTES, /* over links that leave the node */
	RP_RECEIVED_BYTES,
	RP_CACHE_LOOKUPS, /* of the node's last-level caches */
	RP_CACHE_MISSES,
	RP_NOTHING, /* which the model does not have */
};

/*
 * An event of a unit outside the cores, or a series of them: code, code + step ...
 * one for each port of the unit, which share the quantity among them. A list ends
 * with quantity 0.
 */
struct rp_uncore_event {
	u32 code, umask;
	u64 config1;
	enum rp_quantity quantity;
	u32 times, through; /* the count is the quantity times `times` through `through` */
	u32 step, ports; /* 0: one event */
};

/* A kind of unit, of which each node with CPUs has those whose numbers are in `numbers`. */
struct rp_uncore {
	const char *name;
	u32 numbers; /* bit n: NAME_n exists; 0: one unit, without a number */
	const struct rp_text *format;
	const struct rp_text *aliases; /* may be NULL */
	u64 (*encoded)(u32 code, u32 umask);
	const struct rp_uncore_event *events;
	bool of_one_node; /* numbers go on from node to node; else each unit counts for every node */
};

struct rp_processor {
	const char *core; /* name of the cores' unit */
	const struct rp_text *format, *aliases, *caps;
	const struct rp_core_event *events;
	u64 cache_references, cache_misses; /* what the kernel's generic events count here */
	const struct rp_uncore *uncore;
	unsigned int uncore_kinds;
	bool lists_cpus; /* the cores' unit has a file `cpus` */
	bool has_spe;
};

extern const struct rp_processor rp_nehalem_ep, rp_ivybridge_ep, rp_skylake_sp;
extern const struct rp_processor rp_amd_zen1, rp_amd_zen4, rp_neoverse_n1;

/* processor.c; NULL: the machine plays none, and its core unit speaks the model's own numbers. */
const struct rp_processor *rp_processor(void);
const struct rp_core_event *rp_find_core_event(const struct perf_event_attr *attr);

/*
 * files.c: a folder of files, made at load. A folder that could not be filled holds
 * fewer; rp_files_failed() tells after all are made. rp_files_free() frees all folders.
 */
struct attribute_group *rp_folder(const char *name, const struct rp_text *files);
void rp_add_file(struct attribute_group *folder, const char *name, const char *text);
void rp_add_cpus(struct attribute_group *folder, const char *name);
bool rp_files_failed(void);
void rp_files_free(void);

/* uncore_pmu.c */
int rp_uncore_register(void);
void rp_uncore_unregister(void);
/* Takes the unit of that whole name from sysfs, and brings back all others. */
void rp_uncore_hide(const char *name);

#endif
