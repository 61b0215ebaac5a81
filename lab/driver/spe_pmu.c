// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The PMU `arm_spe_0`, registered where the processor that is played has it. It has
 * the interface of Arm's Statistical Profiling Extension as drivers/perf/
 * arm_spe_pmu.c of Linux 6.12 shows it. Samples are packets in an auxiliary buffer
 * (Arm Architecture Reference Manual, DDI 0487, chapter D17). A record about the
 * buffer follows when the event stops, and when the buffer passes its watermark. A
 * full buffer disables the event until its reader enables it again.
 *
 * Samples take the slot behind the programmable counters. Filters act on what is
 * sampled, not on what counts towards the next sample.
 *
 * Differences: real hardware samples operations of all kinds and interrupts when
 * its buffer fills. This unit takes one access for three operations, as ibs_pmu.c,
 * and interrupts at each sample. Times are those of the x86 timestamp counter, which
 * the event's control page converts. There are no branches and no event filters.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/stringify.h>
#include <linux/sysfs.h>
#include <asm/msr.h>

#include "lies.h"
#include "processor.h"
#include "rondpoint_pmu.h"

/* config */
#define SPE_TIMESTAMPS BIT_ULL(0)
#define SPE_PHYSICAL BIT_ULL(1)
#define SPE_JITTER BIT_ULL(16)
#define SPE_LOADS BIT_ULL(33)
#define SPE_STORES BIT_ULL(34)
#define SPE_KNOWN (SPE_TIMESTAMPS | SPE_PHYSICAL | SPE_JITTER | SPE_LOADS | SPE_STORES)
/* config2 */
#define SPE_LATENCY GENMASK_ULL(11, 0)

#define SPE_MIN_INTERVAL 1024
#define SPE_OPS_PER_ACCESS 3
#define SPE_RECORD_BYTES 64

/* Bits of an events packet. */
#define HAS_RETIRED BIT(1)
#define HAS_L1_REFILL BIT(3)
#define HAS_LLC_ACCESS BIT(8)
#define HAS_LLC_MISS BIT(9)
#define HAS_REMOTE_ACCESS BIT(10)

/* The pages of an auxiliary buffer. */
struct spe_buffer {
	int count;
	void *pages[];
};

/* What this CPU's event has written since its buffer was opened. */
struct spe_cpu {
	struct perf_output_handle handle;
	unsigned long written;
};

static DEFINE_PER_CPU(struct spe_cpu, spe_cpus);
static struct pmu spe_pmu;
static bool registered;

static unsigned int spe_slot(void)
{
	return rp_load(RP_HEADER_SLOTS);
}

bool rp_spe_owns(const struct perf_event *event)
{
	return registered && event->pmu == &spe_pmu;
}

static int spe_event_init(struct perf_event *event)
{
	struct perf_event_attr *attr = &event->attr;
	struct hw_perf_event *hw = &event->hw;

	if (attr->type != spe_pmu.type)
		return -ENOENT;
	if (attr->config & ~SPE_KNOWN || attr->config1 || attr->config2 & ~SPE_LATENCY ||
	    attr->config3 || attr->exclude_idle)
		return -EOPNOTSUPP;
	if (attr->freq || !is_sampling_event(event))
		return -EINVAL;
	if (!(rp_load(RP_HEADER_SAMPLED_EVENTS_MASK) & BIT_ULL(RP_EVENT_MEM_ANY)))
		return -EOPNOTSUPP;

	rp_event_code(hw) = RP_EVENT_MEM_ANY;
	rp_event_control(hw) = RP_CONTROL_ENABLED_MASK;
	if (!attr->exclude_user)
		rp_event_control(hw) |= RP_CONTROL_USER_MASK;
	if (!attr->exclude_kernel)
		rp_event_control(hw) |= RP_CONTROL_KERNEL_MASK;
	rp_event_threshold(hw) = 0;
	rp_event_per_access(hw) = SPE_OPS_PER_ACCESS;
	hw->sample_period = max_t(u64, hw->sample_period, SPE_MIN_INTERVAL);
	hw->last_period = hw->sample_period;
	local64_set(&hw->period_left, rp_slot_period(hw));
	hw->idx = -1;
	return 0;
}

static bool open_buffer(struct perf_event *event)
{
	struct spe_cpu *cpu = this_cpu_ptr(&spe_cpus);

	cpu->written = 0;
	return perf_aux_output_begin(&cpu->handle, event);
}

static void close_buffer(void)
{
	struct spe_cpu *cpu = this_cpu_ptr(&spe_cpus);

	if (cpu->handle.event)
		perf_aux_output_end(&cpu->handle, cpu->written);
}

static void spe_start(struct perf_event *event, int flags)
{
	if (!(event->hw.state & PERF_HES_STOPPED) || !open_buffer(event))
		return;
	rp_core_start(event, flags);
}

