// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Samples: each in its place, none missing, and what the kernel does to a process
 * that asks for too many.
 */
#define _GNU_SOURCE
#include "check.h"

/* The page of @address as the kernel knows it, or 0. */
static uint64_t physical(uint64_t address)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry = 0;

	if (fd < 0 || pread(fd, &entry, 8, address / 4096 * 8) != 8)
		entry = 0;
	close(fd);
	return (entry & ((1ULL << 55) - 1)) * 4096;
}

/* One thread, one event: every sample in place, none missing. */
void samples(void)
{
	struct perf_event_attr attr = sampling_attr(RP_EVENT_LOADS, PERIOD);
	struct ring ring = ring_of(must_open(&attr, 0, -1, -1));
	uint64_t outside = 0, wrong = 0, physical_wrong = 0, late = 0, last = 0, total;
	uint64_t loops = 30 * LOOPS, page = physical((uint64_t)buffer);
	struct sample sample;

	load_loop(loops);
	ioctl(ring.fd, PERF_EVENT_IOC_DISABLE, 0);
	total = count_of(ring.fd).value;
	while (ring_next(&ring, &sample)) {
		union perf_mem_data_src source = { .val = sample.data_src };

		wrong += sample.tid != (uint32_t)gettid() || sample.cpu != 0 ||
			 sample.period != PERIOD || source.mem_op != PERF_MEM_OP_LOAD;
		outside += sample.addr != (uint64_t)buffer ||
			   sample.ip < (uint64_t)loop_begin || sample.ip >= (uint64_t)loop_end ||
			   (precise && sample.ip != (uint64_t)loop_begin);
		physical_wrong += sample.addr == (uint64_t)buffer && page && sample.phys_addr != page;
		late += sample.time < last;
		last = sample.time;
	}
	EXPECT(near_above(total, loops, 5000), "count %lu", total);
	EXPECT(ring.samples == total / PERIOD, "%lu samples of %lu", ring.samples, total / PERIOD);
	EXPECT(!ring.lost && !wrong && !late, "lost %lu, wrong %lu, late %lu", ring.lost, wrong, late);
	EXPECT(outside <= (levels_apart ? 5 : ring.samples / 10), "%lu of %lu samples outside the loop",
	       outside, ring.samples);
	EXPECT(!physical_wrong, "%lu physical addresses", physical_wrong);
	ring_free(&ring);
}

/* Events without an address: every period has its sample, in the code that ran. */
void execution(void)
{
	static const uint64_t events[] = { RP_EVENT_INSTRUCTIONS, RP_EVENT_CYCLES };
	struct sample sample;

	for (int i = 0; i < 2; i++) {
		struct perf_event_attr attr = sampling_attr(events[i], 20011);
		struct ring ring = ring_of(must_open(&attr, 0, -1, -1));
		uint64_t inside = 0, total;

		load_loop(5 * LOOPS);
		ioctl(ring.fd, PERF_EVENT_IOC_DISABLE, 0);
		total = count_of(ring.fd).value;
		while (ring_next(&ring, &sample))
			inside += sample.ip >= (uint64_t)loop_begin && sample.ip < (uint64_t)loop_end;
		EXPECT(ring.samples + 2 >= total / 20011 && ring.samples <= total / 20011,
		       "event %lu: %lu samples of %lu", events[i], ring.samples, total / 20011);
		EXPECT(inside > 0.9 * ring.samples, "event %lu: %lu of %lu in the loop", events[i],
		       inside, ring.samples);
		ring_free(&ring);
	}
}

/* Two processes take turns on one CPU, each with its own event and its own truth. */
void switching(void)
{
	pid_t children[2];

	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		if (children[i])
			continue;
		struct perf_event_attr attr = sampling_attr(RP_EVENT_LOADS, PERIOD + 2 * i);
		struct ring ring = ring_of(must_open(&attr, 0, -1, -1));
		uint64_t wrong = 0, total;
		struct sample sample;

		failures = 0;
		for (int turn = 0; turn < 200; turn++) {
			load_loop(LOOPS / 200);
			sched_yield();
		}
		ioctl(ring.fd, PERF_EVENT_IOC_DISABLE, 0);
		total = count_of(ring.fd).value;
		while (ring_next(&ring, &sample))
			wrong += sample.tid != (uint32_t)gettid();
		EXPECT(near_above(total, LOOPS, 30000), "count %lu", total);
		EXPECT(ring.samples == total / attr.sample_period, "%lu samples of %lu",
		       ring.samples, total / (uint64_t)attr.sample_period);
		EXPECT(!wrong && !ring.lost, "%lu of another thread, %lu lost", wrong, ring.lost);
		fflush(stdout);
		_exit(failures != 0);
	}
	for (int i = 0; i < 2; i++) {
		int status;

		waitpid(children[i], &status, 0);
		failures += status != 0;
	}
}

