// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checks the lab's PMU from inside the guest, through perf_event_open() alone:
 * counts against loops whose loads are known, multiplexing against the truth,
 * samples one by one against the thread, CPU, address and instruction that they
 * must show.  Prints a line for each check; exit status 1 if one failed, 2 if
 * something could not be tried.  Run as root in the guest, with no arguments or
 * with the names of checks.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>

#include "../layout.h"
#include "perf.h"

#define LOOPS 1000000UL
#define PERIOD 9973UL /* prime, and far from what the kernel would throttle */

static int failures, core_type, slots, precise, levels_apart;
static const char *check;
static char buffer[1 << 16] __attribute__((aligned(4096)));

#define EXPECT(condition, ...)                                  \
	do {                                                    \
		if (!(condition)) {                             \
			printf("FAIL %s: ", check);             \
			printf(__VA_ARGS__);                    \
			printf(" [%s]\n", #condition);          \
			failures++;                             \
		}                                               \
	} while (0)

/* Exactly @loops loads of a user address, and 3 instructions around each. */
extern char loop_begin[], loop_end[];
static __attribute__((noinline)) void load_loop(uint64_t loops)
{
	asm volatile(".globl loop_begin, loop_end\n"
		     "loop_begin: 1: mov (%1), %%rax\n"
		     "dec %0\n"
		     "jnz 1b\n"
		     "loop_end:\n"
		     : "+r"(loops)
		     : "r"(buffer)
		     : "rax", "memory", "cc");
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("sched_setaffinity");
		exit(2);
	}
}

static int number_in(const char *path)
{
	FILE *file = fopen(path, "r");
	int number;

	if (!file || fscanf(file, "%d", &number) != 1) {
		printf("%s: %s\n", path, file ? "holds no number" : strerror(errno));
		exit(2);
	}
	fclose(file);
	return number;
}

static struct perf_event_attr core_attr(uint64_t event)
{
	struct perf_event_attr attr = attr_of(core_type, event);

	attr.exclude_kernel = levels_apart;
	return attr;
}

static struct perf_event_attr sampling_attr(uint64_t event, uint64_t period)
{
	struct perf_event_attr attr = core_attr(event);

	attr.sample_period = period;
	attr.sample_type = SAMPLE_SHAPE;
	attr.precise_ip = precise;
	return attr;
}

/*
 * @value is at least @expected and at most @slack above; a tenth more where the
 * kernel's own work cannot be told from the program's.
 */
static int near_above(uint64_t value, uint64_t expected, uint64_t slack)
{
	if (!levels_apart)
		slack += expected / 10;
	return value >= expected && value <= expected + slack;
}

static void own_task(void)
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

static void generic_events(void)
{
	struct perf_event_attr attr = attr_of(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS);
	struct perf_event_attr absent = attr_of(PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES);
	int fd;

	if (core_type != PERF_TYPE_RAW)
		return;
	attr.exclude_kernel = levels_apart;
	fd = must_open(&attr, 0, -1, -1);
	load_loop(LOOPS);
	EXPECT(near_above(count_of(fd).value, 3 * LOOPS, 3000), "%lu", count_of(fd).value);
	close(fd);
	EXPECT(perf_open(&absent, 0, -1, -1) < 0 && errno == ENOENT, "errno %d", errno);
}

static void levels(void)
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

static void other_task(void)
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

static void inherited(void)
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

static void per_cpu(void)
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

static void moving_task(void)
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
static void multiplexed(void)
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

static void groups(void)
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

static void refusals(void)
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
static void samples(void)
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
static void execution(void)
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
static void switching(void)
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
static void per_cpu_samples(void)
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
static void latency_threshold(void)
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

static void write_number(const char *path, int number)
{
	FILE *file = fopen(path, "w");

	if (!file || fprintf(file, "%d", number) < 0 || fclose(file)) {
		perror(path);
		exit(2);
	}
}

/* More samples than the kernel permits are throttled, which is undone a tick later. */
static void throttled(void)
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
static void frequency(void)
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

/* AMD's interface: no counting, periods in steps of 16, one event per group. */
static void op_sampling(void)
{
	const char *path = "/sys/bus/event_source/devices/ibs_op/type";
	uint64_t inside = 0, caches = 0;
	struct sample sample;

	if (access(path, F_OK))
		return; /* another maker's machine */

	struct perf_event_attr counting = attr_of(number_in(path), 0), attr = counting, odd;

	EXPECT(perf_open(&counting, 0, -1, -1) < 0 && errno == EINVAL, "errno %d", errno);
	attr.sample_type = SAMPLE_SHAPE;
	attr.sample_period = 8192;
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
	EXPECT(inside > 0.9 * LOOPS / 8192 && inside < 1.1 * LOOPS / 8192,
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

static void uncore(void)
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

static const struct {
	const char *name;
	void (*run)(void);
} checks[] = {
	{ "own_task", own_task },
	{ "generic_events", generic_events },
	{ "levels", levels },
	{ "other_task", other_task },
	{ "inherited", inherited },
	{ "per_cpu", per_cpu },
	{ "moving_task", moving_task },
	{ "multiplexed", multiplexed },
	{ "groups", groups },
	{ "refusals", refusals },
	{ "samples", samples },
	{ "execution", execution },
	{ "switching", switching },
	{ "per_cpu_samples", per_cpu_samples },
	{ "latency_threshold", latency_threshold },
	{ "throttled", throttled },
	{ "frequency", frequency },
	{ "op_sampling", op_sampling },
	{ "uncore", uncore },
};

static int wanted(const char *name, int count, char **names)
{
	for (int i = 1; i < count; i++)
		if (!strcmp(names[i], name))
			return 1;
	return count < 2;
}

int main(int count, char **names)
{
	const char *folder = "/sys/bus/event_source/devices/rondpoint";
	char path[128];
	int failed = 0;

	if (access(folder, F_OK))
		folder = "/sys/bus/event_source/devices/cpu";
	snprintf(path, sizeof(path), "%s/type", folder);
	core_type = number_in(path);
	snprintf(path, sizeof(path), "%s/caps/counters", folder);
	slots = number_in(path);
	snprintf(path, sizeof(path), "%s/caps/max_precise", folder);
	precise = number_in(path);
	snprintf(path, sizeof(path), "%s/caps/levels", folder);
	levels_apart = number_in(path);
	memset(buffer, 1, sizeof(buffer));
	setvbuf(stdout, NULL, _IOLBF, 0);
	pin(0);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		if (!wanted(checks[i].name, count, names))
			continue;
		check = checks[i].name;
		failures = 0;
		checks[i].run();
		if (failures)
			failed++;
		else
			printf("ok   %s\n", check);
	}
	return failed ? 1 : 0;
}