static void spe_stop(struct perf_event *event, int flags)
{
	rp_core_stop(event, flags);
	close_buffer();
}

static int spe_add(struct perf_event *event, int flags)
{
	struct rp_cpu *state = this_cpu_ptr(&rp_cpus);
	unsigned int slot = spe_slot();

	if (state->events[slot])
		return -ENOSPC;
	rp_core_attach(event, slot, 0);
	if (flags & PERF_EF_START)
		spe_start(event, PERF_EF_RELOAD);
	return 0;
}

static void spe_del(struct perf_event *event, int flags)
{
	spe_stop(event, PERF_EF_UPDATE);
	rp_core_del(event, flags);
}

static void *spe_setup_aux(struct perf_event *event, void **pages, int count, bool overwrite)
{
	struct spe_buffer *buffer;

	if (overwrite)
		return NULL;
	buffer = kzalloc(struct_size(buffer, pages, count), GFP_KERNEL);
	if (!buffer)
		return NULL;
	buffer->count = count;
	memcpy(buffer->pages, pages, count * sizeof(*pages));
	return buffer;
}

static void spe_free_aux(void *buffer)
{
	kfree(buffer);
}

/* Writes a packet of @size bytes behind its header; returns the place behind it. */
static u8 *packet(u8 *to, u8 header, u64 payload, unsigned int size)
{
	*to++ = header;
	memcpy(to, &payload, size);
	return to + size;
}

/* The data source packet of Neoverse N1, V1, N2 and V2. Remote memory and remote caches share one. */
static u8 source_packet(u64 source, u64 flags)
{
	switch (source) {
	case RP_SOURCE_L1:
	case RP_SOURCE_IN_FLIGHT:
		return 0x0;
	case RP_SOURCE_L2:
		return 0x8;
	case RP_SOURCE_LLC:
		return 0xb;
	case RP_SOURCE_LOCAL_FWD:
	case RP_SOURCE_LOCAL_HITM:
		return flags & RP_FLAG_OTHER_DOMAIN_MASK ? 0xc : 0x9;
	case RP_SOURCE_LOCAL_DRAM:
		return 0xe;
	default:
		return 0xd;
	}
}

static u16 events_packet(u64 source)
{
	u16 events = HAS_RETIRED;

	if (source != RP_SOURCE_L1)
		events |= HAS_L1_REFILL;
	if (source >= RP_SOURCE_LLC && source != RP_SOURCE_IN_FLIGHT)
		events |= HAS_LLC_ACCESS;
	if (source > RP_SOURCE_LLC && source != RP_SOURCE_IN_FLIGHT)
		events |= HAS_LLC_MISS;
	if (source == RP_SOURCE_REMOTE_FWD || source == RP_SOURCE_REMOTE_HITM ||
	    source == RP_SOURCE_REMOTE_DRAM)
		events |= HAS_REMOTE_ACCESS;
	return events;
}

/* Top bytes of addresses: of an instruction the level and security state, of data a tag. */
#define IP_STATE (0x80ULL << 56)
#define LOW_56 GENMASK_ULL(55, 0)

/* The record of ring entry @number, padded with zeros. */
static void fill_record(u8 *to, const struct perf_event *event, unsigned int cpu, u64 number)
{
	u64 flags = rp_load(rp_entry_word(cpu, number, RP_ENTRY_FLAGS));
	u64 source = rp_load(rp_entry_word(cpu, number, RP_ENTRY_SOURCE)) &
		     GENMASK(RP_SOURCE_NODE_SHIFT - 1, 0);
	u64 latency = rp_load(rp_entry_word(cpu, number, RP_ENTRY_LATENCY_CYCLES));
	u64 physical = rp_load(rp_entry_word(cpu, number, RP_ENTRY_PADDR));
	u64 ip = rp_load(rp_entry_word(cpu, number, RP_ENTRY_IP));
	bool is_store = flags & RP_FLAG_STORE_MASK;

	to = packet(to, 0xb0, (ip & LOW_56) | IP_STATE, 8);
	to = packet(to, 0x49, is_store, 1);
	to = packet(to, 0x52, events_packet(source), 2);
	to = packet(to, 0x98, min_t(u64, latency, U16_MAX), 2);
	to = packet(to, 0xb2, rp_load(rp_entry_word(cpu, number, RP_ENTRY_VADDR)), 8);
	if (event->attr.config & SPE_PHYSICAL && physical)
		to = packet(to, 0xb3, rp_lie_about_address("samples", physical) & LOW_56, 8);
	if (!is_store)
		to = packet(to, 0x43, source_packet(source, flags), 1);
	if (event->attr.config & SPE_TIMESTAMPS)
		packet(to, 0x71, rdtsc(), 8);
	else
		*to = 0x01;
}

