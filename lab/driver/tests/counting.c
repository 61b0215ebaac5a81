// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Counts: against loops whose loads are known, shared out over too few counters,
 * and what must be refused.
 */
#define _GNU_SOURCE
#include "check.h"

void own_task(void)
{
	struct perf_event_attr loads = core_attr(RP_EVENT_LOADS);
	struct perf_event_attr instructions = core_attr(RP_EVENT_INSTRUCTIONS);
	int a = must_open(&loads, 0, -1, -1), b = must_open(&instructions, 0, -1, -1);
	uint64_t a0 = count_of(a).value, b0 = count_of(b).value;

	load_loop(LOOPS);
	uint64_t a1 = count_of(a).value - a0, b1 = count_of(b).value - b0;

	EXPECT(near_above(a1, LOOPS, 1000), "%lu loads", a1);
	EXPECT(near_above(b1, 3 * LOOPS, 3000), "%lu instructions", b1);
	close(a);
	close(b);
}

void generic_events(void)
{
	struct perf_event_attr attr = attr_of(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS);
	struct perf_event_attr absent = attr_of(PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES);
	int fd;

	attr.exclude_kernel = levels_apart;
	fd = must_open(&attr, 0, -1, -1);
	load_loop(LOOPS);
	EXPECT(near_above(count_of(fd).value, 3 * LOOPS, 3000), "%lu", count_of(fd).value);
	close(fd);
	EXPECT(perf_open(&absent, 0, -1, -1) < 0 && errno == ENOENT, "errno %d", errno);
}

