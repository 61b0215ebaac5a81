// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checks the lab's PMU from inside the guest, through perf_event_open() alone.
 * Counts are checked against loops whose loads are known, and multiplexing against
 * the truth. Samples are checked one by one against the thread, CPU, address and
 * instruction that they must show. Prints a line for each check. Exit status 1 if
 * one failed, 2 if something could not be tried. Run as root in the guest, with no
 * arguments or with the names of checks.
 */
#define _GNU_SOURCE
#include "check.h"

int failures, core_type, slots, precise, levels_apart;
const char *check;
char buffer[1 << 16] __attribute__((aligned(4096)));

/* Exactly @loops loads of a user address, and 3 instructions around each. */
__attribute__((noinline)) void load_loop(uint64_t loops)
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

void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("sched_setaffinity");
		exit(2);
	}
}

int number_in(const char *path)
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

struct perf_event_attr core_attr(uint64_t event)
{
	struct perf_event_attr attr = attr_of(core_type, event);

	attr.exclude_kernel = levels_apart;
	return attr;
}

struct perf_event_attr sampling_attr(uint64_t event, uint64_t period)
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
int near_above(uint64_t value, uint64_t expected, uint64_t slack)
{
	if (!levels_apart)
		slack += expected / 10;
	return value >= expected && value <= expected + slack;
}

void write_number(const char *path, int number)
{
	FILE *file = fopen(path, "w");

	if (!file || fprintf(file, "%d", number) < 0 || fclose(file)) {
		perror(path);
		exit(2);
	}
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
	{ "data_sources", data_sources },
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
	const char *folder = "/sys/bus/event_source/devices/model";
	char path[128];
	int failed = 0;

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
