// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The NMI handler takes every sample out of this CPU's ring and hands it to perf
 * with the interrupted registers. So instruction pointer, thread and CPU are those
 * that the sample hit.
 *
 * Slots are frozen while the handler runs, as real counters are.  A sample whose
 * slot has been stopped or given to another event since (its generation tells) is
 * counted as late and dropped.
 */
#include <asm/nmi.h>
#include <asm/segment.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/nmi.h>
#include <linux/sched/clock.h>

#include "lies.h"
#include "rondpoint_pmu.h"

typedef int (*overflow_function)(struct perf_event *event, struct perf_sample_data *data,
				 struct pt_regs *regs);

typedef void (*took_function)(u64 nanoseconds);

/*
 * perf_event_overflow() and perf_sample_event_took(), which the kernel does not
 * export.  The second lowers the permitted sample rate when handlers take more
 * than kernel.perf_cpu_time_max_percent of the CPU; every x86 handler calls it.
 */
static overflow_function overflow;
static took_function sample_event_took;

unsigned int rp_entry_word(unsigned int cpu, u64 number, unsigned int word)
{
	unsigned int entry = number % RP_RING_ENTRIES;

	return rp_cpu_word(cpu, RP_CPU_ENTRIES + entry * RP_ENTRY_WORDS + word);
}

/* The running event that sample @number belongs to, or NULL. */
static struct perf_event *owner(struct rp_cpu *state, unsigned int cpu, u64 number)
{
	u64 word = rp_load(rp_entry_word(cpu, number, RP_ENTRY_SLOT));
	unsigned int slot = word & GENMASK(RP_ENTRY_GENERATION_SHIFT - 1, 0);
	struct perf_event *event;

	if (slot >= RP_MAX_SLOTS || word >> RP_ENTRY_GENERATION_SHIFT != state->generation[slot])
		return NULL;
	event = READ_ONCE(state->events[slot]);
	if (!event || event->hw.state & PERF_HES_STOPPED)
		return NULL;
	return event;
}

/* Fills what the model knows and the event asked for. */
static void fill(struct perf_sample_data *data, struct perf_event *event, unsigned int cpu,
		 u64 number)
{
	u64 wanted = event->attr.sample_type;
	u64 flags = rp_load(rp_entry_word(cpu, number, RP_ENTRY_FLAGS));
	u64 source = rp_load(rp_entry_word(cpu, number, RP_ENTRY_SOURCE)) &
		     GENMASK(RP_SOURCE_NODE_SHIFT - 1, 0);
	u64 latency = rp_load(rp_entry_word(cpu, number, RP_ENTRY_LATENCY_CYCLES));
	u64 paddr = rp_load(rp_entry_word(cpu, number, RP_ENTRY_PADDR));

	/* The page size is looked up by address, whether or not the address is wanted. */
	if (wanted & (PERF_SAMPLE_ADDR | PERF_SAMPLE_DATA_PAGE_SIZE | PERF_SAMPLE_PHYS_ADDR)) {
		data->addr = rp_load(rp_entry_word(cpu, number, RP_ENTRY_VADDR));
		data->sample_flags |= PERF_SAMPLE_ADDR;
	}
	if (wanted & PERF_SAMPLE_PHYS_ADDR && paddr) {
		data->phys_addr = rp_lie_about_address("samples", paddr);
		data->sample_flags |= PERF_SAMPLE_PHYS_ADDR;
	}
	if (wanted & PERF_SAMPLE_DATA_SRC) {
		data->data_src.val = rp_data_source(source, flags);
		data->sample_flags |= PERF_SAMPLE_DATA_SRC;
	}
	if (wanted & PERF_SAMPLE_WEIGHT_TYPE) {
		data->weight.full = 0;
		if (wanted & PERF_SAMPLE_WEIGHT_STRUCT)
			data->weight.var1_dw = min_t(u64, latency, U32_MAX);
		else
			data->weight.full = latency;
		data->sample_flags |= PERF_SAMPLE_WEIGHT_TYPE;
	}
}

/* The registers of the sampled instruction where the event wants precision. */
static struct pt_regs *exact(struct pt_regs *copy, struct pt_regs *regs, struct perf_event *event,
			     unsigned int cpu, u64 number)
{
	u64 ip = rp_load(rp_entry_word(cpu, number, RP_ENTRY_IP));
	bool in_kernel = rp_load(rp_entry_word(cpu, number, RP_ENTRY_FLAGS)) & RP_FLAG_KERNEL_MASK;

	if (!event->attr.precise_ip || !ip)
		return regs;
	*copy = *regs;
	copy->ip = ip;
	copy->cs = in_kernel ? __KERNEL_CS : __USER_CS;
	copy->flags |= PERF_EFLAGS_EXACT;
	return copy;
}

