// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Plain counting, which all units outside the cores share. An event is opened with
 * pid = -1 on a CPU of the unit's `cpumask`. Its count is what the counter behind
 * it grew by. There is nothing to program and nothing to interrupt.
 */
#include <linux/module.h>
#include <linux/sysfs.h>
#include <linux/topology.h>

#include "plain.h"
#include "rondpoint_pmu.h"

int rp_plain_check(struct perf_event *event)
{
	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	if (is_sampling_event(event) || event->attach_state & PERF_ATTACH_TASK)
		return -EINVAL;
	if (event->cpu < 0 || !cpumask_test_cpu(event->cpu, &rp_plain_of(event)->cpus))
		return -EINVAL;
	if (event->attr.config2 || event->attr.config3)
		return -EINVAL;
	return 0;
}

static u64 fresh_value(struct perf_event *event)
{
	rp_marker_nodes();
	return rp_plain_of(event)->value(event);
}

static void plain_read(struct perf_event *event)
{
	u64 now = fresh_value(event);
	u64 before = local64_xchg(&event->hw.prev_count, now);

	local64_add(now - before, &event->count);
}

static void plain_start(struct perf_event *event, int flags)
{
	local64_set(&event->hw.prev_count, fresh_value(event));
	event->hw.state = 0;
	perf_event_update_userpage(event);
}

static void plain_stop(struct perf_event *event, int flags)
{
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	plain_read(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int plain_add(struct perf_event *event, int flags)
{
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		plain_start(event, flags);
	return 0;
}

static void plain_del(struct perf_event *event, int flags)
{
	plain_stop(event, PERF_EF_UPDATE);
}

static ssize_t cpumask_show(struct device *device, struct device_attribute *attribute, char *page)
{
	struct pmu *pmu = dev_get_drvdata(device);

	return cpumap_print_to_pagebuf(true, page, &container_of(pmu, struct rp_plain, pmu)->cpus);
}
static DEVICE_ATTR_RO(cpumask);

static struct attribute *plain_attributes[] = {
	&dev_attr_cpumask.attr,
	NULL,
};

const struct attribute_group rp_plain_group = {
	.attrs = plain_attributes,
};

void rp_plain_init(struct rp_plain *unit, int (*init)(struct perf_event *event),
		   u64 (*value)(struct perf_event *event))
{
	unit->value = value;
	unit->pmu = (struct pmu){
		.module = THIS_MODULE,
		.task_ctx_nr = perf_invalid_context,
		.capabilities = PERF_PMU_CAP_NO_EXCLUDE | PERF_PMU_CAP_NO_INTERRUPT,
		.event_init = init,
		.add = plain_add,
		.del = plain_del,
		.start = plain_start,
		.stop = plain_stop,
		.read = plain_read,
	};
}

void rp_plain_first_cpus(cpumask_t *cpus)
{
	unsigned int node;

	for_each_online_node(node) {
		unsigned int cpu = cpumask_first_and(cpumask_of_node(node), cpu_online_mask);

		if (cpu < nr_cpu_ids)
			cpumask_set_cpu(cpu, cpus);
	}
}