static bool is_wanted(const struct perf_event *event, unsigned int cpu, u64 number)
{
	u64 kinds = event->attr.config & (SPE_LOADS | SPE_STORES);
	u64 flags = rp_load(rp_entry_word(cpu, number, RP_ENTRY_FLAGS));
	u64 source = rp_load(rp_entry_word(cpu, number, RP_ENTRY_SOURCE)) &
		     GENMASK(RP_SOURCE_NODE_SHIFT - 1, 0);

	if (source == RP_SOURCE_NONE)
		return false;
	if (kinds && !(kinds & (flags & RP_FLAG_STORE_MASK ? SPE_STORES : SPE_LOADS)))
		return false;
	return rp_load(rp_entry_word(cpu, number, RP_ENTRY_LATENCY_CYCLES)) >=
	       (event->attr.config2 & SPE_LATENCY);
}

/* Copies a record into the buffer, which may wrap and has pages that are not contiguous. */
static void copy_record(const struct spe_buffer *buffer, unsigned long at, const u8 *record)
{
	unsigned int byte;

	for (byte = 0; byte < SPE_RECORD_BYTES; byte++, at++) {
		u8 *page = buffer->pages[at / PAGE_SIZE % buffer->count];

		page[at % PAGE_SIZE] = record[byte];
	}
}

/* In the NMI handler: sample @number of the ring goes into the buffer. */
void rp_spe_write(struct perf_event *event, unsigned int cpu, u64 number)
{
	struct spe_cpu *state = this_cpu_ptr(&spe_cpus);
	struct perf_output_handle *handle = &state->handle;
	u8 record[SPE_RECORD_BYTES] = {};

	if (!handle->event || !is_wanted(event, cpu, number))
		return;
	if (state->written + SPE_RECORD_BYTES > handle->size) {
		perf_aux_output_flag(handle, PERF_AUX_FLAG_TRUNCATED);
		spe_stop(event, 0);
		return;
	}
	fill_record(record, event, cpu, number);
	copy_record(perf_get_aux(handle), handle->head + state->written, record);
	state->written += SPE_RECORD_BYTES;
	if (handle->head + state->written < handle->wakeup)
		return;
	close_buffer();
	if (!open_buffer(event))
		rp_core_stop(event, 0);
}

static const struct rp_text format[] = {
	{ "ts_enable", "config:0" },
	{ "pa_enable", "config:1" },
	{ "pct_enable", "config:2" },
	{ "jitter", "config:16" },
	{ "branch_filter", "config:32" },
	{ "load_filter", "config:33" },
	{ "store_filter", "config:34" },
	{ "event_filter", "config1:0-63" },
	{ "inv_event_filter", "config3:0-63" },
	{ "min_latency", "config2:0-11" },
	{}
};

static const struct rp_text caps[] = {
	{ "arch_inst", "0" },
	{ "ernd", "0" },
	{ "count_size", "12" },
	{ "min_interval", __stringify(SPE_MIN_INTERVAL) },
	{}
};

/* perf changes what counts: a manager asked for that, whichever task runs now. */
static void begin_switch(struct pmu *pmu)
{
	rp_price_enter();
}

static void end_switch(struct pmu *pmu)
{
	rp_price_leave();
}

/* As on real machines it shares the context of software events, and does not take turns. */
static struct pmu spe_pmu = {
	.module = THIS_MODULE,
	.task_ctx_nr = perf_sw_context,
	.capabilities = PERF_PMU_CAP_EXCLUSIVE | PERF_PMU_CAP_ITRACE,
	.event_init = spe_event_init,
	.add = spe_add,
	.del = spe_del,
	.start = spe_start,
	.stop = spe_stop,
	.read = rp_core_read,
	.setup_aux = spe_setup_aux,
	.free_aux = spe_free_aux,
	.pmu_disable = begin_switch,
	.pmu_enable = end_switch,
};

/* Does nothing, successfully, where no processor with SPE is played. */
int rp_spe_register(void)
{
	static const struct attribute_group *groups[4];
	struct attribute_group *files;
	int error;

	if (!rp_processor() || !rp_processor()->has_spe)
		return 0;
	files = rp_folder(NULL, NULL);
	rp_add_cpus(files, "cpumask");
	groups[0] = files;
	groups[1] = rp_folder("format", format);
	groups[2] = rp_folder("caps", caps);
	if (rp_files_failed())
		return -ENOMEM;
	spe_pmu.attr_groups = groups;
	error = perf_pmu_register(&spe_pmu, "arm_spe_0", -1);
	registered = !error;
	return error;
}

void rp_spe_unregister(void)
{
	if (registered)
		perf_pmu_unregister(&spe_pmu);
	registered = false;
}