static void deliver(struct rp_cpu *state, struct perf_event *event, struct pt_regs *regs,
		    unsigned int cpu, u64 number)
{
	struct hw_perf_event *hw = &event->hw;
	unsigned int slot = hw->idx;
	u64 generation = state->generation[slot];
	struct perf_sample_data data;
	struct pt_regs copy;

	local64_set(&hw->period_left, rp_load(rp_slot_word(cpu, slot, RP_SLOT_LEFT)));
	if (rp_spe_owns(event)) {
		rp_spe_write(event, cpu, number);
		return;
	}
	perf_sample_data_init(&data, 0, hw->last_period);
	fill(&data, event, cpu, number);
	state->samples++;
	if (overflow(event, &data, exact(&copy, regs, event, cpu, number))) {
		rp_core_stop(event, 0); /* throttled; perf starts it again at a tick */
		return;
	}
	if (state->generation[slot] != generation)
		return; /* perf restarted it with a new period */

	/* The slot has reloaded already; a changed period takes effect after that. */
	hw->last_period = state->period[slot] * rp_event_per_access(hw);
	if (rp_slot_period(hw) != state->period[slot]) {
		state->period[slot] = rp_slot_period(hw);
		rp_store(rp_slot_word(cpu, slot, RP_SLOT_PERIOD), state->period[slot]);
	}
}

static void set_frozen(unsigned int cpu, u64 frozen)
{
	rp_store(rp_cpu_word(cpu, RP_CPU_FROZEN), frozen);
	rp_marker_slots();
}

static int handle_nmi(unsigned int type, struct pt_regs *regs)
{
	struct rp_cpu *state = this_cpu_ptr(&rp_cpus);
	unsigned int cpu = smp_processor_id();
	u64 tail = rp_load(rp_cpu_word(cpu, RP_RING_TAIL));
	u64 begin = sched_clock();
	struct perf_event *event;

	/*
	 * Several samples may have been taken in one go while their NMI was still on its
	 * way. One more NMI than samples is then ours, and empty.
	 */
	if (tail == rp_load(rp_cpu_word(cpu, RP_RING_HEAD))) {
		if (!state->nmi_may_follow)
			return NMI_DONE;
		state->nmi_may_follow = false;
		return NMI_HANDLED;
	}

	rp_price_enter();
	set_frozen(cpu, 1);
	rp_marker_read(); /* brings LEFT up to date */
	while (tail != rp_load(rp_cpu_word(cpu, RP_RING_HEAD))) {
		smp_rmb(); /* HEAD before the entry; the plugin writes in this order */
		event = owner(state, cpu, tail);
		if (event)
			deliver(state, event, regs, cpu, tail);
		else
			state->late++;
		rp_store(rp_cpu_word(cpu, RP_RING_TAIL), ++tail);
	}
	state->nmi_may_follow = true;
	sample_event_took(sched_clock() - begin);
	rp_price_leave();
	set_frozen(cpu, 0); /* last, so that as little as possible of us is sampled */
	return NMI_HANDLED;
}

/*
 * A kprobe tells where a function is; it is removed again at once.  With indirect
 * branch tracking the probe lies behind the landing mark, which a call must hit.
 */
static void *find_function(const char *name)
{
	struct kprobe probe = { .symbol_name = name };
	unsigned long address;

	if (register_kprobe(&probe)) {
		pr_err(RP_NAME ": the kernel has no %s to probe\n", name);
		return NULL;
	}
	address = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
#ifdef CONFIG_X86_KERNEL_IBT
	if (is_endbr(*(u32 *)(address - ENDBR_INSN_SIZE)))
		address -= ENDBR_INSN_SIZE;
#endif
	return (void *)address;
}

int rp_samples_start(void)
{
	unsigned int cpu, slot;

	overflow = find_function("perf_event_overflow");
	sample_event_took = find_function("perf_sample_event_took");
	if (!overflow || !sample_event_took)
		return -ENOENT;
	for_each_possible_cpu(cpu) {
		/* Generations go on from an earlier load of this module. */
		for (slot = 0; slot < RP_MAX_SLOTS; slot++)
			per_cpu(rp_cpus, cpu).generation[slot] =
				rp_load(rp_slot_word(cpu, slot, RP_SLOT_GENERATION));
		rp_store(rp_cpu_word(cpu, RP_CPU_FROZEN), 0);
		rp_store(rp_cpu_word(cpu, RP_RING_TAIL), rp_load(rp_cpu_word(cpu, RP_RING_HEAD)));
	}
	return register_nmi_handler(NMI_LOCAL, handle_nmi, 0, RP_NAME);
}

void rp_samples_stop(void)
{
	unregister_nmi_handler(NMI_LOCAL, RP_NAME);
}
