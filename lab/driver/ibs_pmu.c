// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The PMU `ibs_op`, registered where the machine file says AMD. It has the
 * interface of AMD's instruction-based sampling, which perf's `mem` and `c2c`
 * commands open on an AMD processor. It has hardware of its own, here the slot
 * behind the programmable counters, and one event per CPU.
 *
 * Like real IBS it samples loads and stores of any source, without a filter by
 * privilege, with periods in steps of 16. `l3missonly` passes over accesses that
 * the caches answered. Data sources are as on Zen 4. Difference: real IBS tags
 * every kind of operation and delivers those that touch no memory too. This unit
 * takes one access for three operations, whichever way `cnt_ctl` is set, and has no
 * raw registers.
 */
#include <linux/module.h>
#include <linux/sysfs.h>

#include "rondpoint_pmu.h"

#define IBS_L3_MISS_ONLY BIT_ULL(16)
#define IBS_COUNT_OPS BIT_ULL(19)
#define IBS_PERIOD_STEP 16
#define IBS_OPS_PER_ACCESS 3 /* of the many that touch no memory */

static struct pmu ibs_pmu;
static bool registered;

/* The op-sampling slot is the one behind the programmable counters. */
static unsigned int ibs_slot(void)
{
	return rp_load(RP_HEADER_SLOTS);
}

/* There is one op-sampling counter, so a group holds one event of it. */
static bool alone_in_group(struct perf_event *event)
{
	struct perf_event *leader = event->group_leader;
	struct perf_event *sibling;

	if (leader == event)
		return true;
	if (leader->pmu == event->pmu)
		return false;
	for_each_sibling_event(sibling, leader)
		if (sibling->pmu == event->pmu)
			return false;
	return true;
}

static int ibs_event_init(struct perf_event *event)
{
	struct perf_event_attr *attr = &event->attr;
	struct hw_perf_event *hw = &event->hw;

	if (attr->type != ibs_pmu.type)
		return -ENOENT;
	if (attr->config & ~(IBS_L3_MISS_ONLY | IBS_COUNT_OPS) || attr->config1 ||
	    attr->config2 || attr->config3)
		return -EINVAL;
	if (has_branch_stack(event) || attr->precise_ip > 2)
		return -EOPNOTSUPP;
	if (!is_sampling_event(event) || !alone_in_group(event))
		return -EINVAL;
	if (!attr->freq && hw->sample_period % IBS_PERIOD_STEP)
		return -EINVAL;
	if (!(rp_load(RP_HEADER_SAMPLED_EVENTS_MASK) & BIT_ULL(RP_EVENT_MEM_ANY)))
		return -EOPNOTSUPP;

	rp_event_code(hw) = RP_EVENT_MEM_ANY;
	rp_event_control(hw) = RP_CONTROL_ENABLED_MASK | RP_CONTROL_USER_MASK |
			       RP_CONTROL_KERNEL_MASK;
	if (attr->config & IBS_L3_MISS_ONLY)
		rp_event_control(hw) |= RP_CONTROL_MISSES_MASK;
	rp_event_threshold(hw) = 0;
	rp_event_per_access(hw) = IBS_OPS_PER_ACCESS;
	hw->sample_period = max_t(u64, hw->sample_period, IBS_PERIOD_STEP);
	hw->last_period = hw->sample_period;
	local64_set(&hw->period_left, rp_slot_period(hw));
	hw->idx = -1;
	return 0;
}

static int ibs_add(struct perf_event *event, int flags)
{
	struct rp_cpu *state = this_cpu_ptr(&rp_cpus);
	unsigned int slot = ibs_slot();

	if (state->events[slot])
		return -ENOSPC;
	rp_core_attach(event, slot, flags);
	return 0;
}

PMU_FORMAT_ATTR(cnt_ctl, "config:19");
PMU_FORMAT_ATTR(l3missonly, "config:16");

static struct attribute *format_attributes[] = {
	&format_attr_cnt_ctl.attr,
	&format_attr_l3missonly.attr,
	NULL,
};

static const struct attribute_group format_group = {
	.name = "format",
	.attrs = format_attributes,
};

static ssize_t zen4_ibs_extensions_show(struct device *device, struct device_attribute *attribute,
					char *page)
{
	return sysfs_emit(page, "1\n");
}
static DEVICE_ATTR_RO(zen4_ibs_extensions);

static struct attribute *caps_attributes[] = {
	&dev_attr_zen4_ibs_extensions.attr,
	NULL,
};

static const struct attribute_group caps_group = {
	.name = "caps",
	.attrs = caps_attributes,
};

static const struct attribute_group *groups[] = {
	&format_group,
	&caps_group,
	NULL,
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

static struct pmu ibs_pmu = {
	.module = THIS_MODULE,
	.task_ctx_nr = perf_hw_context,
	.attr_groups = groups,
	.capabilities = PERF_PMU_CAP_NO_EXCLUDE,
	.event_init = ibs_event_init,
	.add = ibs_add,
	.del = rp_core_del,
	.start = rp_core_start,
	.stop = rp_core_stop,
	.read = rp_core_read,
	.pmu_disable = begin_switch,
	.pmu_enable = end_switch,
};

/* Does nothing, successfully, on machines of other makers. */
int rp_ibs_register(void)
{
	int error;

	if (rp_load(RP_HEADER_VENDOR) != RP_VENDOR_AMD)
		return 0;
	error = perf_pmu_register(&ibs_pmu, "ibs_op", -1);
	registered = !error;
	return error;
}

void rp_ibs_unregister(void)
{
	if (registered)
		perf_pmu_unregister(&ibs_pmu);
	registered = false;
}
