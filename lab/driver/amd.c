// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * AMD's processors. Sources: AMD's Processor Programming References for family 19h,
 * model 11h, and family 17h, model 1h, and arch/x86/events/amd/{core,uncore}.c of
 * Linux 6.12. Op sampling is in ibs_pmu.c.
 *
 * Differences: the model's counters do not tell whether another cache of the same
 * node belongs to another core complex. So the near-cache event counts both. Of the
 * fills, prefetches are counted in those from memory alone.
 */
#include "processor.h"

static const struct rp_text core_format[] = {
	{ "event", "config:0-7,32-35" },
	{ "umask", "config:8-15" },
	{ "edge", "config:18" },
	{ "inv", "config:23" },
	{ "cmask", "config:24-31" },
	{}
};

static const struct rp_text core_aliases[] = {
	{ "cpu-cycles", "event=0x76" },
	{ "instructions", "event=0xc0" },
	{ "cache-references", "event=0x60,umask=0xff" },
	{ "cache-misses", "event=0x64,umask=0x09" },
	{}
};

static const struct rp_text core_caps[] = {
	{ "max_precise", "2" },
	{}
};

#define NEAR_CACHE (RP_COUNTS(LOCAL_FWD) | RP_COUNTS(LOCAL_HITM))
#define FAR_CACHE (RP_COUNTS(REMOTE_FWD) | RP_COUNTS(REMOTE_HITM))

static const struct rp_core_event zen4_core[] = {
	{ 0x0076, RP_COUNTS(CYCLES) },
	{ 0x00c0, RP_COUNTS(INSTRUCTIONS) },
	{ 0x0129, RP_COUNTS(LOADS) }, /* ls_dispatch.ld_dispatch */
	{ 0x0229, RP_COUNTS(STORES) }, /* ls_dispatch.store_dispatch */
	{ 0xff60, RP_COUNTS(L1_MISS) }, /* l2_request_g1.all */
	{ 0x0964, RP_COUNTS(L2_MISS) }, /* l2_cache_req_stat.ic_dc_miss_in_l2 */
	{ 0x0243, RP_COUNTS(LLC_HIT) }, /* ls_dmnd_fills_from_sys.local_ccx */
	{ 0x0443, NEAR_CACHE },
	{ 0x0843, RP_COUNTS(LOCAL_DRAM) }, /* .dram_io_near */
	{ 0x1043, FAR_CACHE },
	{ 0x4043, RP_COUNTS(REMOTE_DRAM) }, /* .dram_io_far */
	{ 0x0244, RP_COUNTS(LLC_HIT) }, /* ls_any_fills_from_sys.local_ccx */
	{ 0x0444, NEAR_CACHE },
	{ 0x0844, RP_COUNTS_OWN_NODE },
	{ 0x1044, FAR_CACHE },
	{ 0x4044, RP_COUNTS_OTHER_NODES },
	{ 0x4844, RP_COUNTS(DRAM_READS) }, /* .dram_io_all */
	{}
};

static const struct rp_core_event zen1_core[] = {
	{ 0x0076, RP_COUNTS(CYCLES) },
	{ 0x00c0, RP_COUNTS(INSTRUCTIONS) },
	{ 0x0129, RP_COUNTS(LOADS) }, /* ls_dispatch.ld_dispatch */
	{ 0x0229, RP_COUNTS(STORES) }, /* ls_dispatch.store_dispatch */
	{ 0xff60, RP_COUNTS(L1_MISS) }, /* l2_request_g1.all */
	{ 0x0964, RP_COUNTS(L2_MISS) }, /* l2_cache_req_stat.ic_dc_miss_in_l2 */
	{}
};

static const struct rp_text df_format[] = {
	{ "event", "config:0-7,32-37" },
	{ "umask", "config:8-15,24-27" },
	{}
};

static u64 df_encoded(u32 code, u32 umask)
{
	u64 high = code >> 8;

	return (code & 0xff) | (umask & 0xff) << 8 | (umask >> 8) << 24 | high << 32;
}

/* A port for each of the memory channels and links; a beat is a line. */
#define CHANNEL(mask, what) { 0x1f, mask, 0, what, 1, 1, .step = 0x40, .ports = 12 }

