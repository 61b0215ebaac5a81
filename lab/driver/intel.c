// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Intel's processors. Sources: Intel's public event lists for Nehalem-EP, Ivy Bridge-EP
 * and Skylake-SP, and arch/x86/events/intel/{core,uncore_snb,uncore_snbep}.c of Linux
 * 6.12.
 *
 * The model counts demand loads and stores together where Intel's retired events
 * count loads alone. Samples tell their source as Skylake's do: see data_source.c.
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

static const struct rp_text ivybridge_caps[] = {
	{ "pmu_name", "ivybridge" },
	{ "max_precise", "3" },
	{}
};

static const struct rp_core_event ivybridge_core[] = {
	{ 0x003c, RP_COUNTS(CYCLES) },
	{ 0x00c0, RP_COUNTS(INSTRUCTIONS) },
	{ 0x0300, RP_COUNTS(REF_CYCLES) },
	{ 0x4f2e, RP_COUNTS(L2_MISS) },
	{ 0x412e, RP_COUNTS(DRAM_READS) },
	{ 0x07f1, RP_COUNTS(L2_MISS) }, /* L2_LINES_IN.ALL */
	{ 0x81d0, RP_COUNTS(LOADS) }, /* MEM_UOPS_RETIRED.ALL_LOADS */
	{ 0x82d0, RP_COUNTS(STORES) }, /* .ALL_STORES */
	{ 0x04d1, RP_COUNTS(LLC_HIT) }, /* MEM_LOAD_UOPS_RETIRED.LLC_HIT */
	{ 0x20d1, RP_COUNTS(LLC_MISS) }, /* .LLC_MISS */
	{ 0x02d2, RP_COUNTS(LOCAL_FWD) }, /* MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_HIT */
	{ 0x04d2, RP_COUNTS(LOCAL_HITM) }, /* .XSNP_HITM */
	{ 0x03d3, RP_COUNTS(LOCAL_DRAM) }, /* MEM_LOAD_UOPS_LLC_MISS_RETIRED.LOCAL_DRAM */
	{ 0x0cd3, RP_COUNTS(REMOTE_DRAM) },
	{ 0x10d3, RP_COUNTS(REMOTE_HITM) },
	{ 0x20d3, RP_COUNTS(REMOTE_FWD) },
	{ 0x01a3 | CMASK(1), RP_COUNTS(STALL_CYCLES) }, /* CYCLE_ACTIVITY.CYCLES_L2_PENDING */
	{ 0x01cd, RP_COUNTS(LOADS), .has_latency = true }, /* MEM_TRANS_RETIRED.LOAD_LATENCY */
	{ 0x02cd, RP_COUNTS(STORES) }, /* .PRECISE_STORE */
	{}
};

static const struct rp_text ring_format[] = {
	{ "event", "config:0-7" },
	{ "umask", "config:8-15" },
	{ "edge", "config:18" },
	{ "thresh", "config:24-31" },
	{}
};

static const struct rp_uncore_event home_agent_events[] = {
	{ 0x01, 0x01, .quantity = RP_HOME_READS_LOCAL, .times = 1, .through = 1 }, /* REQUESTS */
	{ 0x01, 0x02, .quantity = RP_HOME_READS_REMOTE, .times = 1, .through = 1 },
	{ 0x01, 0x04, .quantity = RP_HOME_WRITES_LOCAL, .times = 1, .through = 1 },
	{ 0x01, 0x08, .quantity = RP_HOME_WRITES_REMOTE, .times = 1, .through = 1 },
	{}
};

static const struct rp_uncore_event cbox_events[] = {
	{ 0x35, 0x2a, .quantity = RP_FETCHED_LOCAL, .times = 1, .through = 1 }, /* TOR_INSERTS */
	{ 0x35, 0x8a, .quantity = RP_FETCHED_REMOTE, .times = 1, .through = 1 },
	{}
};

static const struct rp_text qpi_format[] = {
	{ "event", "config:0-7,21" },
	{ "umask", "config:8-15" },
	{ "edge", "config:18" },
	{ "thresh", "config:24-31" },
	{}
};

static const struct rp_text qpi_aliases[] = {
	{ "drs_data", "event=0x102,umask=0x08" },
	{ "ncb_data", "event=0x103,umask=0x04" },
	{}
};

static u64 qpi_encoded(u32 code, u32 umask)
{
	return (code & 0xff) | umask << 8 | (u64)(code >> 8) << 21;
}

/* A flit carries eight bytes of data. The model has no traffic but coherent lines. */
static const struct rp_uncore_event qpi_events[] = {
	{ 0x100, 0x08, .quantity = RP_SENT_BYTES, .times = 1, .through = 8 }, /* TxL, DRS data */
	{ 0x101, 0x04, .quantity = RP_NOTHING, .times = 1, .through = 1 }, /* TxL, NCB data */
	{ 0x102, 0x08, .quantity = RP_RECEIVED_BYTES, .times = 1, .through = 8 },
	{ 0x103, 0x04, .quantity = RP_NOTHING, .times = 1, .through = 1 },
	{}
};

static const struct rp_uncore ivybridge_uncore[] = {
	{ "uncore_imc", 0x0f, ring_format, imc_aliases, encoded, imc_events },
	{ "uncore_ha", 0x01, ring_format, NULL, encoded, home_agent_events },
	{ "uncore_cbox", 0x3ff, ring_format, NULL, encoded, cbox_events },
	{ "uncore_qpi", 0x03, qpi_format, qpi_aliases, qpi_encoded, qpi_events },
};

