/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How units lie where they are told to: see lies.c. */
#ifndef RONDPOINT_LIES_H
#define RONDPOINT_LIES_H

#include <linux/types.h>

enum rp_lie {
	RP_TRUTH,
	RP_ZERO, /* counts nothing */
	RP_TWICE, /* counts twice */
	RP_BYTES, /* counts bytes, 64 for a line */
	RP_CLOCK, /* counts time */
	RP_WRAP, /* falls back when its 48 bits are full */
	RP_SWAP, /* tells another node's count or address; local for remote */
	RP_ALL_LOCAL, /* counts remote accesses as local */
	RP_ALL_NODES, /* counts what all nodes do */
	RP_ONE_NODE, /* counts on node 0 alone */
	RP_MISSING, /* is not there */
};

/* How @unit lies now. */
enum rp_lie rp_lie_of(const char *unit);

/* What @unit makes of @count, or of a sample's physical address. */
u64 rp_lie_about(const char *unit, u64 count);
u64 rp_lie_about_address(const char *unit, u64 physical);

#endif