static const struct rp_uncore_event df_events[] = {
	CHANNEL(0x7fe, RP_HOME_READS_LOCAL),
	CHANNEL(0x7ff, RP_HOME_WRITES_LOCAL),
	CHANNEL(0xbfe, RP_HOME_READS_REMOTE),
	CHANNEL(0xbff, RP_HOME_WRITES_REMOTE),
	{ 0xb5f, 0xf3e, 0, RP_SENT_BYTES, 1, 64, .step = 0x40, .ports = 8 },
	{}
};

static const struct rp_text zen1_df_format[] = {
	{ "event", "config:0-7,32-35,59-60" },
	{ "umask", "config:8-15" },
	{}
};

static u64 zen1_df_encoded(u32 code, u32 umask)
{
	u64 middle = code >> 8 & 0xf, high = code >> 12;

	return (code & 0xff) | umask << 8 | middle << 32 | high << 59;
}

/* Reads and writes together; a link carries 32 bytes a beat. */
static const struct rp_uncore_event zen1_df_events[] = {
	{ 0x07, 0x38, 0, RP_ACCESSED_LINES, 1, 1, .step = 0x40, .ports = 8 },
	{ 0x7c7, 0x02, 0, RP_SENT_BYTES, 1, 32, .step = 0x40, .ports = 4 },
	{}
};

static const struct rp_text l3_format[] = {
	{ "event", "config:0-7" },
	{ "umask", "config:8-15" },
	{ "coreid", "config:42-44" },
	{ "enallslices", "config:46" },
	{ "enallcores", "config:47" },
	{ "sliceid", "config:48-50" },
	{ "threadmask", "config:56-57" },
	{}
};

static u64 plain_encoded(u32 code, u32 umask)
{
	return code | umask << 8;
}

static const struct rp_uncore_event l3_events[] = {
	{ 0x04, 0xff, .quantity = RP_CACHE_LOOKUPS, .times = 1, .through = 1 },
	{ 0x04, 0x01, .quantity = RP_CACHE_MISSES, .times = 1, .through = 1 },
	{}
};

static const struct rp_uncore_event zen1_l3_events[] = {
	{ 0x04, 0xff, .quantity = RP_CACHE_LOOKUPS, .times = 1, .through = 1 },
	{ 0x06, 0x01, .quantity = RP_CACHE_MISSES, .times = 1, .through = 1 },
	{}
};

static const struct rp_text umc_format[] = {
	{ "event", "config:0-7" },
	{ "rdwrmask", "config:8-9" },
	{}
};

static const struct rp_uncore_event umc_events[] = {
	{ 0x0a, 0x1, .quantity = RP_READ_LINES, .times = 1, .through = 1 },
	{ 0x0a, 0x2, .quantity = RP_WRITTEN_LINES, .times = 1, .through = 1 },
	{ 0x0a, 0x0, .quantity = RP_ACCESSED_LINES, .times = 1, .through = 1 },
	{}
};

/* Controllers are numbered through all sockets, and each counts for its own. */
static const struct rp_uncore zen4_uncore[] = {
	{ "amd_df", 0, df_format, NULL, df_encoded, df_events },
	{ "amd_l3", 0, l3_format, NULL, plain_encoded, l3_events },
	{ "amd_umc", 0x0f, umc_format, NULL, plain_encoded, umc_events, .of_one_node = true },
};

static const struct rp_uncore zen1_uncore[] = {
	{ "amd_df", 0, zen1_df_format, NULL, zen1_df_encoded, zen1_df_events },
	{ "amd_l3", 0, l3_format, NULL, plain_encoded, zen1_l3_events },
};

/* Generations differ in the events and units that they count. */
#define ZEN(generation)                                         \
	{                                                       \
		.core = "cpu", .format = core_format,           \
		.aliases = core_aliases, .caps = core_caps,     \
		.events = generation##_core,                    \
		.cache_references = RP_COUNTS(L1_MISS),         \
		.cache_misses = RP_COUNTS(L2_MISS),             \
		.uncore = generation##_uncore,                  \
		.uncore_kinds = ARRAY_SIZE(generation##_uncore), \
	}

const struct rp_processor rp_amd_zen1 = ZEN(zen1);
const struct rp_processor rp_amd_zen4 = ZEN(zen4);
