// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The core PMU.  Like a real one it has few counters: the machine file's number
 * of programmable ones (slots) and three fixed ones for instructions, cycles and
 * reference cycles.  An event that finds none free is refused with -EAGAIN, and
 * perf rotates: that is all there is to multiplexing.
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

#include "rondpoint_pmu.h"

DEFINE_PER_CPU(struct rp_cpu, rp_cpus);

static struct pmu core_pmu;

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
	bool own_type = attr->type == core_pmu.type;
	u64 threshold;
	int code, control;

	/* Generic types reach every PMU; they mean this one only where it is "cpu". */
	if (!own_type && core_pmu.type != PERF_TYPE_RAW)
		return -ENOENT;
	code = rp_event_code_of(attr, own_type, &threshold);
	if (code < 0)
		return code;
	if (has_branch_stack(event) || attr->precise_ip > (exact ? 2 : 0))
		return -EOPNOTSUPP;
	control = control_bits(attr);
	if (control < 0)
		return control;

	rp_event_code(&event->hw) = code;
	rp_event_control(&event->hw) = control;
	rp_event_threshold(&event->hw) = threshold;
	rp_event_beyond_caches(&event->hw) = 0;
	event->hw.idx = -1;

	/* -ENOENT lets `perf record` fall back from cycles to its software clock. */
	if (needs_slot(event) && !(rp_load(RP_HEADER_SAMPLED_EVENTS_MASK) & BIT_ULL(code)))
		return own_type ? -EOPNOTSUPP : -ENOENT;
	return group_fits(event) ? 0 : -EINVAL;
}

/* The event's counter now: the slot's count or the model's free-running one. */
static u64 current_count(struct perf_event *event)
{
	unsigned int cpu = smp_processor_id();
	u64 control = rp_event_control(&event->hw);
	u64 code = rp_event_code(&event->hw);
	u64 all, user;

	if (needs_slot(event))
		return rp_load(rp_slot_word(cpu, event->hw.idx, RP_SLOT_COUNT));

	all = rp_load(rp_cpu_word(cpu, RP_CPU_COUNTERS + code));
	if (control & RP_CONTROL_USER_MASK && control & RP_CONTROL_KERNEL_MASK)
		return all;
	user = rp_load(rp_cpu_word(cpu, RP_CPU_USER_COUNTERS + code));
	if (control & RP_CONTROL_USER_MASK)
		return user;
	return control & RP_CONTROL_KERNEL_MASK ? all - user : 0;
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
	u64 period = is_sampling_event(event) ? hw->sample_period : BIT_ULL(62);

	if (left <= 0 || !is_sampling_event(event)) {
		left = period;
		hw->last_period = period;
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

/* perf changes what counts: a manager asked for that, whoever it happens to. */
static void begin_switch(struct pmu *pmu)
{
	rp_price_enter();
}

static void end_switch(struct pmu *pmu)
{
	rp_price_leave();
}

static struct pmu core_pmu = {
	.module = THIS_MODULE,
	.task_ctx_nr = perf_hw_context,
	.attr_groups = rp_core_groups,
	.event_init = core_event_init,
	.add = core_add,
	.del = rp_core_del,
	.start = rp_core_start,
	.stop = rp_core_stop,
	.read = rp_core_read,
	.pmu_disable = begin_switch,
	.pmu_enable = end_switch,
};

/*
 * Registers under @name.  "cpu" takes the place of the processor's own PMU, with
 * PERF_TYPE_RAW, so that generic events and plain tools work; it is refused where
 * such a PMU exists.  Any other name gets a dynamic type.
 */
int rp_core_register(const char *name)
{
	struct x86_pmu_capability existing;

	if (strcmp(name, "cpu"))
		return perf_pmu_register(&core_pmu, name, -1);
	perf_get_x86_pmu_capability(&existing);
	if (existing.num_counters_gp) {
		pr_warn(RP_NAME ": this CPU has a PMU of its own, registering as \"rondpoint\"\n");
		return perf_pmu_register(&core_pmu, "rondpoint", -1);
	}
	return perf_pmu_register(&core_pmu, name, PERF_TYPE_RAW);
}

void rp_core_unregister(void)
{
	perf_pmu_unregister(&core_pmu);
}
