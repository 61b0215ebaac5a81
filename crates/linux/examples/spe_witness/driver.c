// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Hands blocks of bytes to the kernel's SPE packet decoder, which is compiled
 * with it from the kernel's sources (tools/perf/util/arm-spe-decoder), and
 * prints what it finds.  A test's tool; nothing of it is shipped.
 *
 * stdin: a length of 32 bits and as many bytes, again and again.
 * stdout: for each packet but padding `type index payload`, `bad OFFSET` where
 * the decoder gives up, and `end` behind each block.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "arm-spe-pkt-decoder.h"

/* Alignment packets count from the address: the largest alignment is 64 KiB. */
static unsigned char block[1 << 20] __attribute__((aligned(1 << 16)));

int main(void)
{
	uint32_t length;

	while (fread(&length, sizeof(length), 1, stdin) == 1) {
		size_t at = 0;

		if (length > sizeof(block) || fread(block, 1, length, stdin) != length)
			return 1;
		while (at < length) {
			struct arm_spe_pkt packet;
			int size = arm_spe_get_packet(block + at, length - at, &packet);

			if (size <= 0) {
				printf("bad %zu\n", at);
				break;
			}
			if (packet.type != ARM_SPE_PAD)
				printf("%d %d %llx\n", packet.type, packet.index,
				       (unsigned long long)packet.payload);
			at += size;
		}
		puts("end");
		fflush(stdout);
	}
	return 0;
}
