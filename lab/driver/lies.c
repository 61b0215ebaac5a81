// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Lies on demand: what firmware, hypervisors and wrong tables do to counters, so
 * that a check of counters can be checked.  Off until somebody writes two words to
 * /sys/module/rondpoint_pmu/parameters/lie, a kind and how the units' names begin:
 *
 *     echo "zero uncore_imc_2" > /sys/module/rondpoint_pmu/parameters/lie
 *     echo none > /sys/module/rondpoint_pmu/parameters/lie
 *
 * Events that are open meanwhile jump; open them afterwards. A unit that is missing is
 * taken from sysfs under its whole name; none of its events may be open.
 */
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/module.h>
#include <linux/string.h>

#include "lies.h"
#include "processor.h"

static const char *const kinds[] = {
	[RP_TRUTH] = "none",
	[RP_ZERO] = "zero",
	[RP_TWICE] = "twice",
	[RP_BYTES] = "bytes",
	[RP_CLOCK] = "clock",
	[RP_WRAP] = "wrap",
	[RP_SWAP] = "swap",
	[RP_ALL_LOCAL] = "all-local",
	[RP_ALL_NODES] = "all-nodes",
	[RP_ONE_NODE] = "one-node",
	[RP_MISSING] = "missing",
};

#define UNIT_NAME 32

static enum rp_lie lie;
static char units[UNIT_NAME];

static int lie_set(const char *text, const struct kernel_param *parameter)
{
	char kind[16] = "", unit[UNIT_NAME] = "";
	int number;

	if (sscanf(text, "%15s %31s", kind, unit) < 1)
		return -EINVAL;
	number = match_string(kinds, ARRAY_SIZE(kinds), kind);
	if (number < 0 || (number != RP_TRUTH && !*unit))
		return -EINVAL;
	lie = RP_TRUTH;
	strscpy(units, unit, sizeof(units));
	lie = number;
	rp_uncore_hide(number == RP_MISSING ? unit : "");
	return 0;
}

static int lie_get(char *page, const struct kernel_param *parameter)
{
	return sysfs_emit(page, "%s %s\n", kinds[lie], units);
}

static const struct kernel_param_ops lie_operations = {
	.set = lie_set,
	.get = lie_get,
};
module_param_cb(lie, &lie_operations, NULL, 0644);
MODULE_PARM_DESC(lie, "how units lie, for checks of checks: KIND UNIT, or none");

enum rp_lie rp_lie_of(const char *unit)
{
	return lie != RP_TRUTH && !strncmp(unit, units, strlen(units)) ? lie : RP_TRUTH;
}

/* 48 bits are what counters have; the bit that stands for their overflow comes soon. */
#define WRAP_AFTER BIT_ULL(16)
#define WRAP_BY BIT_ULL(48)
/* As many counts a second as a busy node's memory has lines. */
#define CLOCK_SHIFT 4

u64 rp_lie_about(const char *unit, u64 count)
{
	switch (rp_lie_of(unit)) {
	case RP_ZERO:
		return 0;
	case RP_TWICE:
		return 2 * count;
	case RP_BYTES:
		return 64 * count;
	case RP_CLOCK:
		return ktime_get_mono_fast_ns() >> CLOCK_SHIFT;
	case RP_WRAP:
		return count - (count / WRAP_AFTER) * WRAP_BY;
	default:
		return count;
	}
}

u64 rp_lie_about_address(const char *unit, u64 physical)
{
	int other;

	if (rp_lie_of(unit) != RP_SWAP || !pfn_valid(physical >> PAGE_SHIFT))
		return physical;
	other = next_online_node(pfn_to_nid(physical >> PAGE_SHIFT));
	if (other == MAX_NUMNODES)
		other = first_online_node;
	return (u64)node_start_pfn(other) << PAGE_SHIFT | (physical & ~PAGE_MASK);
}
