// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The uncore PMU `lab_nb`, named after AMD's northbridge counters: what memory
 * controllers and links carried, whoever caused it.  Counting only, for a whole
 * machine: an event is opened with pid = -1 on the CPUs of `cpumask`, which holds
 * the first CPU of each node that has CPUs.
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
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/topology.h>

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

static struct pmu node_pmu;
static cpumask_t node_cpus;

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

static int node_event_init(struct perf_event *event)
{
	struct perf_event_attr *attr = &event->attr;

	if (attr->type != node_pmu.type)
		return -ENOENT;
	if (is_sampling_event(event) || event->attach_state & PERF_ATTACH_TASK)
		return -EINVAL;
	if (event->cpu < 0 || !cpumask_test_cpu(event->cpu, &node_cpus))
		return -EINVAL;
	if (!is_valid(attr->config) || attr->config1 || attr->config2 || attr->config3)
		return -EINVAL;
	event->hw.config = attr->config;
	return 0;
}

static u64 fresh_value(struct perf_event *event)
{
	rp_marker_nodes();
	return current_value(event->hw.config, cpu_to_node(event->cpu));
}

static void node_read(struct perf_event *event)
{
	u64 now = fresh_value(event);
	u64 before = local64_xchg(&event->hw.prev_count, now);

	local64_add(now - before, &event->count);
}

static void node_start(struct perf_event *event, int flags)
{
	local64_set(&event->hw.prev_count, fresh_value(event));
	event->hw.state = 0;
	perf_event_update_userpage(event);
}

static void node_stop(struct perf_event *event, int flags)
{
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	node_read(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int node_add(struct perf_event *event, int flags)
{
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		node_start(event, flags);
	return 0;
}

static void node_del(struct perf_event *event, int flags)
{
	node_stop(event, PERF_EF_UPDATE);
}

static ssize_t cpumask_show(struct device *device, struct device_attribute *attribute, char *page)
{
	return cpumap_print_to_pagebuf(true, page, &node_cpus);
}
static DEVICE_ATTR_RO(cpumask);

static struct attribute *plain_attributes[] = {
	&dev_attr_cpumask.attr,
	NULL,
};

static const struct attribute_group plain_group = {
	.attrs = plain_attributes,
};

PMU_FORMAT_ATTR(event, "config:0-7");
PMU_FORMAT_ATTR(unit, "config:8-15");

static struct attribute *format_attributes[] = {
	&format_attr_event.attr,
	&format_attr_unit.attr,
	NULL,
};

static const struct attribute_group format_group = {
	.name = "format",
	.attrs = format_attributes,
};

/*
 * Which events exist depends on the machine, so their files are made at load.
 * Bound: 16 dram_to, 4 of own controller with scale and unit (8), the same per
 * memory-only node, 3 per link, the link table, and the two terminators.
 */
#define MAX_FILES (RP_MAX_NODES + 8 + 8 * RP_MAX_NODES + 4 * RP_MAX_LINKS + 2)
#define MAX_NAME 40

struct text_file {
	struct device_attribute attribute;
	char name[MAX_NAME];
	char text[MAX_NAME];
};

static struct text_file *files;
static unsigned int file_count;
static struct attribute *event_attributes[MAX_FILES];
static struct attribute *link_attributes[RP_MAX_LINKS + 1];

static ssize_t text_show(struct device *device, struct device_attribute *attribute, char *page)
{
	struct text_file *file = container_of(attribute, struct text_file, attribute);

	return sysfs_emit(page, "%s\n", file->text);
}

/* Appends a file to the NULL-terminated @list; name and text are in place. */
static void append(struct attribute **list, struct text_file *file)
{
	sysfs_attr_init(&file->attribute.attr);
	file->attribute.attr.name = file->name;
	file->attribute.attr.mode = 0444;
	file->attribute.show = text_show;
	while (*list)
		list++;
	*list = &file->attribute.attr;
}

static struct text_file *next_file(void)
{
	return &files[file_count++];
}

/* One event @name with its code and, where given, the two files beside it. */
static void add_event(const char *name, unsigned int kind, unsigned int unit, const char *scale,
		      const char *scaled_unit)
{
	struct text_file *file = next_file();

	snprintf(file->name, MAX_NAME, "%s", name);
	snprintf(file->text, MAX_NAME, "event=%u,unit=%u", kind, unit);
	append(event_attributes, file);
	if (!scale)
		return;
	file = next_file();
	snprintf(file->name, MAX_NAME, "%s.scale", name);
	snprintf(file->text, MAX_NAME, "%s", scale);
	append(event_attributes, file);
	file = next_file();
	snprintf(file->name, MAX_NAME, "%s.unit", name);
	snprintf(file->text, MAX_NAME, "%s", scaled_unit);
	append(event_attributes, file);
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
	struct text_file *ends = next_file();
	u64 word = rp_load(RP_HEADER_LINK_ENDS + link);
	char name[MAX_NAME - 8];

	snprintf(name, sizeof(name), "link%u", link);
	add_event(name, NB_LINK_BYTES, link, MIB_PER_BYTE, "MiB");
	snprintf(ends->name, MAX_NAME, "%s", name);
	snprintf(ends->text, MAX_NAME, "%llu %llu", word & 0xff, word >> 8 & 0xff);
	append(link_attributes, ends);
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

static const struct attribute_group events_group = {
	.name = "events",
	.attrs = event_attributes,
};

static const struct attribute_group links_group = {
	.name = "links",
	.attrs = link_attributes,
};

static const struct attribute_group *groups[] = {
	&plain_group,
	&format_group,
	&events_group,
	&links_group,
	NULL,
};

static struct pmu node_pmu = {
	.module = THIS_MODULE,
	.task_ctx_nr = perf_invalid_context,
	.attr_groups = groups,
	.capabilities = PERF_PMU_CAP_NO_EXCLUDE | PERF_PMU_CAP_NO_INTERRUPT,
	.event_init = node_event_init,
	.add = node_add,
	.del = node_del,
	.start = node_start,
	.stop = node_stop,
	.read = node_read,
};

int rp_node_register(void)
{
	unsigned int node;
	int error;

	/* The guest's CPUs are all online at load and stay so. */
	for_each_online_node(node) {
		unsigned int cpu = cpumask_first_and(cpumask_of_node(node), cpu_online_mask);

		if (cpu < nr_cpu_ids)
			cpumask_set_cpu(cpu, &node_cpus);
	}
	files = kcalloc(MAX_FILES + RP_MAX_LINKS, sizeof(*files), GFP_KERNEL);
	if (!files)
		return -ENOMEM;
	make_files();
	error = perf_pmu_register(&node_pmu, "lab_nb", -1);
	if (error)
		kfree(files);
	return error;
}

void rp_node_unregister(void)
{
	perf_pmu_unregister(&node_pmu);
	kfree(files);
}
