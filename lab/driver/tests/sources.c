// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Where samples say that they were served from. Cases are memory of the own node,
 * memory of another, and the source of a store, in the words of the machine file's
 * maker. The words are those of data_source.c, written down once more.
 */
#define _GNU_SOURCE
#include "check.h"

#define REGION_BYTES (64UL << 20) /* far more than any lab machine's caches */
#define TOUCHES 60000
/* Some 10,000 samples a second: above 100,000 the kernel throttles (kernel.perf_event_max_sample_rate). */
#define SLOW_PERIOD 127
#define SLOW_CYCLES 100 /* above every last level, below every memory */

/* The fields of perf_mem_data_src that tell sources apart. */
struct words {
	uint64_t lvl, num, remote, snoopx, hops;
};

#define LVL(name) PERF_MEM_LVL_##name
#define NUM(name) PERF_MEM_LVLNUM_##name

static const struct {
	const char *maker;
	struct words local, remote, store;
} makers[] = {
	{ "intel",
	  .local = { LVL(HIT) | LVL(LOC_RAM), NUM(RAM), 0, 0, 0 },
	  .remote = { LVL(HIT), NUM(RAM), 1, 0, 0 },
	  .store = { LVL(MISS) | LVL(L1), NUM(NA), 0, 0, 0 } },
	{ "amd",
	  .local = { LVL(HIT) | LVL(LOC_RAM), NUM(RAM), 0, 0, 0 },
	  .remote = { LVL(HIT) | LVL(REM_RAM1), NUM(RAM), 1, 0, 2 },
	  .store = { LVL(NA), NUM(NA), 0, 0, 0 } },
	{ "arm",
	  .local = { LVL(HIT) | LVL(LOC_RAM), NUM(RAM), 0, 0, 0 },
	  .remote = { LVL(NA), NUM(NA), 1, PERF_MEM_SNOOPX_PEER, 0 },
	  .store = { LVL(NA), NUM(NA), 0, 0, 0 } },
};

static int says(const struct sample *sample, const struct words *words)
{
	union perf_mem_data_src source = { .val = sample->data_src };

	return source.mem_lvl == words->lvl && source.mem_lvl_num == words->num &&
	       source.mem_remote == words->remote && source.mem_snoopx == words->snoopx &&
	       source.mem_hops == words->hops;
}

/* Memory of @node alone, present. */
static char *region_on(unsigned int node)
{
	unsigned long mask = 1UL << node;
	char *region = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (region == MAP_FAILED ||
	    syscall(SYS_mbind, region, REGION_BYTES, 2 /* MPOL_BIND */, &mask, 65, 0)) {
		perror("memory on a node");
		exit(2);
	}
	memset(region, 1, REGION_BYTES);
	return region;
}

/* Slow accesses to memory of @node, all but a few of which must say @words. */
static void touch(const char *what, unsigned int node, uint64_t event, const struct words *words)
{
	struct perf_event_attr attr = sampling_attr(event, SLOW_PERIOD);
	volatile char *region = region_on(node);
	uint64_t inside = 0, right = 0, state = 1, other = 0;
	struct sample sample;
	volatile char sum = 0;

	attr.config1 = SLOW_CYCLES;
	struct ring ring = ring_of(must_open(&attr, 0, -1, -1));

	for (int i = 0; i < TOUCHES; i++) {
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		if (event == RP_EVENT_STORES)
			region[(state >> 33) % REGION_BYTES] = 2;
		else
			sum += region[(state >> 33) % REGION_BYTES];
	}
	ioctl(ring.fd, PERF_EVENT_IOC_DISABLE, 0);
	while (ring_next(&ring, &sample)) {
		if (sample.addr - (uint64_t)region >= REGION_BYTES)
			continue;
		inside++;
		if (says(&sample, words))
			right++;
		else
			other = sample.data_src;
	}
	EXPECT(inside > TOUCHES / SLOW_PERIOD / 2, "%s: %lu samples of slow accesses", what, inside);
	EXPECT(right >= 0.95 * inside, "%s: %lu of %lu say so; one says %#lx", what, right, inside,
	       other);
	ring_free(&ring);
	munmap((void *)region, REGION_BYTES);
}

void data_sources(void)
{
	unsigned int cpu, own;
	FILE *file = fopen("/sys/bus/event_source/devices/model/caps/data_source", "r");
	char maker[16] = "";

	if (!file || fscanf(file, "%15s", maker) != 1 || getcpu(&cpu, &own)) {
		perror("caps/data_source");
		exit(2);
	}
	fclose(file);
	for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
		if (strcmp(makers[i].maker, maker))
			continue;
		touch("own node", own, RP_EVENT_LOADS, &makers[i].local);
		touch("other node", own ? 0 : 1, RP_EVENT_LOADS, &makers[i].remote);
		touch("store", own ? 0 : 1, RP_EVENT_STORES, &makers[i].store);
		return;
	}
	EXPECT(0, "no maker \"%s\"", maker);
}
