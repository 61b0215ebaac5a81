// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The uncore PMU `lab_nb`, named after AMD's northbridge counters: what memory
 * controllers and links carried for all CPUs. Counting only, for a
 * whole machine. An event is opened with pid = -1 on the CPUs of `cpumask`, which
 * holds the first CPU of each node that has CPUs.
 *
 * Each counter has one CPU that counts it, so that adding up over `cpumask` never
 * counts anything twice; opened on another CPU it stays zero.
 *
 *   dram_to_nodeK   node of the CPU -> DRAM of node K, lines read; on every CPU
 *   mc_*            the controller of the CPU's own node
 *   mc_*_nodeK      the controller of node K, for nodes without CPUs; counted on
 *                   the CPU of the nearest node that has some (lowest number first)
 *   linkI           bytes of link I; counted where the data comes from (or the
 *                   nearest node with CPUs); `links/linkI` says "from to"
 */
#include <linux/cpumask.h>
#include <linux/topology.h>

#include "plain.h"
#include "processor.h"
#include "rondpoint_pmu.h"

/* config: what to count, and of which node (0 = the CPU's own) or link. */
#define NB_KIND_MASK 0xffULL
#define NB_UNIT_SHIFT 8
#define NB_UNIT_MASK 0xff00ULL

#define NB_DRAM_TO 0 /* unit = target node */
#define NB_READ_LINES 1 /* unit = 0 own, k + 1 = node k */
#define NB_WRITE_LINES 2
#define NB_REQUESTS 3
#define NB_QUEUE_NS 4
#define NB_LINK_BYTES 5 /* unit = link */
#define NB_KINDS 6

#define NB_LINE_BYTES 64
#define NB_PS_PER_NS 1000

static struct rp_plain node_unit;

/* The node that counts for @node: itself, or the nearest that has CPUs. */
static unsigned int counting_node(unsigned int node)
{
	unsigned int candidate, best = node;
	int distance = INT_MAX;

	if (node >= nr_node_ids || !node_online(node))
		return 0;
	if (!cpumask_empty(cpumask_of_node(node)))
		return node;
	for_each_online_node(candidate) {
		if (cpumask_empty(cpumask_of_node(candidate)))
			continue;
		if (node_distance(candidate, node) < distance) {
			distance = node_distance(candidate, node);
			best = candidate;
		}
	}
	return best;
}

static unsigned int kind_of(u64 config)
{
	return config & NB_KIND_MASK;
}

static unsigned int unit_of(u64 config)
{
	return (config & NB_UNIT_MASK) >> NB_UNIT_SHIFT;
}

static bool is_valid(u64 config)
{
	unsigned int kind = kind_of(config), unit = unit_of(config);

	if (config & ~(NB_KIND_MASK | NB_UNIT_MASK) || kind >= NB_KINDS)
		return false;
	if (kind == NB_LINK_BYTES)
		return unit < rp_load(RP_HEADER_LINKS);
	if (kind == NB_DRAM_TO)
		return unit < rp_load(RP_HEADER_NODES);
	return unit <= rp_load(RP_HEADER_NODES);
}

static unsigned int node_word(unsigned int node, unsigned int word)
{
	return RP_NODE_BASE + node * RP_NODE_WORDS + word;
}

static u64 link_bytes(unsigned int link, unsigned int here)
{
	unsigned int from = rp_load(RP_HEADER_LINK_ENDS + link) & 0xff;

	if (counting_node(from) != here)
		return 0;
	return rp_load(RP_LINK_BASE + link * RP_LINK_WORDS + RP_LINK_BYTES);
}

/* The counter behind @config as seen from a CPU of node @here. */
static u64 current_value(u64 config, unsigned int here)
{
	unsigned int kind = kind_of(config), unit = unit_of(config);
	unsigned int node = unit ? unit - 1 : here;

	if (kind == NB_LINK_BYTES)
		return link_bytes(unit, here);
	if (kind == NB_DRAM_TO)
		return rp_load(node_word(here, RP_NODE_DRAM_TO + unit));
	if (counting_node(node) != here)
		return 0;
	switch (kind) {
	case NB_READ_LINES:
		return rp_load(node_word(node, RP_NODE_READ_BYTES)) / NB_LINE_BYTES;
	case NB_WRITE_LINES:
		return rp_load(node_word(node, RP_NODE_WRITE_BYTES)) / NB_LINE_BYTES;
	case NB_REQUESTS:
		return rp_load(node_word(node, RP_NODE_REQUESTS));
	default:
		return rp_load(node_word(node, RP_NODE_QUEUE_PS)) / NB_PS_PER_NS;
	}
}

