// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a manager executes has the price that it has on the real machine; the
 * programs that it manages run in slow motion.  This file tells the plugin, CPU by
 * CPU, which of the two runs.
 *
 * A process becomes a manager when it writes to the module's parameter `manager`;
 * it stays one over its next exec.  Its threads and what it forks are managers too,
 * until they exec: that is then a program.  At a manager's price run
 *
 *   - its threads, in user space and in the kernel, but for the copying of a page.
 *     Working sets are scaled down by the factor of slow motion: a page copied in
 *     the lab stands for as many on the real machine;
 *   - the NMI handler, and what the kernel does to switch counters over, give them
 *     to a child and take them away: see rp_price_enter().
 *
 * Left at the price of a program: interrupts from a manager to other CPUs.
 *
 * The kernel is hooked when the module is loaded, before any program runs. Patching
 * its code takes a tenth of a second of guest time, and a hook costs a program that
 * forks a little. So both are the same in every run, with a manager or without.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/tracepoint.h>
#include <trace/events/sched.h>

#include "rondpoint_pmu.h"

#define MANAGERS_MAX 64

struct manager {
	pid_t process; /* 0 = free */
	unsigned int execs; /* how many more it survives as a manager */
};

static struct manager managers[MANAGERS_MAX];
static unsigned int managers_used; /* no entry from here on was ever taken */
static DEFINE_RAW_SPINLOCK(managers_lock);

/* Why a CPU is at a manager's price, or is not. */
struct price {
	bool manager; /* a manager's thread is on the CPU */
	unsigned int entered; /* depth of rp_price_enter() */
	struct task_struct *copier; /* copies a page; ends with its turn on the CPU */
	struct task_struct *servant; /* works for a manager; ends likewise */
	bool told; /* what the plugin knows */
};

static DEFINE_PER_CPU(struct price, prices);
static bool hooked;

/*
 * Runs with preemption off.  An NMI in between leaves everything as it found it,
 * so the last store is the right one.
 */
static void tell(struct price *price)
{
	bool full = price->entered || price->servant ||
		    (price->manager && !price->copier);

	if (full == price->told)
		return;
	price->told = full;
	rp_store(rp_cpu_word(smp_processor_id(), RP_CPU_PRICE), full ? RP_PRICE_MANAGER : 0);
	asm volatile("xchg %%rbx, %%rbx" : : : "memory");
}

/* The kernel begins work on behalf of a manager, on this CPU, with preemption off. */
void rp_price_enter(void)
{
	struct price *price = this_cpu_ptr(&prices);

	if (!READ_ONCE(hooked))
		return;
	price->entered++;
	tell(price);
}

void rp_price_leave(void)
{
	struct price *price = this_cpu_ptr(&prices);

	if (!READ_ONCE(hooked))
		return;
	price->entered--;
	tell(price);
}

static struct manager *find(pid_t process)
{
	unsigned int index;

	for (index = 0; index < READ_ONCE(managers_used); index++)
		if (READ_ONCE(managers[index].process) == process)
			return &managers[index];
	return NULL;
}

static int declare(pid_t process, unsigned int execs)
{
	struct manager *entry;
	unsigned long flags;
	unsigned int index;
	int error = 0;

	raw_spin_lock_irqsave(&managers_lock, flags);
	entry = find(process);
	for (index = 0; !entry && index < MANAGERS_MAX; index++)
		if (!managers[index].process)
			entry = &managers[index];
	if (entry) {
		entry->execs = execs;
		WRITE_ONCE(entry->process, process);
		if (entry - managers >= managers_used)
			WRITE_ONCE(managers_used, entry - managers + 1);
	} else {
		error = -ENOSPC;
	}
	raw_spin_unlock_irqrestore(&managers_lock, flags);
	return error;
}

static void forget(pid_t process)
{
	struct manager *entry;
	unsigned long flags;

	raw_spin_lock_irqsave(&managers_lock, flags);
	entry = find(process);
	if (entry)
		WRITE_ONCE(entry->process, 0);
	raw_spin_unlock_irqrestore(&managers_lock, flags);
}

/* The thread on this CPU is, or is no longer, a manager's. */
static void look_again(struct task_struct *task)
{
	struct price *price = this_cpu_ptr(&prices);

	price->manager = find(task->tgid);
	price->copier = NULL;
	price->servant = NULL;
	tell(price);
}

static void on_switch(void *data, bool preempt, struct task_struct *previous,
		      struct task_struct *next, unsigned int state)
{
	look_again(next);
}

static void on_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	if (child->tgid != parent->tgid && find(parent->tgid))
		declare(child->tgid, 0);
}

