// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The core PMUs' vocabulary: which event an attribute asks for, and the sysfs
 * files (format, events, caps) by which tools learn the names.  The unit `model`
 * speaks the model's own numbers on every machine; the cores' unit speaks those of
 * the processor that the machine plays.  Knows no counters and no CPU.
 */
#include <linux/stringify.h>
#include <linux/sysfs.h>

#include "processor.h"
#include "rondpoint_pmu.h"

#define CONFIG_EVENT_MASK 0xffULL
#define CONFIG1_LATENCY_MASK 0xffffULL

/*
 * Generic hardware events, as the kernel's x86 drivers map them: "cache" means
 * the last level.  Only the events that the model counts; the rest do not exist.
 */
static int generic_code(u64 config, u64 *counts)
{
	const struct rp_processor *processor = rp_processor();

	if (processor && config == PERF_COUNT_HW_CACHE_REFERENCES)
		*counts = processor->cache_references;
	if (processor && config == PERF_COUNT_HW_CACHE_MISSES)
		*counts = processor->cache_misses;
	switch (config) {
	case PERF_COUNT_HW_CPU_CYCLES:
		return RP_EVENT_CYCLES;
	case PERF_COUNT_HW_INSTRUCTIONS:
		return RP_EVENT_INSTRUCTIONS;
	case PERF_COUNT_HW_CACHE_REFERENCES:
		return RP_EVENT_L2_MISS;
	case PERF_COUNT_HW_CACHE_MISSES:
		return RP_EVENT_LLC_MISS;
	case PERF_COUNT_HW_REF_CPU_CYCLES:
		return RP_EVENT_REF_CYCLES;
	case PERF_COUNT_HW_STALLED_CYCLES_BACKEND:
		return RP_EVENT_STALL_CYCLES;
	default:
		return -ENOENT;
	}
}