static void *thread_on(void *cpu)
{
	pin((int)(intptr_t)cpu);
	load_loop(LOOPS);
	return (void *)(intptr_t)gettid();
}

/* One event per CPU, one thread on each: samples name the right pair. */
void per_cpu_samples(void)
{
	struct perf_event_attr attr = sampling_attr(RP_EVENT_LOADS, PERIOD);
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct ring rings[RP_MAX_CPUS];
	pthread_t threads[RP_MAX_CPUS];
	struct sample sample;
	void *tid;

	for (int i = 0; i < cpus; i++)
		rings[i] = ring_of(must_open(&attr, -1, i, -1));
	for (int i = 0; i < cpus; i++)
		if (pthread_create(&threads[i], NULL, thread_on, (void *)(intptr_t)i))
			exit(2);
	for (int i = 0; i < cpus; i++) {
		uint64_t own = 0, wrong = 0;

		pthread_join(threads[i], &tid);
		ioctl(rings[i].fd, PERF_EVENT_IOC_DISABLE, 0);
		while (ring_next(&rings[i], &sample)) {
			wrong += sample.cpu != (uint32_t)i;
			own += sample.tid == (uint32_t)(intptr_t)tid &&
			       sample.addr == (uint64_t)buffer;
		}
		EXPECT(own + 2 >= LOOPS / PERIOD && own <= LOOPS / PERIOD + 2,
		       "CPU %d: %lu samples of its thread", i, own);
		EXPECT(!wrong && !rings[i].lost, "CPU %d: %lu wrong, %lu lost", i, wrong,
		       rings[i].lost);
		ring_free(&rings[i]);
	}
}

/* A threshold passes exactly the slower accesses, and counts what it passes. */
void latency_threshold(void)
{
	struct perf_event_attr attr = sampling_attr(RP_EVENT_LOADS, 7);
	size_t bytes = 64 << 20;
	char *cold = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t fast = 0, state = 1, total;
	struct sample sample;
	volatile char sum = 0;

	if (cold == MAP_FAILED)
		exit(2);
	memset(cold, 1, bytes);
	attr.config1 = 50;
	struct ring ring = ring_of(must_open(&attr, 0, -1, -1));

	for (int i = 0; i < 20000; i++) {
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		sum += cold[(state >> 33) % bytes];
	}
	ioctl(ring.fd, PERF_EVENT_IOC_DISABLE, 0);
	total = count_of(ring.fd).value;
	while (ring_next(&ring, &sample))
		fast += sample.weight < 50;
	EXPECT(total > 1000 && total < 40000, "%lu slow loads", total);
	EXPECT(ring.samples == total / 7, "%lu samples of %lu", ring.samples, total / 7);
	EXPECT(!fast, "%lu samples below the threshold", fast);
	ring_free(&ring);
	munmap(cold, bytes);
}

/* More samples than the kernel permits are throttled, which is undone a tick later. */
void throttled(void)
{
	const char *limit = "/proc/sys/kernel/perf_event_max_sample_rate";
	int before = number_in(limit);

	write_number(limit, 10000);

	struct perf_event_attr attr = sampling_attr(RP_EVENT_LOADS, 3);
	struct ring ring = ring_of(must_open(&attr, 0, -1, -1));
	struct sample sample;
	uint64_t total;

	for (int i = 0; i < 100; i++) {
		load_loop(LOOPS / 100);
		while (ring_next(&ring, &sample))
			;
	}
	ioctl(ring.fd, PERF_EVENT_IOC_DISABLE, 0);
	total = count_of(ring.fd).value;
	while (ring_next(&ring, &sample))
		;
	EXPECT(ring.throttled > 0, "%lu samples, never throttled", ring.samples);
	EXPECT(ring.unthrottled + 1 >= ring.throttled, "%lu of %lu undone", ring.unthrottled,
	       ring.throttled);
	EXPECT(total < LOOPS / 2, "%lu of %lu loads counted", total, LOOPS);
	/* What was sampled while the throttled sample's interrupt was on its way is dropped. */
	EXPECT(ring.samples <= total / 3 && ring.samples + 4 * ring.throttled >= total / 3,
	       "%lu samples of %lu", ring.samples, total / 3);
	ring_free(&ring);
	write_number(limit, before);
}

