// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the model says about an access, in the words of the vendor that the machine
 * file names. The encodings are those of real processors, gaps and ambiguities
 * included: stores without a source, remote DRAM that cannot be told from a remote
 * cache. A decoder has to live with them.
 *
 *   Intel: Skylake server and later; pebs_data_source[] with the _skl changes in
 *          arch/x86/events/intel/ds.c of Linux 6.12.
 *   AMD:   IBS of Zen 4; g_zen4_data_src[] in arch/x86/events/amd/ibs.c.
 *   Arm:   SPE of Neoverse, as perf decodes it in tools/perf/util/arm-spe.c.
 *
 * The model has no TLB, so the TLB field says "not available" throughout.
 */
#include "rondpoint_pmu.h"

#define P(field, value) PERF_MEM_S(field, value)
#define HIT(level) (P(LVL, HIT) | P(LVL, level))
#define NUM(level) P(LVLNUM, level)
#define REMOTE P(REMOTE, REMOTE)
#define NONE_KNOWN (P(LVL, NA) | NUM(NA))

static const u64 intel_load[] = {
	[RP_SOURCE_L1] = HIT(L1) | NUM(L1) | P(SNOOP, NONE),
	[RP_SOURCE_L2] = HIT(L2) | NUM(L2) | P(SNOOP, NONE),
	[RP_SOURCE_LLC] = HIT(L3) | NUM(L3) | P(SNOOP, NONE),
	[RP_SOURCE_LOCAL_FWD] = HIT(L3) | NUM(L3) | P(SNOOP, HIT),
	[RP_SOURCE_LOCAL_HITM] = HIT(L3) | NUM(L3) | P(SNOOP, HITM),
	[RP_SOURCE_REMOTE_FWD] = P(LVL, HIT) | NUM(ANY_CACHE) | REMOTE | P(SNOOPX, FWD),
	[RP_SOURCE_REMOTE_HITM] = P(LVL, HIT) | NUM(ANY_CACHE) | REMOTE | P(SNOOP, HITM),
	[RP_SOURCE_LOCAL_DRAM] = HIT(LOC_RAM) | NUM(RAM) | P(SNOOP, HIT),
	[RP_SOURCE_REMOTE_DRAM] = P(LVL, HIT) | NUM(RAM) | REMOTE | P(SNOOP, NONE),
	[RP_SOURCE_IN_FLIGHT] = HIT(LFB) | NUM(LFB) | P(SNOOP, NONE),
};

/* Zen 4 calls another cache complex of the same node REMOTE with HOPS_0. */
#define NEAR_COMPLEX (HIT(REM_CCE1) | NUM(ANY_CACHE) | REMOTE | P(HOPS, 0))
#define FAR_COMPLEX (HIT(REM_CCE2) | NUM(ANY_CACHE) | REMOTE | P(HOPS, 1))

static const u64 amd_load[] = {
	[RP_SOURCE_L1] = HIT(L1) | NUM(L1) | P(SNOOP, NA),
	[RP_SOURCE_L2] = HIT(L2) | NUM(L2) | P(SNOOP, NA),
	[RP_SOURCE_LLC] = HIT(L3) | NUM(L3) | P(SNOOP, NA),
	[RP_SOURCE_LOCAL_FWD] = HIT(L3) | NUM(L3) | P(SNOOP, NA),
	[RP_SOURCE_LOCAL_HITM] = HIT(L3) | NUM(L3) | P(SNOOP, HITM),
	[RP_SOURCE_REMOTE_FWD] = FAR_COMPLEX | P(SNOOP, NA),
	[RP_SOURCE_REMOTE_HITM] = FAR_COMPLEX | P(SNOOP, HITM),
	[RP_SOURCE_LOCAL_DRAM] = HIT(LOC_RAM) | NUM(RAM) | P(SNOOP, NA),
	[RP_SOURCE_REMOTE_DRAM] = HIT(REM_RAM1) | NUM(RAM) | REMOTE | P(HOPS, 1) | P(SNOOP, NA),
	[RP_SOURCE_IN_FLIGHT] = HIT(LFB) | NUM(LFB) | P(SNOOP, NA),
};