#define CACHE(level, operation, result)                                        \
	(PERF_COUNT_HW_CACHE_##level | PERF_COUNT_HW_CACHE_OP_##operation << 8 | \
	 PERF_COUNT_HW_CACHE_RESULT_##result << 16)

/*
 * Generic cache events.  The model does not count the misses of loads and stores
 * apart; as on Intel (L1D.REPLACEMENT), "read misses" includes those of stores.
 */
static int cache_code(u64 config)
{
	switch (config) {
	case CACHE(L1D, READ, ACCESS):
		return RP_EVENT_LOADS;
	case CACHE(L1D, WRITE, ACCESS):
		return RP_EVENT_STORES;
	case CACHE(L1D, READ, MISS):
		return RP_EVENT_L1_MISS;
	case CACHE(LL, READ, ACCESS):
		return RP_EVENT_L2_MISS;
	case CACHE(LL, READ, MISS):
		return RP_EVENT_LLC_MISS;
	case CACHE(NODE, READ, ACCESS):
		return RP_EVENT_DRAM_REQUESTS;
	case CACHE(NODE, READ, MISS):
		return RP_EVENT_REMOTE_DRAM;
	default:
		return -ENOENT;
	}
}

static bool is_memory_event(int code)
{
	return code == RP_EVENT_LOADS || code == RP_EVENT_STORES || code == RP_EVENT_MEM_ANY;
}

/* The PMU's own encoding: see the format files below. */
static int raw_code(const struct perf_event_attr *attr, u64 *threshold)
{
	int code = attr->config & CONFIG_EVENT_MASK;

	if (attr->config & ~CONFIG_EVENT_MASK || attr->config1 & ~CONFIG1_LATENCY_MASK ||
	    attr->config2 || attr->config3)
		return -EINVAL;
	if (code >= rp_load(RP_HEADER_EVENTS))
		return -EINVAL;
	if (attr->config1 && !is_memory_event(code))
		return -EINVAL;
	*threshold = attr->config1;
	return code;
}

static int processor_code(const struct perf_event_attr *attr, u64 *counts, u64 *threshold)
{
	const struct rp_core_event *event = rp_find_core_event(attr);

	if (!event)
		return -EINVAL;
	*counts = event->counts;
	*threshold = event->has_latency ? attr->config1 & CONFIG1_LATENCY_MASK : 0;
	return RP_EVENT_SUM;
}

/*
 * The event that @attr means, or -ENOENT if it is not ours, -EINVAL if it is ours
 * and wrong.  Sets @counts to what it adds up (RP_COUNTS) and @threshold to the
 * least latency in cycles that counts.
 */
int rp_event_code_of(const struct perf_event_attr *attr, enum rp_language language, u64 *counts,
		     u64 *threshold)
{
	int code = -ENOENT;

	*threshold = 0;
	*counts = 0;
	if (language == RP_OF_MODEL)
		code = raw_code(attr, threshold);
	else if (language == RP_OF_PROCESSOR)
		code = processor_code(attr, counts, threshold);
	else if (attr->type == PERF_TYPE_HARDWARE)
		code = generic_code(attr->config, counts);
	else if (attr->type == PERF_TYPE_HW_CACHE)
		code = cache_code(attr->config);
	if (code < 0)
		return code;
	if (!*counts)
		*counts = BIT_ULL(code);
	return hweight64(*counts) == 1 && __ffs64(*counts) < RP_EVENTS ? __ffs64(*counts) :
									  RP_EVENT_SUM;
}

PMU_FORMAT_ATTR(event, "config:0-7");
PMU_FORMAT_ATTR(umask, "config:8-15"); /* must be 0; tools expect the field */
PMU_FORMAT_ATTR(ldlat, "config1:0-15");

static struct attribute *format_attributes[] = {
	&format_attr_event.attr,
	&format_attr_umask.attr,
	&format_attr_ldlat.attr,
	NULL,
};

static const struct attribute_group format_group = {
	.name = "format",
	.attrs = format_attributes,
};

#define CODE(event) "event=" __stringify(RP_EVENT_##event)

PMU_EVENT_ATTR_STRING(cpu-cycles, event_cpu_cycles, CODE(CYCLES));
PMU_EVENT_ATTR_STRING(instructions, event_instructions, CODE(INSTRUCTIONS));
PMU_EVENT_ATTR_STRING(ref-cycles, event_ref_cycles, CODE(REF_CYCLES));
PMU_EVENT_ATTR_STRING(cache-references, event_cache_references, CODE(L2_MISS));
PMU_EVENT_ATTR_STRING(cache-misses, event_cache_misses, CODE(LLC_MISS));
PMU_EVENT_ATTR_STRING(loads, event_loads, CODE(LOADS));
PMU_EVENT_ATTR_STRING(stores, event_stores, CODE(STORES));
PMU_EVENT_ATTR_STRING(mem-loads, event_mem_loads, CODE(LOADS) ",ldlat=30");
PMU_EVENT_ATTR_STRING(mem-stores, event_mem_stores, CODE(STORES));
PMU_EVENT_ATTR_STRING(mem-any, event_mem_any, CODE(MEM_ANY));
PMU_EVENT_ATTR_STRING(l1_miss, event_l1_miss, CODE(L1_MISS));
PMU_EVENT_ATTR_STRING(l2_miss, event_l2_miss, CODE(L2_MISS));
PMU_EVENT_ATTR_STRING(llc_hit, event_llc_hit, CODE(LLC_HIT));
PMU_EVENT_ATTR_STRING(llc_miss, event_llc_miss, CODE(LLC_MISS));
PMU_EVENT_ATTR_STRING(local_dram, event_local_dram, CODE(LOCAL_DRAM));
PMU_EVENT_ATTR_STRING(remote_dram, event_remote_dram, CODE(REMOTE_DRAM));
PMU_EVENT_ATTR_STRING(local_fwd, event_local_fwd, CODE(LOCAL_FWD));
PMU_EVENT_ATTR_STRING(local_hitm, event_local_hitm, CODE(LOCAL_HITM));
PMU_EVENT_ATTR_STRING(remote_fwd, event_remote_fwd, CODE(REMOTE_FWD));
PMU_EVENT_ATTR_STRING(remote_hitm, event_remote_hitm, CODE(REMOTE_HITM));
PMU_EVENT_ATTR_STRING(prefetch_dram, event_prefetch_dram, CODE(PREFETCH_DRAM));
PMU_EVENT_ATTR_STRING(writebacks, event_writebacks, CODE(WRITEBACKS));
PMU_EVENT_ATTR_STRING(stall_cycles, event_stall_cycles, CODE(STALL_CYCLES));
PMU_EVENT_ATTR_STRING(dram_latency_cycles, event_dram_latency, CODE(DRAM_LATENCY_CYCLES));
PMU_EVENT_ATTR_STRING(dram_requests, event_dram_requests, CODE(DRAM_REQUESTS));
PMU_EVENT_ATTR_STRING(dram_reads, event_dram_reads, CODE(DRAM_READS));

#define DRAM_NODE(n) \
	PMU_EVENT_ATTR_STRING(dram_node##n, event_dram_node##n, CODE(DRAM_NODE##n))

DRAM_NODE(0);
DRAM_NODE(1);
DRAM_NODE(2);
DRAM_NODE(3);
DRAM_NODE(4);
DRAM_NODE(5);
DRAM_NODE(6);
DRAM_NODE(7);
DRAM_NODE(8);
DRAM_NODE(9);
DRAM_NODE(10);
DRAM_NODE(11);
DRAM_NODE(12);
DRAM_NODE(13);
DRAM_NODE(14);
DRAM_NODE(15);

/* The nodes come first, so that the visibility test below can use the index. */
static struct attribute *event_attributes[] = {
	&event_dram_node0.attr.attr,
	&event_dram_node1.attr.attr,
	&event_dram_node2.attr.attr,
	&event_dram_node3.attr.attr,
	&event_dram_node4.attr.attr,
	&event_dram_node5.attr.attr,
	&event_dram_node6.attr.attr,
	&event_dram_node7.attr.attr,
	&event_dram_node8.attr.attr,
	&event_dram_node9.attr.attr,
	&event_dram_node10.attr.attr,
	&event_dram_node11.attr.attr,
	&event_dram_node12.attr.attr,
	&event_dram_node13.attr.attr,
	&event_dram_node14.attr.attr,
	&event_dram_node15.attr.attr,
	&event_cpu_cycles.attr.attr,
	&event_instructions.attr.attr,
	&event_ref_cycles.attr.attr,
	&event_cache_references.attr.attr,
	&event_cache_misses.attr.attr,
	&event_loads.attr.attr,
	&event_stores.attr.attr,
	&event_mem_loads.attr.attr,
	&event_mem_stores.attr.attr,
	&event_mem_any.attr.attr,
	&event_l1_miss.attr.attr,
	&event_l2_miss.attr.attr,
	&event_llc_hit.attr.attr,
	&event_llc_miss.attr.attr,
	&event_local_dram.attr.attr,
	&event_remote_dram.attr.attr,
	&event_local_fwd.attr.attr,
	&event_local_hitm.attr.attr,
	&event_remote_fwd.attr.attr,
	&event_remote_hitm.attr.attr,
	&event_prefetch_dram.attr.attr,
	&event_writebacks.attr.attr,
	&event_stall_cycles.attr.attr,
	&event_dram_latency.attr.attr,
	&event_dram_requests.attr.attr,
	&event_dram_reads.attr.attr,
	NULL,
};

static umode_t event_is_visible(struct kobject *object, struct attribute *attribute, int index)
{
	if (index < RP_MAX_NODES && index >= rp_load(RP_HEADER_NODES))
		return 0;
	return attribute->mode;
}

static const struct attribute_group events_group = {
	.name = "events",
	.attrs = event_attributes,
	.is_visible = event_is_visible,
};

static const char *const vendor_names[] = {
	[RP_VENDOR_INTEL] = "intel",
	[RP_VENDOR_AMD] = "amd",
	[RP_VENDOR_ARM] = "arm",
};

static ssize_t counters_show(struct device *device, struct device_attribute *attribute, char *page)
{
	return sysfs_emit(page, "%llu\n", rp_load(RP_HEADER_SLOTS));
}
static DEVICE_ATTR_RO(counters);

static ssize_t max_precise_show(struct device *device, struct device_attribute *attribute,
				char *page)
{
	bool exact = rp_load(RP_HEADER_FEATURES_MASK) & RP_FEATURE_IP_MASK;

	return sysfs_emit(page, "%d\n", exact ? 2 : 0);
}
static DEVICE_ATTR_RO(max_precise);

/* 1: user and kernel level are counted apart (exclude_user, exclude_kernel). */
static ssize_t levels_show(struct device *device, struct device_attribute *attribute, char *page)
{
	bool apart = rp_load(RP_HEADER_FEATURES_MASK) & RP_FEATURE_USER_MASK;

	return sysfs_emit(page, "%d\n", apart);
}
static DEVICE_ATTR_RO(levels);

static ssize_t data_source_show(struct device *device, struct device_attribute *attribute,
				char *page)
{
	return sysfs_emit(page, "%s\n", vendor_names[rp_load(RP_HEADER_VENDOR)]);
}
static DEVICE_ATTR_RO(data_source);

static struct attribute *caps_attributes[] = {
	&dev_attr_counters.attr,
	&dev_attr_max_precise.attr,
	&dev_attr_levels.attr,
	&dev_attr_data_source.attr,
	NULL,
};

static const struct attribute_group caps_group = {
	.name = "caps",
	.attrs = caps_attributes,
};

/* What became of samples, summed over CPUs: for tests and for the curious. */
static ssize_t samples_show(struct device *device, struct device_attribute *attribute, char *page)
{
	unsigned int cpu;
	u64 sum = 0;

	for_each_possible_cpu(cpu)
		sum += per_cpu(rp_cpus, cpu).samples;
	return sysfs_emit(page, "%llu\n", sum);
}
static DEVICE_ATTR_RO(samples);

static ssize_t late_show(struct device *device, struct device_attribute *attribute, char *page)
{
	unsigned int cpu;
	u64 sum = 0;

	for_each_possible_cpu(cpu)
		sum += per_cpu(rp_cpus, cpu).late;
	return sysfs_emit(page, "%llu\n", sum);
}
static DEVICE_ATTR_RO(late);

static ssize_t dropped_show(struct device *device, struct device_attribute *attribute, char *page)
{
	unsigned int cpu;
	u64 sum = 0;

	for_each_possible_cpu(cpu)
		sum += rp_load(rp_cpu_word(cpu, RP_RING_DROPPED));
	return sysfs_emit(page, "%llu\n", sum);
}
static DEVICE_ATTR_RO(dropped);

static struct attribute *statistics_attributes[] = {
	&dev_attr_samples.attr,
	&dev_attr_late.attr,
	&dev_attr_dropped.attr,
	NULL,
};

static const struct attribute_group statistics_group = {
	.name = "statistics",
	.attrs = statistics_attributes,
};

const struct attribute_group *rp_model_groups[] = {
	&format_group,
	&events_group,
	&caps_group,
	&statistics_group,
	NULL,
};

/* The files of the cores' unit, made when it is registered. */
const struct attribute_group **rp_core_groups(void)
{
	static const struct attribute_group *groups[5];
	struct attribute_group *files;
	const struct rp_processor *processor = rp_processor();

	if (!processor)
		return rp_model_groups;
	groups[0] = rp_folder("format", processor->format);
	groups[1] = rp_folder("events", processor->aliases);
	groups[2] = rp_folder("caps", processor->caps);
	if (processor->lists_cpus) {
		files = rp_folder(NULL, NULL);
		rp_add_cpus(files, "cpus");
		groups[3] = files;
	}
	return groups;
}