/* A rate is kept by changing the period: about 1000 samples in a CPU second. */
void frequency(void)
{
	struct perf_event_attr attr = sampling_attr(RP_EVENT_LOADS, 0);
	struct timespec now;
	struct sample sample;
	uint64_t periods = 0, total;

	attr.freq = 1;
	attr.sample_freq = 1000;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	double begin = now.tv_sec + now.tv_nsec * 1e-9, seconds;
	struct ring ring = ring_of(must_open(&attr, 0, -1, -1));

	do {
		load_loop(LOOPS / 10);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
		seconds = now.tv_sec + now.tv_nsec * 1e-9 - begin;
	} while (seconds < 1);
	ioctl(ring.fd, PERF_EVENT_IOC_DISABLE, 0);
	total = count_of(ring.fd).value;
	while (ring_next(&ring, &sample))
		periods += sample.period;
	EXPECT(ring.samples > 500 * seconds && ring.samples < 2000 * seconds,
	       "%lu samples in %.2f s", ring.samples, seconds);
	EXPECT(periods > 0.9 * total && periods < 1.1 * total, "periods %lu, count %lu", periods,
	       total);
	ring_free(&ring);
}

#define OPS_PER_ACCESS 3 /* as ibs_pmu.c has it; also what load_loop() executes */
/* The handler's own accesses, some 300, are a small part of it. */
#define OPS_PERIOD 32768

/* AMD's interface: no counting, periods in steps of 16, one event per group. */
void op_sampling(void)
{
	const char *path = "/sys/bus/event_source/devices/ibs_op/type";
	uint64_t inside = 0, caches = 0;
	struct sample sample;

	if (access(path, F_OK))
		return; /* another maker's machine */

	struct perf_event_attr counting = attr_of(number_in(path), 0), attr = counting, odd;

	EXPECT(perf_open(&counting, 0, -1, -1) < 0 && errno == EINVAL, "errno %d", errno);
	attr.sample_type = SAMPLE_SHAPE;
	attr.sample_period = OPS_PERIOD;
	odd = attr;
	odd.sample_period = 1000;
	EXPECT(perf_open(&odd, 0, -1, -1) < 0 && errno == EINVAL, "period: errno %d", errno);

	struct ring ring = ring_of(must_open(&attr, 0, -1, -1));

	EXPECT(perf_open(&attr, 0, -1, ring.fd) < 0 && errno == EINVAL, "group: errno %d", errno);
	load_loop(LOOPS);
	ioctl(ring.fd, PERF_EVENT_IOC_DISABLE, 0);
	while (ring_next(&ring, &sample))
		inside += sample.addr == (uint64_t)buffer;
	/* Entering and leaving the handler counts too, so the loop gets a little more or less. */
	EXPECT(inside > 0.9 * OPS_PER_ACCESS * LOOPS / OPS_PERIOD &&
		       inside < 1.1 * OPS_PER_ACCESS * LOOPS / OPS_PERIOD,
	       "%lu samples in the loop", inside);
	ring_free(&ring);

	attr.config = 1 << 16; /* l3missonly */
	ring = ring_of(must_open(&attr, 0, -1, -1));
	load_loop(LOOPS);
	ioctl(ring.fd, PERF_EVENT_IOC_DISABLE, 0);
	while (ring_next(&ring, &sample)) {
		union perf_mem_data_src source = { .val = sample.data_src };

		caches += source.mem_lvl_num <= PERF_MEM_LVLNUM_L3;
	}
	EXPECT(!caches, "%lu of %lu samples from caches", caches, ring.samples);
	ring_free(&ring);
}
