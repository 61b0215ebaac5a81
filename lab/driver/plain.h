/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Units that only count, for whole nodes: see plain.c. */
#ifndef RONDPOINT_PLAIN_H
#define RONDPOINT_PLAIN_H

#include <linux/cpumask.h>
#include <linux/perf_event.h>

/* A unit; @value says what it counts. */
struct rp_plain {
	struct pmu pmu;
	cpumask_t cpus; /* to be asked, one for each node that it counts for */
	u64 (*value)(struct perf_event *event); /* its counter, the model's exports being fresh */
};

static inline struct rp_plain *rp_plain_of(const struct perf_event *event)
{
	return container_of(event->pmu, struct rp_plain, pmu);
}

/* Fills in a unit's operations; its groups and CPUs are the caller's. */
void rp_plain_init(struct rp_plain *unit, int (*init)(struct perf_event *event),
		   u64 (*value)(struct perf_event *event));

/* 0 where @event can be one of its unit's as far as type, kind and CPU go; else an error. */
int rp_plain_check(struct perf_event *event);

/* The file `cpumask` of a unit. */
extern const struct attribute_group rp_plain_group;

/* The first CPU of each node that has CPUs. The guest's are all online at load and stay so. */
void rp_plain_first_cpus(cpumask_t *cpus);

#endif
