// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The core PMUs: the cores' unit of the processor that the machine plays, and
 * `model`, which counts the same and speaks the model's own numbers. They share the
 * counters. Like a real one it has few counters. The programmable ones (slots) are
 * as many as the machine file says. Three fixed ones count instructions, cycles and
 * reference cycles. An event that finds none free is refused with -EAGAIN, and perf
 * rotates: that is all there is to multiplexing.
 *
 * Plain counting reads the model's free-running counters and only occupies its
 * slot.  Sampling, and counting above a latency threshold, programs the slot; the
 * count is then the slot's own, so that count and samples agree.
 *
 * All functions run on the CPU they concern, with interrupts off, and may be
 * interrupted by the NMI handler of samples.c.
 */
#include <asm/perf_event.h>
#include <linux/module.h>

#include "lies.h"
#include "processor.h"
#include "rondpoint_pmu.h"

DEFINE_PER_CPU(struct rp_cpu, rp_cpus);

static struct pmu core_pmu, model_pmu;

static bool needs_slot(struct perf_event *event)
{
	return is_sampling_event(event) || rp_event_threshold(&event->hw);
}

/* The fixed counter that @event can use, or -1. */
static int fixed_counter(struct perf_event *event)
{
	if (needs_slot(event))
		return -1;
	switch (rp_event_code(&event->hw)) {
	case RP_EVENT_INSTRUCTIONS:
		return RP_FIXED_INSTRUCTIONS;
	case RP_EVENT_CYCLES:
		return RP_FIXED_CYCLES;
	case RP_EVENT_REF_CYCLES:
		return RP_FIXED_REF_CYCLES;
	default:
		return -1;
	}
}

/* Takes a counter for @event out of those not @used (bit set), or -EAGAIN. */
static int choose_counter(struct perf_event *event, unsigned long *used)
{
	int fixed = fixed_counter(event);
	unsigned int slot;

	if (fixed >= 0 && !(*used & BIT(fixed))) {
		*used |= BIT(fixed);
		return fixed;
	}
	for (slot = 0; slot < rp_load(RP_HEADER_SLOTS); slot++) {
		if (!(*used & BIT(slot))) {
			*used |= BIT(slot);
			return slot;
		}
	}
	return -EAGAIN;
}

/* A group that can never be on the PMU together is refused at once. */
static bool group_fits(struct perf_event *event)
{
	struct perf_event *leader = event->group_leader;
	struct perf_event *sibling;
	unsigned long used = 0;

	if (leader != event) {
		if (leader->pmu == event->pmu && choose_counter(leader, &used) < 0)
			return false;
		for_each_sibling_event(sibling, leader) {
			if (sibling->pmu == event->pmu && choose_counter(sibling, &used) < 0)
				return false;
		}
	}
	return choose_counter(event, &used) >= 0;
}

/* Level bits for the exclude_ flags, or an error where the model cannot tell. */
static int control_bits(const struct perf_event_attr *attr)
{
	int control = RP_CONTROL_ENABLED_MASK;

	if (attr->exclude_host || attr->exclude_idle)
		return -EOPNOTSUPP;
	if ((attr->exclude_user || attr->exclude_kernel) &&
	    !(rp_load(RP_HEADER_FEATURES_MASK) & RP_FEATURE_USER_MASK))
		return -EOPNOTSUPP;
	if (!attr->exclude_user)
		control |= RP_CONTROL_USER_MASK;
	if (!attr->exclude_kernel)
		control |= RP_CONTROL_KERNEL_MASK;
	return control;
}

static int core_event_init(struct perf_event *event)
{
	struct perf_event_attr *attr = &event->attr;
	bool exact = rp_load(RP_HEADER_FEATURES_MASK) & RP_FEATURE_IP_MASK;
	bool own_type = attr->type == event->pmu->type;
	bool is_model = event->pmu == &model_pmu;
	enum rp_language language = RP_OF_KERNEL;
	u64 threshold, counts;
	int code, control;

	/* The kernel hands generic events to the unit of PERF_TYPE_RAW. */
	if (!own_type && is_model)
		return -ENOENT;
	if (own_type)
		language = is_model || !rp_processor() ? RP_OF_MODEL : RP_OF_PROCESSOR;
	code = rp_event_code_of(attr, language, &counts, &threshold);
	if (code < 0)
		return code;
	if (has_branch_stack(event) || attr->precise_ip > (exact ? 3 : 0))
		return -EOPNOTSUPP;
	control = control_bits(attr);
	if (control < 0)
		return control;

	rp_event_code(&event->hw) = code;
	rp_event_counts(&event->hw) = counts;
	rp_event_control(&event->hw) = control;
	rp_event_threshold(&event->hw) = threshold;
	rp_event_per_access(&event->hw) = 1;
	event->hw.idx = -1;

	/* -ENOENT lets `perf record` fall back from cycles to its software clock. */
	if (needs_slot(event) && (code == RP_EVENT_SUM ||
				  !(rp_load(RP_HEADER_SAMPLED_EVENTS_MASK) & BIT_ULL(code))))
		return own_type ? -EOPNOTSUPP : -ENOENT;
	return group_fits(event) ? 0 : -EINVAL;
}

