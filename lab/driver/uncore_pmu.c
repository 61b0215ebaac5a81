// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The units outside the cores of the processor that the machine plays. They only
 * count, for a whole node. An event is opened with pid = -1 on the CPUs of
 * `cpumask`, which holds the first CPU of each node that has CPUs.
 *
 * Units of one kind share their node's lines evenly, as hashing of addresses does
 * it; together they count each exactly once. How they count is in plain.c.
 */
#include <linux/cpumask.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/topology.h>

#include "lies.h"
#include "plain.h"
#include "processor.h"
#include "rondpoint_pmu.h"

#define LINE_BYTES 64
#define MAX_UNITS 64
#define MAX_NAME 32

struct unit {
	struct rp_plain plain;
	const struct rp_uncore *kind;
	unsigned int share, shares;
	bool is_registered; /* else hidden: lies.c */
	char name[MAX_NAME];
	const struct attribute_group *groups[4];
};

static struct unit *units;
static unsigned int unit_count;
static cpumask_t node_cpus;

/* hw_perf_event fields as this file uses them. */
#define event_row(hw) ((const struct rp_uncore_event *)(unsigned long)(hw)->config)
#define event_share(hw) ((hw)->config_base)
#define event_shares(hw) ((hw)->event_base)

static u64 node_value(unsigned int node, unsigned int word)
{
	return rp_load(RP_NODE_BASE + node * RP_NODE_WORDS + word);
}

/* Sum over all other nodes of one of the lists of words that begin at @first. */
static u64 of_others(unsigned int node, unsigned int first)
{
	unsigned int other;
	u64 sum = 0;

	for (other = 0; other < rp_load(RP_HEADER_NODES); other++)
		if (other != node)
			sum += node_value(node, first + other);
	return sum;
}

/* Lines that other nodes' CPUs read from @node's memory. */
static u64 read_by_others(unsigned int node)
{
	unsigned int other;
	u64 sum = 0;

	for (other = 0; other < rp_load(RP_HEADER_NODES); other++)
		if (other != node)
			sum += node_value(other, RP_NODE_DRAM_TO + node);
	return sum;
}

/* Bytes of the links that leave @node, or that reach it. */
static u64 link_bytes(unsigned int node, bool leave)
{
	unsigned int link;
	u64 sum = 0;

	for (link = 0; link < rp_load(RP_HEADER_LINKS); link++) {
		u64 ends = rp_load(RP_HEADER_LINK_ENDS + link);

		if ((leave ? ends & 0xff : ends >> 8 & 0xff) == node)
			sum += rp_load(RP_LINK_BASE + link * RP_LINK_WORDS + RP_LINK_BYTES);
	}
	return sum;
}

/* What the CPUs of @node together counted of @event, as of their latest exports. */
static u64 of_cpus(unsigned int node, unsigned int event)
{
	unsigned int cpu;
	u64 sum = 0;

	for_each_possible_cpu(cpu)
		if (rp_load(RP_HEADER_CPU_NODE + cpu) == node)
			sum += rp_load(rp_cpu_word(cpu, RP_CPU_COUNTERS + event));
	return sum;
}

static u64 quantity_of(enum rp_quantity quantity, unsigned int node)
{
	u64 read = node_value(node, RP_NODE_READ_BYTES) / LINE_BYTES;
	u64 written = node_value(node, RP_NODE_WRITE_BYTES) / LINE_BYTES;

	switch (quantity) {
	case RP_READ_LINES:
		return read;
	case RP_WRITTEN_LINES:
		return written;
	case RP_ACCESSED_LINES:
		return read + written;
	case RP_FETCHED_LOCAL:
	case RP_HOME_READS_LOCAL:
		return node_value(node, RP_NODE_DRAM_TO + node);
	case RP_FETCHED_REMOTE:
		return of_others(node, RP_NODE_DRAM_TO);
	case RP_HOME_READS_REMOTE:
		return read_by_others(node);
	case RP_HOME_WRITES_LOCAL:
		return node_value(node, RP_NODE_WRITTEN_BY + node) / LINE_BYTES;
	case RP_HOME_WRITES_REMOTE:
		return of_others(node, RP_NODE_WRITTEN_BY) / LINE_BYTES;
	case RP_SENT_BYTES:
		return link_bytes(node, true);
	case RP_RECEIVED_BYTES:
		return link_bytes(node, false);
	case RP_CACHE_LOOKUPS:
		return of_cpus(node, RP_EVENT_L2_MISS);
	case RP_CACHE_MISSES:
		return of_cpus(node, RP_EVENT_LLC_MISS);
	case RP_NOTHING:
		return 0;
	}
	return 0;
}

/* The node's quantity, or what @lie makes of it. */
static u64 told_quantity(enum rp_quantity quantity, unsigned int node, enum rp_lie lie)
{
	unsigned int nodes = rp_load(RP_HEADER_NODES), other;
	u64 sum = 0;

	switch (lie) {
	case RP_SWAP:
		return quantity_of(quantity, (node + 1) % nodes);
	case RP_ONE_NODE:
		return node ? 0 : quantity_of(quantity, node);
	case RP_ALL_NODES:
		for (other = 0; other < nodes; other++)
			sum += quantity_of(quantity, other);
		return sum;
	case RP_ALL_LOCAL:
		if (quantity == RP_FETCHED_LOCAL)
			return quantity_of(quantity, node) + quantity_of(RP_FETCHED_REMOTE, node);
		if (quantity == RP_FETCHED_REMOTE)
			return 0;
		fallthrough;
	default:
		return quantity_of(quantity, node);
	}
}

