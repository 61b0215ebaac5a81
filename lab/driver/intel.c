// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Intel's processors. Sources: Intel's public event lists for Skylake-SP, and
 * arch/x86/events/intel/{core,uncore_snbep}.c of Linux 6.12.
 *
 * The model counts demand loads and stores together where Intel's retired events
 * count loads alone.
 */
#include "processor.h"

static u64 encoded(u32 code, u32 umask)
{
	return code | umask << 8;
}

static const struct rp_text core_format[] = {
	{ "event", "config:0-7" },
	{ "umask", "config:8-15" },
	{ "edge", "config:18" },
	{ "pc", "config:19" },
	{ "any", "config:21" },
	{ "inv", "config:23" },
	{ "cmask", "config:24-31" },
	{ "in_tx", "config:32" },
	{ "in_tx_cp", "config:33" },
	{ "offcore_rsp", "config1:0-63" },
	{ "ldlat", "config1:0-15" },
	{}
};

static const struct rp_text core_aliases[] = {
	{ "cpu-cycles", "event=0x3c" },
	{ "instructions", "event=0xc0" },
	{ "ref-cycles", "event=0x00,umask=0x03" },
	{ "cache-references", "event=0x2e,umask=0x4f" },
	{ "cache-misses", "event=0x2e,umask=0x41" },
	{ "mem-loads", "event=0xcd,umask=0x1,ldlat=3" },
	{ "mem-stores", "event=0xd0,umask=0x82" },
	{}
};

static const struct rp_text core_caps[] = {
	{ "pmu_name", "skylake" },
	{ "max_precise", "3" },
	{}
};

#define CMASK(number) ((u64)(number) << 24)

static const struct rp_core_event skylake_core[] = {
	{ 0x003c, RP_COUNTS(CYCLES) },
	{ 0x00c0, RP_COUNTS(INSTRUCTIONS) },
	{ 0x0300, RP_COUNTS(REF_CYCLES) },
	{ 0x4f2e, RP_COUNTS(L2_MISS) }, /* LONGEST_LAT_CACHE.REFERENCE */
	{ 0x412e, RP_COUNTS(DRAM_READS) }, /* .MISS: prefetches too */
	{ 0x1ff1, RP_COUNTS(L2_MISS) }, /* L2_LINES_IN.ALL */
	{ 0x81d0, RP_COUNTS(LOADS) }, /* MEM_INST_RETIRED.ALL_LOADS */
	{ 0x82d0, RP_COUNTS(STORES) }, /* .ALL_STORES */
	{ 0x08d1, RP_COUNTS(L1_MISS) }, /* MEM_LOAD_RETIRED.L1_MISS */
	{ 0x10d1, RP_COUNTS(L2_MISS) }, /* .L2_MISS */
	{ 0x04d1, RP_COUNTS(LLC_HIT) }, /* .L3_HIT */
	{ 0x20d1, RP_COUNTS(LLC_MISS) }, /* .L3_MISS */
	{ 0x02d2, RP_COUNTS(LOCAL_FWD) }, /* MEM_LOAD_L3_HIT_RETIRED.XSNP_HIT */
	{ 0x04d2, RP_COUNTS(LOCAL_HITM) }, /* .XSNP_HITM */
	{ 0x01d3, RP_COUNTS(LOCAL_DRAM) }, /* MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM */
	{ 0x02d3, RP_COUNTS(REMOTE_DRAM) },
	{ 0x04d3, RP_COUNTS(REMOTE_HITM) },
	{ 0x08d3, RP_COUNTS(REMOTE_FWD) },
	{ 0x01a3 | CMASK(1), RP_COUNTS(STALL_CYCLES) }, /* CYCLE_ACTIVITY.CYCLES_L2_MISS */
	{ 0x01cd, RP_COUNTS(LOADS), .has_latency = true }, /* MEM_TRANS_RETIRED.LOAD_LATENCY */
	{}
};

#define MIB_PER_LINE "6.103515625e-5"

static const struct rp_text imc_format[] = {
	{ "event", "config:0-7" },
	{ "umask", "config:8-15" },
	{ "edge", "config:18" },
	{ "inv", "config:23" },
	{ "thresh", "config:24-31" },
	{}
};

