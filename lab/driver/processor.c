// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which processor this machine plays, and which of its core events an attribute
 * means. An encoding that is not in the tables is refused, so that no wrong number
 * goes unnoticed. A real processor would count something else or nothing.
 */
#include "processor.h"
#include "rondpoint_pmu.h"

static const struct rp_processor *const processors[] = {
	[RP_PROCESSOR_NONE] = NULL,
	[RP_PROCESSOR_SKYLAKE_SP] = &rp_skylake_sp,
	[RP_PROCESSOR_AMD_ZEN4] = &rp_amd_zen4,
	[RP_PROCESSOR_NEHALEM_EP] = &rp_nehalem_ep,
	[RP_PROCESSOR_IVYBRIDGE_EP] = &rp_ivybridge_ep,
	[RP_PROCESSOR_AMD_ZEN1] = &rp_amd_zen1,
	[RP_PROCESSOR_NEOVERSE_N1] = &rp_neoverse_n1,
};

const struct rp_processor *rp_processor(void)
{
	u64 number = rp_load(RP_HEADER_PROCESSOR);

	return number < ARRAY_SIZE(processors) ? processors[number] : NULL;
}

const struct rp_core_event *rp_find_core_event(const struct perf_event_attr *attr)
{
	const struct rp_core_event *event;

	if (attr->config2 || attr->config3)
		return NULL;
	for (event = rp_processor()->events; event->counts; event++)
		if (event->config == attr->config && (!attr->config1 || event->has_latency))
			return event;
	return NULL;
}