static struct unit *unit_of(const struct perf_event *event)
{
	return container_of(rp_plain_of(event), struct unit, plain);
}

static u64 uncore_value(struct perf_event *event)
{
	const struct rp_uncore_event *row = event_row(&event->hw);
	const char *unit = unit_of(event)->name;
	u64 shares = event_shares(&event->hw), share = event_share(&event->hw);
	u64 all = told_quantity(row->quantity, cpu_to_node(event->cpu), rp_lie_of(unit));

	all = all * row->times / row->through;
	return rp_lie_about(unit, (all + shares - 1 - share) / shares);
}

/* The row of @unit that @attr means, and which of its ports; NULL where there is none. */
static const struct rp_uncore_event *find_row(const struct unit *unit,
					      const struct perf_event_attr *attr,
					      unsigned int *port)
{
	const struct rp_uncore *kind = unit->kind;
	const struct rp_uncore_event *row;

	for (row = kind->events; row->quantity; row++) {
		if (row->config1 != attr->config1)
			continue;
		*port = 0;
		do {
			u32 code = row->code + row->step * *port;

			if (kind->encoded(code, row->umask) == attr->config)
				return row;
		} while (++*port < row->ports);
	}
	return NULL;
}

static int uncore_event_init(struct perf_event *event)
{
	struct unit *unit = unit_of(event);
	const struct rp_uncore_event *row;
	int error = rp_plain_check(event);
	unsigned int port;

	if (error)
		return error;
	row = find_row(unit, &event->attr, &port);
	if (!row)
		return -EINVAL;
	event->hw.config = (unsigned long)row;
	event_shares(&event->hw) = unit->shares * max(row->ports, 1U);
	event_share(&event->hw) = unit->share * max(row->ports, 1U) + port;
	return 0;
}

/* Registers a unit like @model that counts for the nodes of @cpus. */
static int register_unit(const struct unit *model, int number, const cpumask_t *cpus)
{
	struct unit *unit = &units[unit_count];
	int error;

	if (unit_count == MAX_UNITS)
		return -ENOSPC;
	*unit = *model;
	unit->plain.cpus = *cpus;
	if (number < 0)
		snprintf(unit->name, MAX_NAME, "%s", model->kind->name);
	else
		snprintf(unit->name, MAX_NAME, "%s_%d", model->kind->name, number);
	unit->plain.pmu.attr_groups = unit->groups;
	error = perf_pmu_register(&unit->plain.pmu, unit->name, -1);
	unit->is_registered = !error;
	if (!error)
		unit_count++;
	return error;
}

/* All numbers of a kind for the nodes of @cpus, the first of them behind @offset. */
static int register_numbers(struct unit *model, unsigned int offset, const cpumask_t *cpus)
{
	unsigned int number;
	int error;

	model->share = 0;
	for (number = 0; number < 32; number++) {
		if (!(model->kind->numbers & BIT(number)))
			continue;
		error = register_unit(model, offset + number, cpus);
		if (error)
			return error;
		model->share++;
	}
	return 0;
}

static int register_kind(const struct rp_uncore *kind)
{
	struct unit model = {
		.kind = kind,
		.shares = max(hweight32(kind->numbers), 1U),
		.groups = { &rp_plain_group, rp_folder("format", kind->format), NULL },
	};
	unsigned int cpu, offset = 0;
	int error;

	rp_plain_init(&model.plain, uncore_event_init, uncore_value);
	if (kind->aliases)
		model.groups[2] = rp_folder("events", kind->aliases);
	if (rp_files_failed())
		return -ENOMEM;
	if (!kind->numbers)
		return register_unit(&model, -1, &node_cpus);
	if (!kind->of_one_node)
		return register_numbers(&model, 0, &node_cpus);
	for_each_cpu(cpu, &node_cpus) {
		error = register_numbers(&model, offset, cpumask_of(cpu));
		if (error)
			return error;
		offset += fls(kind->numbers);
	}
	return 0;
}

int rp_uncore_register(void)
{
	const struct rp_processor *processor = rp_processor();
	unsigned int kind;
	int error;

	if (!processor)
		return 0;
	rp_plain_first_cpus(&node_cpus);
	units = kcalloc(MAX_UNITS, sizeof(*units), GFP_KERNEL);
	if (!units)
		return -ENOMEM;
	for (kind = 0; kind < processor->uncore_kinds; kind++) {
		error = register_kind(&processor->uncore[kind]);
		if (error) {
			rp_uncore_unregister();
			return error;
		}
	}
	return 0;
}

void rp_uncore_unregister(void)
{
	while (unit_count) {
		struct unit *unit = &units[--unit_count];

		if (unit->is_registered)
			perf_pmu_unregister(&unit->plain.pmu);
	}
	kfree(units);
	units = NULL;
}

void rp_uncore_hide(const char *name)
{
	unsigned int number;

	for (number = 0; number < unit_count; number++) {
		struct unit *unit = &units[number];
		bool is_wanted = strcmp(unit->name, name);

		if (unit->is_registered == is_wanted)
			continue;
		if (is_wanted && perf_pmu_register(&unit->plain.pmu, unit->name, -1))
			continue;
		if (!is_wanted)
			perf_pmu_unregister(&unit->plain.pmu);
		unit->is_registered = is_wanted;
	}
}
