// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Arm's processors, on a kernel for x86. Sources: the Arm Architecture Reference
 * Manual for the core's events, and drivers/perf/{arm_pmuv3,arm-cmn}.c of Linux
 * 6.12. Statistical profiling is in spe_pmu.c.
 *
 * Differences: a home node of a real mesh caches the lines of its own memory. The
 * model's last-level caches keep the lines that their node's CPUs use, wherever
 * their home is. Lookups and misses are those of the model. The model does not
 * count loads and stores of the last level apart.
 */
#include "processor.h"

static const struct rp_text core_format[] = {
	{ "event", "config:0-15" },
	{ "long", "config1:0" },
	{ "rdpmc", "config1:1" },
	{}
};

static const struct rp_text core_aliases[] = {
	{ "cpu_cycles", "event=0x0011" },
	{ "inst_retired", "event=0x0008" },
	{ "l1d_cache", "event=0x0004" },
	{ "l1d_cache_refill", "event=0x0003" },
	{ "l2d_cache_refill", "event=0x0017" },
	{ "ll_cache_rd", "event=0x0036" },
	{ "ll_cache_miss_rd", "event=0x0037" },
	{ "mem_access", "event=0x0013" },
	{ "remote_access", "event=0x0031" },
	{ "stall_backend", "event=0x0024" },
	{}
};

static const struct rp_text core_caps[] = {
	{ "slots", "0x00000000" },
	{}
};

#define OTHER_SOCKETS_CACHES (RP_COUNTS(REMOTE_FWD) | RP_COUNTS(REMOTE_HITM))

static const struct rp_core_event n1_core[] = {
	{ 0x0003, RP_COUNTS(L1_MISS) }, /* L1D_CACHE_REFILL */
	{ 0x0004, RP_COUNTS(MEM_ANY) }, /* L1D_CACHE */
	{ 0x0008, RP_COUNTS(INSTRUCTIONS) }, /* INST_RETIRED */
	{ 0x0011, RP_COUNTS(CYCLES) }, /* CPU_CYCLES */
	{ 0x0013, RP_COUNTS(MEM_ANY) }, /* MEM_ACCESS */
	{ 0x0017, RP_COUNTS(L2_MISS) }, /* L2D_CACHE_REFILL */
	{ 0x0024, RP_COUNTS(STALL_CYCLES) }, /* STALL_BACKEND */
	{ 0x0031, RP_COUNTS(REMOTE_DRAM) | OTHER_SOCKETS_CACHES }, /* REMOTE_ACCESS */
	{ 0x0036, RP_COUNTS(L2_MISS) }, /* LL_CACHE_RD */
	{ 0x0037, RP_COUNTS(DRAM_READS) | OTHER_SOCKETS_CACHES }, /* LL_CACHE_MISS_RD */
	{ 0x0066, RP_COUNTS(LOADS) }, /* MEM_ACCESS_RD */
	{ 0x0067, RP_COUNTS(STORES) }, /* MEM_ACCESS_WR */
	{}
};

static const struct rp_text cmn_format[] = {
	{ "type", "config:0-15" },
	{ "eventid", "config:16-26" },
	{ "occupid", "config:27-30" },
	{ "bynodeid", "config:31" },
	{ "nodeid", "config:32-47" },
	{ "wp_dev_sel", "config:48-50" },
	{ "wp_chn_sel", "config:51-55" },
	{ "wp_grp", "config:56-57" },
	{ "wp_exclusive", "config:58" },
	{ "wp_combine", "config:27-30" },
	{ "wp_val", "config1:0-63" },
	{ "wp_mask", "config2:0-63" },
	{}
};

static const struct rp_text cmn_aliases[] = {
	{ "hnf_cache_miss", "type=0x5,eventid=0x1" },
	{ "hnf_slc_sf_cache_access", "type=0x5,eventid=0x2" },
	{ "hnf_mc_reqs", "type=0x5,eventid=0xd" },
	{}
};

/* The event's number and the type of node that counts it. */
static u64 cmn_encoded(u32 code, u32 umask)
{
	return umask | code << 16;
}

#define HOME_NODE 0x5

static const struct rp_uncore_event cmn_events[] = {
	{ 0x1, HOME_NODE, .quantity = RP_CACHE_MISSES, .times = 1, .through = 1 },
	{ 0x2, HOME_NODE, .quantity = RP_CACHE_LOOKUPS, .times = 1, .through = 1 },
	{ 0xd, HOME_NODE, .quantity = RP_ACCESSED_LINES, .times = 1, .through = 1 },
	{}
};

/* One mesh for each socket, which counts for it alone. */
static const struct rp_uncore n1_uncore[] = {
	{ "arm_cmn", BIT(0), cmn_format, cmn_aliases, cmn_encoded, cmn_events, .of_one_node = true },
};

const struct rp_processor rp_neoverse_n1 = {
	.core = "armv8_pmuv3_0",
	.format = core_format,
	.aliases = core_aliases,
	.caps = core_caps,
	.events = n1_core,
	.cache_references = RP_COUNTS(MEM_ANY),
	.cache_misses = RP_COUNTS(L1_MISS),
	.uncore = n1_uncore,
	.uncore_kinds = ARRAY_SIZE(n1_uncore),
	.lists_cpus = true,
	.has_spe = true,
};
