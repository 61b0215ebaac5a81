/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the checks share: the loop whose loads are known, what the PMU can do, and
 * how a check says that it failed.
 */
#ifndef RONDPOINT_PMU_CHECK_H
#define RONDPOINT_PMU_CHECK_H

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>

#include "../layout.h"
#include "perf.h"

#define LOOPS 1000000UL
#define PERIOD 9973UL /* prime, and far from what the kernel would throttle */

extern int failures; /* of the present check */
extern const char *check; /* its name */
extern int core_type, slots, precise, levels_apart; /* the PMU, from sysfs */
extern char buffer[1 << 16]; /* what load_loop() reads; begins a page */
extern char loop_begin[], loop_end[];

#define EXPECT(condition, ...)                                  \
	do {                                                    \
		if (!(condition)) {                             \
			printf("FAIL %s: ", check);             \
			printf(__VA_ARGS__);                    \
			printf(" [%s]\n", #condition);          \
			failures++;                             \
		}                                               \
	} while (0)

void load_loop(uint64_t loops);
void pin(int cpu);
int number_in(const char *path);
void write_number(const char *path, int number);
int near_above(uint64_t value, uint64_t expected, uint64_t slack);
struct perf_event_attr core_attr(uint64_t event);
struct perf_event_attr sampling_attr(uint64_t event, uint64_t period);

/* counting.c */
void own_task(void);
void generic_events(void);
void levels(void);
void other_task(void);
void inherited(void);
void per_cpu(void);
void moving_task(void);
void multiplexed(void);
void groups(void);
void refusals(void);
void uncore(void);

/* sampling.c */
void samples(void);
void execution(void);
void switching(void);
void per_cpu_samples(void);
void latency_threshold(void);
void throttled(void);
void frequency(void);
void op_sampling(void);

/* sources.c */
void data_sources(void);

#endif