static u64 node_value(struct perf_event *event)
{
	return current_value(event->hw.config, cpu_to_node(event->cpu));
}

static int node_event_init(struct perf_event *event)
{
	struct perf_event_attr *attr = &event->attr;
	int error = rp_plain_check(event);

	if (error)
		return error;
	if (!is_valid(attr->config) || attr->config1)
		return -EINVAL;
	event->hw.config = attr->config;
	return 0;
}

static const struct rp_text format_files[] = {
	{ "event", "config:0-7" },
	{ "unit", "config:8-15" },
	{}
};

/* Which events exist depends on the machine, so their files are made at load. */
static struct attribute_group *events, *links;

#define MAX_NAME 40

/* One event @name with its code and, where given, the two files beside it. */
static void add_event(const char *name, unsigned int kind, unsigned int unit, const char *scale,
		      const char *scaled_unit)
{
	char code[MAX_NAME], beside[MAX_NAME];

	snprintf(code, sizeof(code), "event=%u,unit=%u", kind, unit);
	rp_add_file(events, name, code);
	if (!scale)
		return;
	snprintf(beside, sizeof(beside), "%s.scale", name);
	rp_add_file(events, beside, scale);
	snprintf(beside, sizeof(beside), "%s.unit", name);
	rp_add_file(events, beside, scaled_unit);
}

#define MIB_PER_LINE "6.103515625e-5"
#define MIB_PER_BYTE "9.5367431640625e-7"

static void add_controller_events(const char *suffix, unsigned int unit)
{
	char name[MAX_NAME - 8];

	snprintf(name, sizeof(name), "mc_read%s", suffix);
	add_event(name, NB_READ_LINES, unit, MIB_PER_LINE, "MiB");
	snprintf(name, sizeof(name), "mc_write%s", suffix);
	add_event(name, NB_WRITE_LINES, unit, MIB_PER_LINE, "MiB");
	snprintf(name, sizeof(name), "mc_requests%s", suffix);
	add_event(name, NB_REQUESTS, unit, NULL, NULL);
	snprintf(name, sizeof(name), "mc_queue_ns%s", suffix);
	add_event(name, NB_QUEUE_NS, unit, NULL, NULL);
}

static void add_link(unsigned int link)
{
	u64 word = rp_load(RP_HEADER_LINK_ENDS + link);
	char name[MAX_NAME - 8], ends[MAX_NAME];

	snprintf(name, sizeof(name), "link%u", link);
	add_event(name, NB_LINK_BYTES, link, MIB_PER_BYTE, "MiB");
	snprintf(ends, sizeof(ends), "%llu %llu", word & 0xff, word >> 8 & 0xff);
	rp_add_file(links, name, ends);
}

static void make_files(void)
{
	unsigned int node, link;
	char name[MAX_NAME - 8];

	for (node = 0; node < rp_load(RP_HEADER_NODES); node++) {
		snprintf(name, sizeof(name), "dram_to_node%u", node);
		add_event(name, NB_DRAM_TO, node, NULL, NULL);
	}
	add_controller_events("", 0);
	for (node = 0; node < rp_load(RP_HEADER_NODES); node++) {
		if (counting_node(node) == node)
			continue;
		snprintf(name, sizeof(name), "_node%u", node);
		add_controller_events(name, node + 1);
	}
	for (link = 0; link < rp_load(RP_HEADER_LINKS); link++)
		add_link(link);
}

static const struct attribute_group *groups[] = {
	&rp_plain_group,
	NULL, /* format */
	NULL, /* events */
	NULL, /* links */
	NULL,
};

int rp_node_register(void)
{
	rp_plain_init(&node_unit, node_event_init, node_value);
	rp_plain_first_cpus(&node_unit.cpus);
	groups[1] = rp_folder("format", format_files);
	groups[2] = events = rp_folder("events", NULL);
	groups[3] = links = rp_folder("links", NULL);
	make_files();
	if (rp_files_failed())
		return -ENOMEM;
	node_unit.pmu.attr_groups = groups;
	return perf_pmu_register(&node_unit.pmu, "lab_nb", -1);
}

void rp_node_unregister(void)
{
	perf_pmu_unregister(&node_unit.pmu);
}