const struct rp_processor rp_ivybridge_ep = {
	.core = "cpu",
	.format = core_format,
	.aliases = core_aliases,
	.caps = ivybridge_caps,
	.events = ivybridge_core,
	.cache_references = RP_COUNTS(L2_MISS),
	.cache_misses = RP_COUNTS(DRAM_READS),
	.uncore = ivybridge_uncore,
	.uncore_kinds = ARRAY_SIZE(ivybridge_uncore),
};

static const struct rp_text nehalem_aliases[] = {
	{ "cpu-cycles", "event=0x3c" },
	{ "instructions", "event=0xc0" },
	{ "cache-references", "event=0x2e,umask=0x4f" },
	{ "cache-misses", "event=0x2e,umask=0x41" },
	{ "mem-loads", "event=0x0b,umask=0x10,ldlat=3" },
	{}
};

static const struct rp_text nehalem_caps[] = {
	{ "pmu_name", "nehalem" },
	{ "max_precise", "2" },
	{}
};

/* Modified lines of the other socket count by their home; the model takes them for remote ones. */
static const struct rp_core_event nehalem_core[] = {
	{ 0x003c, RP_COUNTS(CYCLES) },
	{ 0x00c0, RP_COUNTS(INSTRUCTIONS) },
	{ 0x0300, RP_COUNTS(REF_CYCLES) },
	{ 0x4f2e, RP_COUNTS(L2_MISS) },
	{ 0x412e, RP_COUNTS(DRAM_READS) },
	{ 0x07f1, RP_COUNTS(L2_MISS) }, /* L2_LINES_IN.ANY */
	{ 0x010b, RP_COUNTS(LOADS) }, /* MEM_INST_RETIRED.LOADS */
	{ 0x020b, RP_COUNTS(STORES) }, /* .STORES */
	{ 0x04cb, RP_COUNTS(LLC_HIT) }, /* MEM_LOAD_RETIRED.LLC_UNSHARED_HIT */
	{ 0x10cb, RP_COUNTS(LLC_MISS) }, /* .LLC_MISS */
	{ 0x020f, RP_COUNTS(LOCAL_HITM) }, /* MEM_UNCORE_RETIRED.OTHER_CORE_L2_HITM */
	{ 0x080f, RP_COUNTS(REMOTE_FWD) }, /* .REMOTE_CACHE_LOCAL_HOME_HIT */
	{ 0x100f, RP_COUNTS(REMOTE_DRAM) | RP_COUNTS(REMOTE_HITM) }, /* .REMOTE_DRAM */
	{ 0x200f, RP_COUNTS(LOCAL_DRAM) }, /* .LOCAL_DRAM */
	{ 0x100b, RP_COUNTS(LOADS), .has_latency = true }, /* MEM_INST_RETIRED.LATENCY_... */
	{}
};

static const struct rp_text nehalem_uncore_format[] = {
	{ "event", "config:0-7" },
	{ "umask", "config:8-15" },
	{ "edge", "config:18" },
	{ "inv", "config:23" },
	{ "cmask", "config:24-31" },
	{}
};

static const struct rp_text nehalem_uncore_aliases[] = {
	{ "qmc_writes_full_any", "event=0x2f,umask=0x0f" },
	{ "qmc_normal_reads_any", "event=0x2c,umask=0x0f" },
	{ "qhl_request_remote_reads", "event=0x20,umask=0x04" },
	{ "qhl_request_remote_writes", "event=0x20,umask=0x08" },
	{ "qhl_request_local_reads", "event=0x20,umask=0x10" },
	{ "qhl_request_local_writes", "event=0x20,umask=0x20" },
	{}
};

static const struct rp_uncore_event nehalem_uncore_events[] = {
	{ 0x2c, 0x0f, .quantity = RP_READ_LINES, .times = 1, .through = 1 },
	{ 0x2f, 0x0f, .quantity = RP_WRITTEN_LINES, .times = 1, .through = 1 },
	{ 0x20, 0x04, .quantity = RP_HOME_READS_REMOTE, .times = 1, .through = 1 },
	{ 0x20, 0x08, .quantity = RP_HOME_WRITES_REMOTE, .times = 1, .through = 1 },
	{ 0x20, 0x10, .quantity = RP_HOME_READS_LOCAL, .times = 1, .through = 1 },
	{ 0x20, 0x20, .quantity = RP_HOME_WRITES_LOCAL, .times = 1, .through = 1 },
	{}
};

/* One unit counts for controllers, home logic and links of its socket together. */
static const struct rp_uncore nehalem_uncore[] = {
	{ "uncore", 0, nehalem_uncore_format, nehalem_uncore_aliases, encoded,
	  nehalem_uncore_events },
};

const struct rp_processor rp_nehalem_ep = {
	.core = "cpu",
	.format = core_format,
	.aliases = nehalem_aliases,
	.caps = nehalem_caps,
	.events = nehalem_core,
	.cache_references = RP_COUNTS(L2_MISS),
	.cache_misses = RP_COUNTS(DRAM_READS),
	.uncore = nehalem_uncore,
	.uncore_kinds = ARRAY_SIZE(nehalem_uncore),
};
