/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the guest PMU driver share. These are access to the model's
 * memory (layout.h), the state of one CPU, and the few functions that cross files.
 *
 *   main.c         finds the device, checks its header, registers and unregisters
 *   core_events.c  names and codes of the core events; perf attributes -> event
 *   core_pmu.c     the core PMUs: counters, slots, start and stop
 *   processor.h    the processor that is played, its units and their files
 *   ibs_pmu.c      AMD's op sampling, on machines of that maker
 *   spe_pmu.c      Arm's statistical profiling, where the processor that is played has it
 *   samples.c      the NMI handler: ring -> perf samples
 *   data_source.c  data source encodings of the three vendors
 *   plain.h        units that only count, for whole nodes
 *   price.c        which CPU executes for a manager: see layout.h, PRICE
 *   node_pmu.c     what the model knows of memory controllers and links
 */
#ifndef RONDPOINT_PMU_H
#define RONDPOINT_PMU_H

#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/types.h>

#include "layout.h"

#define RP_NAME "rondpoint_pmu"

/* A counter is a slot (0 .. RP_MAX_SLOTS - 1) or one of the fixed ones after it. */
#define RP_FIXED_INSTRUCTIONS (RP_MAX_SLOTS + 0)
#define RP_FIXED_CYCLES (RP_MAX_SLOTS + 1)
#define RP_FIXED_REF_CYCLES (RP_MAX_SLOTS + 2)
#define RP_COUNTERS (RP_MAX_SLOTS + 3)

/* The first word of the shared memory; constant while the module is loaded. */
extern u64 *rp_memory;

/* An event that is more than one of the model's; it can be counted, not sampled. */
#define RP_EVENT_SUM 0xff

/* Which processor's encoding a configuration has. */
enum rp_language {
	RP_OF_KERNEL, /* generic events */
	RP_OF_PROCESSOR,
	RP_OF_MODEL,
};

struct rp_cpu {
	/* The events that occupy the counters; NULL = free. */
	struct perf_event *events[RP_COUNTERS];
	/* The generation last given to a slot, and the period it reloads with. */
	u64 generation[RP_MAX_SLOTS];
	u64 period[RP_MAX_SLOTS];
	/* Samples were taken since the last empty NMI: one more may be on its way. */
	bool nmi_may_follow;
	u64 samples;
	u64 late;
};

DECLARE_PER_CPU(struct rp_cpu, rp_cpus);

/* hw_perf_event fields as this driver uses them. */
#define rp_event_code(hw) ((hw)->config) /* RP_EVENT_*, or RP_EVENT_SUM */
#define rp_event_counts(hw) ((hw)->extra_reg.config) /* what is added up, RP_COUNTS bits */
#define rp_event_control(hw) ((hw)->config_base) /* RP_CONTROL_* */
#define rp_event_threshold(hw) ((hw)->event_base) /* cycles */
#define rp_event_per_access(hw) ((hw)->last_tag) /* events of perf's that an event of the slot is */

/* The period of @hw in events of its slot. */
static inline u64 rp_slot_period(struct hw_perf_event *hw)
{
	return max(hw->sample_period / rp_event_per_access(hw), 1ULL);
}

static inline u64 rp_load(unsigned int word)
{
	return READ_ONCE(rp_memory[word]);
}

static inline void rp_store(unsigned int word, u64 value)
{
	WRITE_ONCE(rp_memory[word], value);
}

static inline unsigned int rp_cpu_word(unsigned int cpu, unsigned int word)
{
	return RP_CPU_BASE + cpu * RP_CPU_WORDS + word;
}

static inline unsigned int rp_slot_word(unsigned int cpu, unsigned int slot,
					unsigned int word)
{
	return rp_cpu_word(cpu, RP_CPU_SLOTS + slot * RP_SLOT_WORDS + word);
}

/* The plugin acts on shared memory at the marker: nothing may be cached over it. */
static inline void rp_marker_read(void)
{
	asm volatile("xchg %%rsi, %%rsi" : : : "memory");
}

static inline void rp_marker_slots(void)
{
	asm volatile("xchg %%rdi, %%rdi" : : : "memory");
}

static inline void rp_marker_nodes(void)
{
	asm volatile("xchg %%rbp, %%rbp" : : : "memory");
}

/* core_events.c */
extern const struct attribute_group *rp_model_groups[];
const struct attribute_group **rp_core_groups(void);
int rp_event_code_of(const struct perf_event_attr *attr, enum rp_language language, u64 *counts,
		     u64 *threshold);

/* core_pmu.c */
int rp_core_register(void);
void rp_core_unregister(void);
void rp_core_attach(struct perf_event *event, unsigned int counter, int flags);
void rp_core_del(struct perf_event *event, int flags);
void rp_core_start(struct perf_event *event, int flags);
void rp_core_stop(struct perf_event *event, int flags);
void rp_core_read(struct perf_event *event);

/* ibs_pmu.c */
int rp_ibs_register(void);
void rp_ibs_unregister(void);

/* spe_pmu.c */
int rp_spe_register(void);
void rp_spe_unregister(void);
bool rp_spe_owns(const struct perf_event *event);
void rp_spe_write(struct perf_event *event, unsigned int cpu, u64 number);

/* samples.c */
unsigned int rp_entry_word(unsigned int cpu, u64 number, unsigned int word);
int rp_samples_start(void);
void rp_samples_stop(void);

/* data_source.c */
u64 rp_data_source(u64 source, u64 flags);

/* price.c */
void rp_price_enter(void);
void rp_price_leave(void);
void rp_price_start(void);
void rp_price_stop(void);

/* node_pmu.c */
int rp_node_register(void);
void rp_node_unregister(void);

#endif