static const struct rp_text imc_aliases[] = {
	{ "cas_count_read", "event=0x04,umask=0x03" },
	{ "cas_count_read.scale", MIB_PER_LINE },
	{ "cas_count_read.unit", "MiB" },
	{ "cas_count_write", "event=0x04,umask=0x0c" },
	{ "cas_count_write.scale", MIB_PER_LINE },
	{ "cas_count_write.unit", "MiB" },
	{}
};

static const struct rp_uncore_event imc_events[] = {
	{ 0x04, 0x03, .quantity = RP_READ_LINES, .times = 1, .through = 1 },
	{ 0x04, 0x0c, .quantity = RP_WRITTEN_LINES, .times = 1, .through = 1 },
	{ 0x04, 0x0f, .quantity = RP_ACCESSED_LINES, .times = 1, .through = 1 },
	{}
};

static const struct rp_text cha_format[] = {
	{ "event", "config:0-7" },
	{ "umask", "config:8-15" },
	{ "edge", "config:18" },
	{ "tid_en", "config:19" },
	{ "inv", "config:23" },
	{ "thresh", "config:24-31" },
	{ "filter_tid4", "config1:0-8" },
	{ "filter_state5", "config1:17-26" },
	{ "filter_rem", "config1:32" },
	{ "filter_loc", "config1:33" },
	{ "filter_nm", "config1:36" },
	{ "filter_all_op", "config1:35" },
	{ "filter_not_nm", "config1:37" },
	{ "filter_opc_0", "config1:41-50" },
	{ "filter_opc_1", "config1:51-60" },
	{ "filter_nc", "config1:62" },
	{ "filter_isoc", "config1:63" },
	{}
};

/* Opcodes 0x202 and, in the second place, 0x80 (any): data reads, demand and prefetch. */
#define DATA_READS 0x4043000000000ULL
#define OF_REMOTE BIT_ULL(32)
#define OF_LOCAL BIT_ULL(33)

static const struct rp_uncore_event cha_events[] = {
	{ 0x35, 0x21, DATA_READS | OF_LOCAL, RP_FETCHED_LOCAL, 1, 1 }, /* TOR_INSERTS.IA_MISS */
	{ 0x35, 0x21, DATA_READS | OF_REMOTE, RP_FETCHED_REMOTE, 1, 1 },
	{ 0x50, 0x01, .quantity = RP_HOME_READS_LOCAL, .times = 1, .through = 1 }, /* REQUESTS */
	{ 0x50, 0x02, .quantity = RP_HOME_READS_REMOTE, .times = 1, .through = 1 },
	{ 0x50, 0x04, .quantity = RP_HOME_WRITES_LOCAL, .times = 1, .through = 1 },
	{ 0x50, 0x08, .quantity = RP_HOME_WRITES_REMOTE, .times = 1, .through = 1 },
	{}
};

static const struct rp_text upi_format[] = {
	{ "event", "config:0-7" },
	{ "umask", "config:8-15,32-43,45-55" },
	{ "edge", "config:18" },
	{ "inv", "config:23" },
	{ "thresh", "config:24-31" },
	{}
};

/* A line of 64 bytes is nine flits with their headers, as Intel's own metric has it. */
static const struct rp_uncore_event upi_events[] = {
	{ 0x02, 0x0f, .quantity = RP_SENT_BYTES, .times = 9, .through = 64 }, /* TxL_FLITS.ALL_DATA */
	{ 0x03, 0x0f, .quantity = RP_RECEIVED_BYTES, .times = 9, .through = 64 },
	{}
};

/* Caching agents have gaps in their numbers where cores are fused off. */
static const struct rp_uncore skylake_uncore[] = {
	{ "uncore_imc", 0x3f, imc_format, imc_aliases, encoded, imc_events },
	{ "uncore_cha", 0x1b, cha_format, NULL, encoded, cha_events },
	{ "uncore_upi", 0x07, upi_format, NULL, encoded, upi_events },
};

const struct rp_processor rp_skylake_sp = {
	.core = "cpu",
	.format = core_format,
	.aliases = core_aliases,
	.caps = core_caps,
	.events = skylake_core,
	.cache_references = RP_COUNTS(L2_MISS),
	.cache_misses = RP_COUNTS(DRAM_READS),
	.uncore = skylake_uncore,
	.uncore_kinds = ARRAY_SIZE(skylake_uncore),
};