/* The counters that @counts names, or those that a lying unit passes off as them. */
static u64 told(u64 counts, enum rp_lie lie)
{
	if (lie != RP_SWAP && lie != RP_ALL_LOCAL)
		return counts;
	switch (counts) {
	case RP_COUNTS(LOCAL_DRAM):
		return RP_COUNTS(REMOTE_DRAM) | (lie == RP_SWAP ? 0 : RP_COUNTS(LOCAL_DRAM));
	case RP_COUNTS_OWN_NODE:
		return RP_COUNTS_OTHER_NODES | (lie == RP_SWAP ? 0 : RP_COUNTS_OWN_NODE);
	case RP_COUNTS(REMOTE_DRAM):
		return lie == RP_SWAP ? RP_COUNTS(LOCAL_DRAM) : 0;
	case RP_COUNTS_OTHER_NODES:
		return lie == RP_SWAP ? RP_COUNTS_OWN_NODE : 0;
	default:
		return counts;
	}
}

/* What a CPU's counters that begin at @first hold of @counts, added up. */
static u64 added_up(unsigned int cpu, unsigned int first, u64 counts)
{
	u64 own = rp_load(rp_cpu_word(cpu, first + RP_EVENT_DRAM_NODE0 +
				      rp_load(RP_HEADER_CPU_NODE + cpu)));
	unsigned int event;
	u64 sum = 0;

	for (event = 0; event < RP_EVENTS; event++)
		if (counts & BIT_ULL(event))
			sum += rp_load(rp_cpu_word(cpu, first + event));
	if (counts & RP_COUNTS_OWN_NODE)
		sum += own;
	if (counts & RP_COUNTS_OTHER_NODES)
		sum += rp_load(rp_cpu_word(cpu, first + RP_EVENT_DRAM_READS)) - own;
	return sum;
}

/* The event's counter now: the slot's count or the model's free-running one. */
static u64 current_count(struct perf_event *event)
{
	unsigned int cpu = smp_processor_id();
	u64 control = rp_event_control(&event->hw);
	u64 counts = rp_event_counts(&event->hw);
	u64 all, user;

	if (needs_slot(event))
		return rp_load(rp_slot_word(cpu, event->hw.idx, RP_SLOT_COUNT));

	counts = told(counts, rp_lie_of(event->pmu->name));
	all = added_up(cpu, RP_CPU_COUNTERS, counts);
	if (!(control & RP_CONTROL_USER_MASK && control & RP_CONTROL_KERNEL_MASK)) {
		user = added_up(cpu, RP_CPU_USER_COUNTERS, counts);
		all = control & RP_CONTROL_USER_MASK ? user : all - user;
	}
	return rp_lie_about(event->pmu->name, all);
}

/* Adds what was counted since the last update; an NMI may come in between. */
static void update_count(struct perf_event *event)
{
	u64 before = local64_read(&event->hw.prev_count);
	u64 now;

	do {
		now = current_count(event);
	} while (!local64_try_cmpxchg(&event->hw.prev_count, &before, now));
	local64_add(now - before, &event->count);
}

void rp_core_read(struct perf_event *event)
{
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	rp_price_enter();
	rp_marker_read();
	update_count(event);
	rp_price_leave();
}

static void start_slot(struct perf_event *event)
{
	struct rp_cpu *state = this_cpu_ptr(&rp_cpus);
	struct hw_perf_event *hw = &event->hw;
	unsigned int cpu = smp_processor_id();
	unsigned int slot = hw->idx;
	s64 left = local64_read(&hw->period_left);

	/* A threshold count without sampling must never reach its period. */
	u64 period = is_sampling_event(event) ? rp_slot_period(hw) : BIT_ULL(62);

	if (left <= 0 || !is_sampling_event(event)) {
		left = period;
		hw->last_period = period * rp_event_per_access(hw);
		local64_set(&hw->period_left, left);
	}
	state->period[slot] = period;
	state->generation[slot]++;

	rp_store(rp_slot_word(cpu, slot, RP_SLOT_EVENT), rp_event_code(hw));
	rp_store(rp_slot_word(cpu, slot, RP_SLOT_PERIOD), period);
	rp_store(rp_slot_word(cpu, slot, RP_SLOT_LEFT), left);
	rp_store(rp_slot_word(cpu, slot, RP_SLOT_THRESHOLD), rp_event_threshold(hw));
	rp_store(rp_slot_word(cpu, slot, RP_SLOT_GENERATION), state->generation[slot]);
	rp_store(rp_slot_word(cpu, slot, RP_SLOT_COUNT), local64_read(&hw->prev_count));
	rp_store(rp_slot_word(cpu, slot, RP_SLOT_CONTROL), rp_event_control(hw));
	rp_marker_slots();
}

