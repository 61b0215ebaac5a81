/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The least of perf_event_open() that pmu_check.c needs: opening, reading counts
 * with their times, and taking samples of one fixed shape out of a ring.
 */
#ifndef RONDPOINT_PMU_CHECK_PERF_H
#define RONDPOINT_PMU_CHECK_PERF_H

#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RING_PAGES 256 /* of data; a power of two; about 14000 samples */

struct count {
	uint64_t value, enabled, running;
};

/* PERF_RECORD_SAMPLE with SAMPLE_SHAPE. */
#define SAMPLE_SHAPE                                                                     \
	(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR |         \
	 PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_WEIGHT | PERF_SAMPLE_DATA_SRC | \
	 PERF_SAMPLE_PHYS_ADDR)

struct sample {
	struct perf_event_header header;
	uint64_t ip;
	uint32_t pid, tid;
	uint64_t time, addr;
	uint32_t cpu, reserved;
	uint64_t period, weight, data_src, phys_addr;
};

struct ring {
	int fd;
	struct perf_event_mmap_page *page;
	uint64_t lost, throttled, unthrottled, samples;
};

static inline struct perf_event_attr attr_of(uint32_t type, uint64_t config)
{
	struct perf_event_attr attr = { .size = sizeof(attr), .type = type, .config = config };

	attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
	return attr;
}

static inline int perf_open(struct perf_event_attr *attr, pid_t pid, int cpu, int group)
{
	return syscall(SYS_perf_event_open, attr, pid, cpu, group, PERF_FLAG_FD_CLOEXEC);
}

static inline int must_open(struct perf_event_attr *attr, pid_t pid, int cpu, int group)
{
	int fd = perf_open(attr, pid, cpu, group);

	if (fd < 0) {
		printf("cannot open event %#llx of type %u (pid %d, cpu %d): %s\n",
		       (unsigned long long)attr->config, attr->type, pid, cpu, strerror(errno));
		exit(2);
	}
	return fd;
}

static inline struct count count_of(int fd)
{
	struct count count = { 0 };

	if (read(fd, &count, sizeof(count)) != sizeof(count)) {
		perror("reading a count");
		exit(2);
	}
	return count;
}

static inline struct ring ring_of(int fd)
{
	size_t bytes = (RING_PAGES + 1) * (size_t)sysconf(_SC_PAGESIZE);
	struct ring ring = { .fd = fd };

	ring.page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring.page == MAP_FAILED) {
		perror("mapping a ring");
		exit(2);
	}
	return ring;
}

static inline void ring_free(struct ring *ring)
{
	munmap(ring->page, (RING_PAGES + 1) * (size_t)sysconf(_SC_PAGESIZE));
	close(ring->fd);
}

/* Copies @size bytes at ring position @at, which may wrap. */
static inline void ring_copy(struct ring *ring, uint64_t at, void *to, size_t size)
{
	const char *data = (const char *)ring->page + ring->page->data_offset;
	uint64_t mask = ring->page->data_size - 1;

	for (size_t i = 0; i < size; i++)
		((char *)to)[i] = data[(at + i) & mask];
}

/* The next sample, counting the other records passed over; 0 at the end. */
static inline int ring_next(struct ring *ring, struct sample *sample)
{
	uint64_t head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = ring->page->data_tail;

	while (tail < head) {
		struct perf_event_header header;
		uint64_t body[2];

		ring_copy(ring, tail, &header, sizeof(header));
		if (header.type == PERF_RECORD_SAMPLE)
			ring_copy(ring, tail, sample, sizeof(*sample));
		if (header.type == PERF_RECORD_LOST) {
			ring_copy(ring, tail + sizeof(header), body, sizeof(body));
			ring->lost += body[1];
		}
		ring->throttled += header.type == PERF_RECORD_THROTTLE;
		ring->unthrottled += header.type == PERF_RECORD_UNTHROTTLE;
		tail += header.size;
		__atomic_store_n(&ring->page->data_tail, tail, __ATOMIC_RELEASE);
		if (header.type == PERF_RECORD_SAMPLE) {
			ring->samples++;
			return 1;
		}
	}
	return 0;
}

#endif