/* Source 0xd, "remote", covers remote DRAM and remote caches alike. */
#define SPE_REMOTE (NONE_KNOWN | REMOTE | P(SNOOPX, PEER))

static const u64 arm_load[] = {
	[RP_SOURCE_L1] = HIT(L1) | NUM(L1) | P(SNOOP, NONE),
	[RP_SOURCE_L2] = HIT(L2) | NUM(L2) | P(SNOOP, NONE),
	[RP_SOURCE_LLC] = HIT(L3) | NUM(L3) | P(SNOOP, HIT),
	[RP_SOURCE_LOCAL_FWD] = HIT(L3) | NUM(L3) | P(SNOOPX, PEER),
	[RP_SOURCE_LOCAL_HITM] = HIT(L3) | NUM(L3) | P(SNOOPX, PEER),
	[RP_SOURCE_REMOTE_FWD] = SPE_REMOTE,
	[RP_SOURCE_REMOTE_HITM] = SPE_REMOTE,
	[RP_SOURCE_LOCAL_DRAM] = HIT(LOC_RAM) | NUM(RAM) | P(SNOOP, NONE),
	[RP_SOURCE_REMOTE_DRAM] = SPE_REMOTE,
	[RP_SOURCE_IN_FLIGHT] = P(LVL, MISS) | P(LVL, L1) | NUM(NA) | P(SNOOP, NA),
};

static u64 intel(u64 source, u64 flags)
{
	/* A sampled store tells no more than whether the first level had the line. */
	if (flags & RP_FLAG_STORE_MASK)
		return P(LVL, L1) | NUM(NA) | P(SNOOP, NA) |
		       (source == RP_SOURCE_L1 ? P(LVL, HIT) : P(LVL, MISS));
	return intel_load[source];
}

static u64 amd(u64 source, u64 flags)
{
	u64 near_snoop = source == RP_SOURCE_LOCAL_HITM ? P(SNOOP, HITM) : P(SNOOP, NA);

	/* OP_DATA2, the source, is valid for loads only; L1 and L2 hits are known. */
	if ((flags & RP_FLAG_STORE_MASK) &&
	    source != RP_SOURCE_L1 && source != RP_SOURCE_L2)
		return NONE_KNOWN | P(SNOOP, NA);
	if ((flags & RP_FLAG_OTHER_DOMAIN_MASK) &&
	    (source == RP_SOURCE_LOCAL_FWD || source == RP_SOURCE_LOCAL_HITM))
		return NEAR_COMPLEX | near_snoop;
	return amd_load[source];
}

static u64 arm(u64 source, u64 flags)
{
	if (flags & RP_FLAG_STORE_MASK)
		return NONE_KNOWN | P(SNOOP, NA);
	return arm_load[source];
}

/* perf_mem_data_src of one ring entry; @source without the node bits. */
u64 rp_data_source(u64 source, u64 flags)
{
	u64 common = P(OP, LOAD) | P(TLB, NA) | P(LOCK, NA);

	if (source == RP_SOURCE_NONE || source >= ARRAY_SIZE(intel_load))
		return PERF_MEM_NA;
	if (flags & RP_FLAG_STORE_MASK)
		common = P(OP, STORE) | P(TLB, NA) | P(LOCK, NA);
	if (flags & RP_FLAG_LOCKED_MASK)
		common = (common & ~P(LOCK, NA)) | P(LOCK, LOCKED);

	switch (rp_load(RP_HEADER_VENDOR)) {
	case RP_VENDOR_AMD:
		return common | amd(source, flags);
	case RP_VENDOR_ARM:
		return common | arm(source, flags);
	default:
		return common | intel(source, flags);
	}
}