void rp_core_start(struct perf_event *event, int flags)
{
	if (!(event->hw.state & PERF_HES_STOPPED))
		return;
	event->hw.state = 0;
	if (needs_slot(event)) {
		start_slot(event);
	} else {
		rp_marker_read();
		local64_set(&event->hw.prev_count, current_count(event));
	}
	perf_event_update_userpage(event);
}

void rp_core_stop(struct perf_event *event, int flags)
{
	unsigned int cpu = smp_processor_id();
	struct hw_perf_event *hw = &event->hw;

	if (hw->state & PERF_HES_STOPPED)
		return;
	if (needs_slot(event)) {
		rp_store(rp_slot_word(cpu, hw->idx, RP_SLOT_CONTROL), 0);
		rp_marker_slots();
		local64_set(&hw->period_left, rp_load(rp_slot_word(cpu, hw->idx, RP_SLOT_LEFT)));
	} else {
		rp_marker_read();
	}
	update_count(event);
	hw->state |= PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

/* Gives @event the free @counter of this CPU. */
void rp_core_attach(struct perf_event *event, unsigned int counter, int flags)
{
	struct rp_cpu *state = this_cpu_ptr(&rp_cpus);

	event->hw.idx = counter;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	WRITE_ONCE(state->events[counter], event);
	if (flags & PERF_EF_START)
		rp_core_start(event, PERF_EF_RELOAD);
}

static int core_add(struct perf_event *event, int flags)
{
	struct rp_cpu *state = this_cpu_ptr(&rp_cpus);
	unsigned long used = 0;
	unsigned int counter;
	int chosen;

	for (counter = 0; counter < RP_COUNTERS; counter++)
		if (state->events[counter])
			used |= BIT(counter);
	chosen = choose_counter(event, &used);
	if (chosen < 0)
		return chosen;

	rp_core_attach(event, chosen, flags);
	return 0;
}

void rp_core_del(struct perf_event *event, int flags)
{
	struct rp_cpu *state = this_cpu_ptr(&rp_cpus);

	rp_core_stop(event, PERF_EF_UPDATE);
	WRITE_ONCE(state->events[event->hw.idx], NULL);
	event->hw.idx = -1;
	perf_event_update_userpage(event);
}

/* perf changes what counts: a manager asked for that, whichever task runs now. */
static void begin_switch(struct pmu *pmu)
{
	rp_price_enter();
}

static void end_switch(struct pmu *pmu)
{
	rp_price_leave();
}

#define CORE_PMU(groups)                           \
	{                                          \
		.module = THIS_MODULE,             \
		.task_ctx_nr = perf_hw_context,    \
		.attr_groups = groups,             \
		.event_init = core_event_init,     \
		.add = core_add,                   \
		.del = rp_core_del,                \
		.start = rp_core_start,            \
		.stop = rp_core_stop,              \
		.read = rp_core_read,              \
		.pmu_disable = begin_switch,       \
		.pmu_enable = end_switch,          \
	}

static struct pmu core_pmu = CORE_PMU(NULL);
static struct pmu model_pmu = CORE_PMU(rp_model_groups);

/*
 * The cores' unit takes the place of the processor's own, with PERF_TYPE_RAW, so
 * that generic events and plain tools work. Both are refused where such a unit
 * exists.
 */
int rp_core_register(void)
{
	const struct rp_processor *processor = rp_processor();
	struct x86_pmu_capability existing;
	int error;

	perf_get_x86_pmu_capability(&existing);
	if (existing.num_counters_gp) {
		pr_err(RP_NAME ": this CPU has a PMU of its own\n");
		return -EBUSY;
	}
	core_pmu.attr_groups = rp_core_groups();
	if (rp_files_failed())
		return -ENOMEM;
	error = perf_pmu_register(&core_pmu, processor ? processor->core : "cpu", PERF_TYPE_RAW);
	if (error)
		return error;
	error = perf_pmu_register(&model_pmu, "model", -1);
	if (error)
		perf_pmu_unregister(&core_pmu);
	return error;
}

void rp_core_unregister(void)
{
	perf_pmu_unregister(&model_pmu);
	perf_pmu_unregister(&core_pmu);
}