static void on_exec(void *data, struct task_struct *task, pid_t old,
		    struct linux_binprm *program)
{
	struct manager *entry = find(task->tgid);

	if (!entry)
		return;
	if (entry->execs)
		entry->execs--;
	else
		forget(task->tgid);
	preempt_disable();
	look_again(task);
	preempt_enable();
}

static void on_exit(void *data, struct task_struct *task)
{
	/* The last thread; a manager's threads end at its price, or nearly. */
	if (!atomic_read(&task->signal->live))
		forget(task->tgid);
}

static int enter_copy(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct price *price = this_cpu_ptr(&prices);

	/* Only a manager's copies change their price; others need no return. */
	if (!price->manager)
		return 1;
	price->copier = current;
	tell(price);
	return 0;
}

static int leave_copy(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct price *price = this_cpu_ptr(&prices);

	if (price->copier == current)
		price->copier = NULL;
	tell(price);
	return 0;
}

static int enter_service(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct price *price = this_cpu_ptr(&prices);

	price->servant = current;
	tell(price);
	return 0;
}

static int leave_service(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct price *price = this_cpu_ptr(&prices);

	if (price->servant == current)
		price->servant = NULL;
	tell(price);
	return 0;
}

static struct kretprobe copy_probe = {
	.kp.symbol_name = "folio_mc_copy",
	.entry_handler = enter_copy,
	.handler = leave_copy,
	.maxactive = 64,
};

/* Counters that a child inherits from its parent. */
static struct kretprobe birth_probe = {
	.kp.symbol_name = "perf_event_init_task",
	.entry_handler = enter_service,
	.handler = leave_service,
	.maxactive = 64,
};

static struct kretprobe death_probe = {
	.kp.symbol_name = "perf_event_exit_task",
	.entry_handler = enter_service,
	.handler = leave_service,
	.maxactive = 64,
};

static struct kretprobe *const probes[] = { &copy_probe, &birth_probe, &death_probe };

static struct {
	const char *name;
	void *function;
	struct tracepoint *found;
} points[] = {
	{ "sched_switch", on_switch },
	{ "sched_process_fork", on_fork },
	{ "sched_process_exec", on_exec },
	{ "sched_process_exit", on_exit },
};

static void find_point(struct tracepoint *point, void *unused)
{
	unsigned int index;

	for (index = 0; index < ARRAY_SIZE(points); index++)
		if (!strcmp(point->name, points[index].name))
			points[index].found = point;
}

static void unhook(unsigned int points_hooked, unsigned int probes_hooked)
{
	while (probes_hooked--)
		unregister_kretprobe(probes[probes_hooked]);
	while (points_hooked--)
		tracepoint_probe_unregister(points[points_hooked].found,
					    points[points_hooked].function, NULL);
	tracepoint_synchronize_unregister();
}

/*
 * Runs before anything is counted. A kernel that cannot be hooked does without: no
 * process becomes a manager there, and a process that asks for it gets an error.
 */
void rp_price_start(void)
{
	unsigned int point = 0, probe = 0;
	int error = 0;

	for_each_kernel_tracepoint(find_point, NULL);
	for (; point < ARRAY_SIZE(points); point++) {
		error = points[point].found ?
			tracepoint_probe_register(points[point].found, points[point].function,
						  NULL) : -ENOENT;
		if (error) {
			pr_err(RP_NAME ": the kernel has no usable tracepoint %s: error %d\n",
			       points[point].name, error);
			goto undo;
		}
	}
	for (; probe < ARRAY_SIZE(probes); probe++) {
		error = register_kretprobe(probes[probe]);
		if (error) {
			pr_err(RP_NAME ": the kernel has no %s to probe: error %d\n",
			       probes[probe]->kp.symbol_name, error);
			goto undo;
		}
	}
	WRITE_ONCE(hooked, true);
	return;
undo:
	unhook(point, probe);
}

/* A write, of anything, makes the writer a manager. */
static int set_manager(const char *value, const struct kernel_param *parameter)
{
	int error;

	if (!rp_memory)
		return -ENODEV;
	if (!hooked)
		return -EOPNOTSUPP;
	error = declare(current->tgid, 1);
	if (error)
		return error;
	preempt_disable();
	look_again(current);
	preempt_enable();
	return 0;
}

static const struct kernel_param_ops manager_ops = { .set = set_manager };

module_param_cb(manager, &manager_ops, NULL, 0200);
MODULE_PARM_DESC(manager, "write anything: the writer executes at the speed of the real machine");

void rp_price_stop(void)
{
	if (!hooked)
		return;
	WRITE_ONCE(hooked, false);
	unhook(ARRAY_SIZE(points), ARRAY_SIZE(probes));
}