void levels(void)
{
	struct perf_event_attr all = core_attr(RP_EVENT_LOADS), user = all, kernel = all;

	if (!levels_apart) {
		user.exclude_kernel = 1;
		EXPECT(perf_open(&user, 0, -1, -1) < 0 && errno == EOPNOTSUPP, "errno %d", errno);
		return;
	}
	all.exclude_kernel = 0;
	kernel.exclude_kernel = 0;
	kernel.exclude_user = 1;
	int a = must_open(&all, 0, -1, -1), u = must_open(&user, 0, -1, a),
	    k = must_open(&kernel, 0, -1, a);

	load_loop(LOOPS);
	for (int i = 0; i < 1000; i++)
		syscall(SYS_getppid);
	ioctl(a, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
	uint64_t av = count_of(a).value, uv = count_of(u).value, kv = count_of(k).value;

	/* The three start and stop one after the other, some kernel loads apart. */
	EXPECT(uv + kv <= av + LOOPS / 50 && av <= uv + kv + LOOPS / 50, "%lu != %lu + %lu", av, uv, kv);
	EXPECT(kv > 1000, "%lu", kv);
	close(k);
	close(u);
	close(a);
}

void other_task(void)
{
	struct perf_event_attr attr = core_attr(RP_EVENT_LOADS);
	int start[2], own = must_open(&attr, 0, -1, -1);
	char byte = 0;

	if (pipe(start))
		exit(2);
	pid_t child = fork();

	if (!child) {
		if (read(start[0], &byte, 1) == 1)
			load_loop(LOOPS);
		_exit(0);
	}
	int fd = must_open(&attr, child, -1, -1);

	if (write(start[1], &byte, 1) != 1)
		exit(2);
	waitpid(child, NULL, 0);
	EXPECT(near_above(count_of(fd).value, LOOPS, 5000), "child %lu", count_of(fd).value);
	EXPECT(count_of(own).value < LOOPS / 10, "own %lu", count_of(own).value);
	close(fd);
	close(own);
	close(start[0]);
	close(start[1]);
}

void inherited(void)
{
	struct perf_event_attr attr = core_attr(RP_EVENT_LOADS);

	attr.inherit = 1;
	int fd = must_open(&attr, 0, -1, -1);

	for (int i = 0; i < 4; i++) {
		if (!fork()) {
			load_loop(LOOPS / 4);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
	EXPECT(near_above(count_of(fd).value, LOOPS, 40000), "%lu", count_of(fd).value);
	close(fd);
}

void per_cpu(void)
{
	struct perf_event_attr attr = core_attr(RP_EVENT_LOADS);
	int last = sysconf(_SC_NPROCESSORS_ONLN) - 1;

	if (!last)
		return;
	pin(last);
	int here = must_open(&attr, -1, last, -1), there = must_open(&attr, -1, 0, -1);

	load_loop(LOOPS);
	EXPECT(near_above(count_of(here).value, LOOPS, LOOPS / 10), "%lu", count_of(here).value);
	EXPECT(count_of(there).value < LOOPS / 4, "%lu", count_of(there).value);
	close(here);
	close(there);
	pin(0);
}

void moving_task(void)
{
	struct perf_event_attr attr = core_attr(RP_EVENT_LOADS);
	int cpus = sysconf(_SC_NPROCESSORS_ONLN), fd = must_open(&attr, 0, -1, -1);

	for (int i = 0; i < 40; i++) {
		pin(i % cpus);
		load_loop(LOOPS / 40);
	}
	EXPECT(near_above(count_of(fd).value, LOOPS, 20000), "%lu", count_of(fd).value);
	close(fd);
	pin(0);
}

/* Twice as many events as counters: each runs half the time, scaled it is right. */
void multiplexed(void)
{
	struct perf_event_attr attr = core_attr(RP_EVENT_LOADS);
	int events = 2 * slots, fds[2 * RP_MAX_SLOTS];
	uint64_t loops = 0, enabled = 0, running = 0;
	struct timespec begin, now;

	for (int i = 0; i < events; i++)
		fds[i] = must_open(&attr, 0, -1, -1);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		load_loop(LOOPS / 10);
		loops += LOOPS / 10;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 500);

	for (int i = 0; i < events; i++)
		ioctl(fds[i], PERF_EVENT_IOC_DISABLE, 0);
	for (int i = 0; i < events; i++) {
		struct count count = count_of(fds[i]);
		double scaled = (double)count.value * count.enabled / count.running;

		EXPECT(count.running < count.enabled, "event %d runs all the time", i);
		EXPECT(scaled > 0.9 * loops && scaled < 1.1 * loops, "event %d: %.0f of %lu", i,
		       scaled, loops);
		enabled += count.enabled;
		running += count.running;
		close(fds[i]);
	}
	EXPECT(running > enabled * 0.45 && running < enabled * 0.55, "share %.3f",
	       (double)running / enabled);
}

void groups(void)
{
	struct perf_event_attr attr = core_attr(RP_EVENT_LOADS);
	struct perf_event_attr fixed = core_attr(RP_EVENT_INSTRUCTIONS);
	int fds[RP_MAX_SLOTS + 1], leader = must_open(&fixed, 0, -1, -1);

	for (int i = 0; i < slots; i++)
		fds[i] = must_open(&attr, 0, -1, leader);
	EXPECT(perf_open(&attr, 0, -1, leader) < 0 && errno == EINVAL, "errno %d", errno);
	load_loop(LOOPS);
	for (int i = 0; i < slots; i++) {
		struct count count = count_of(fds[i]);

		EXPECT(near_above(count.value, LOOPS, 5000), "%lu", count.value);
		EXPECT(count.running == count.enabled, "%lu of %lu ns", count.running,
		       count.enabled);
		close(fds[i]);
	}
	close(leader);
}

void refusals(void)
{
	struct perf_event_attr attr = core_attr(RP_EVENTS);

	EXPECT(perf_open(&attr, 0, -1, -1) < 0 && errno == EINVAL, "event: errno %d", errno);
	attr = core_attr(RP_EVENT_LOADS | 0x100);
	EXPECT(perf_open(&attr, 0, -1, -1) < 0 && errno == EINVAL, "umask: errno %d", errno);
	attr = core_attr(RP_EVENT_LLC_MISS);
	attr.config1 = 30;
	EXPECT(perf_open(&attr, 0, -1, -1) < 0 && errno == EINVAL, "ldlat: errno %d", errno);
	attr = sampling_attr(RP_EVENT_LOADS, PERIOD);
	attr.sample_type |= PERF_SAMPLE_BRANCH_STACK;
	attr.branch_sample_type = PERF_SAMPLE_BRANCH_ANY;
	EXPECT(perf_open(&attr, 0, -1, -1) < 0 && errno == EOPNOTSUPP, "branches: errno %d", errno);
}

void uncore(void)
{
	int type = number_in("/sys/bus/event_source/devices/lab_nb/type");
	struct perf_event_attr attr = attr_of(type, 1);
	struct perf_event_attr sampling = attr;
	size_t bytes = 64 << 20;

	EXPECT(perf_open(&attr, 0, -1, -1) < 0 && errno == EINVAL, "task: errno %d", errno);
	sampling.sample_period = 1000;
	EXPECT(perf_open(&sampling, -1, 0, -1) < 0 && errno == EINVAL, "sampling: errno %d", errno);

	int fd = must_open(&attr, -1, 0, -1);
	char *cold = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	volatile char sum = 0;

	if (cold == MAP_FAILED)
		exit(2);
	memset(cold, 1, bytes);
	uint64_t before = count_of(fd).value;

	for (size_t i = 0; i < bytes; i += 64)
		sum += cold[i];
	EXPECT(count_of(fd).value > before, "%lu lines", count_of(fd).value - before);
	munmap(cold, bytes);
	close(fd);
}
