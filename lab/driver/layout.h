/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The memory that the hardware model (QEMU plugin, host side) and the PMU driver
 * (kernel module, guest side) share. It is BAR 2 of an ivshmem-plain device, 16
 * MiB. This file is the only description of it. The plugin keeps a mirror in Rust,
 * and a test there compares it line by line with this text, so:
 *
 *   - every constant is one line `#define NAME NUMBER`, decimal or 0x hex;
 *   - every number is an index or a count of u64 words, little endian;
 *   - a name that ends in a unit (_BYTES, _SHIFT, _MASK) has that unit, and a
 *     comment may say another;
 *   - a change of meaning raises RP_LAYOUT_VERSION.
 *
 * Words are written by one side only; each comment says by which. The guest reaches
 * this memory with ordinary loads and stores, which the plugin sees like any other
 * access. Its physical addresses lie in no node and are not modelled. May be
 * included by the kernel and by user space; declares no types and no functions.
 */
#ifndef RONDPOINT_LAB_LAYOUT_H
#define RONDPOINT_LAB_LAYOUT_H

#define RP_MAGIC 0x554d50444e4f5052 /* "RPONDPMU" in memory order */
#define RP_LAYOUT_VERSION 3
#define RP_BAR_BYTES 16777216
#define RP_PCI_VENDOR 0x1af4
#define RP_PCI_DEVICE 0x1110

/* Bounds of the format; a machine may have fewer of each. */
#define RP_MAX_CPUS 32
#define RP_MAX_NODES 16
#define RP_MAX_LINKS 64
#define RP_MAX_EVENTS 64
#define RP_MAX_SLOTS 16

/*
 * Marker instructions, recognised by the plugin when it translates guest code.
 * They change no register and no flag, and do nothing on a machine without the
 * plugin.  The numbers are the instruction bytes, first byte lowest.
 *
 * READ    xchg %rsi,%rsi   the plugin brings this CPU's counters and the COUNT and
 *                          LEFT words of its enabled slots up to date, and charges
 *                          the modelled cost of one counter read.
 * SLOTS   xchg %rdi,%rdi   the plugin looks at this CPU's slots again (see below)
 *                          and charges the modelled cost of one counter write.
 * NODES   xchg %rbp,%rbp   the plugin brings all node and link blocks up to date.
 *                          It also does so at the end of each quantum.
 * PRICE   xchg %rbx,%rbx   the plugin looks at this CPU's PRICE word again.
 */
#define RP_MARKER_READ 0xf68748
#define RP_MARKER_SLOTS 0xff8748
#define RP_MARKER_NODES 0xed8748
#define RP_MARKER_PRICE 0xdb8748

/*
 * Header, at word 0.  Written by the plugin before the guest runs, except where
 * noted.  MAGIC is written last.
 */
#define RP_HEADER_MAGIC 0
#define RP_HEADER_VERSION 1
#define RP_HEADER_CPUS 2
#define RP_HEADER_NODES 3
#define RP_HEADER_LINKS 4
#define RP_HEADER_EVENTS 5 /* events 0..EVENTS-1 exist */
#define RP_HEADER_SLOTS 6 /* programmable counters per CPU, 1..15; see Slots */
#define RP_HEADER_VENDOR 7 /* how data sources are to be encoded, RP_VENDOR_* */
#define RP_HEADER_CLOCK_KHZ 8 /* modelled core clock: kHz of guest time */
#define RP_HEADER_READ_COST_PS 9 /* picoseconds charged by RP_MARKER_READ */
#define RP_HEADER_SAMPLE_COST_PS 10 /* picoseconds charged by a sample */
#define RP_HEADER_SAMPLED_EVENTS_MASK 11 /* bit e: slots can count down event e */
#define RP_HEADER_FEATURES_MASK 12 /* RP_FEATURE_* */
#define RP_HEADER_TIME_PS 13 /* global guest time of the latest export of nodes and links */
#define RP_HEADER_DRIVER 14 /* written by the driver: layout version it speaks while loaded, else 0 */
#define RP_HEADER_PROCESSOR 15 /* whose units the driver shows, RP_PROCESSOR_* */
#define RP_HEADER_CPU_NODE 64 /* 32 words: the node of each CPU */
#define RP_HEADER_LINK_ENDS 128 /* 64 words: from | to << 8; data flows from -> to */

#define RP_PRICE_MANAGER 1

#define RP_VENDOR_INTEL 0
#define RP_VENDOR_AMD 1
#define RP_VENDOR_ARM 2

#define RP_PROCESSOR_NONE 0 /* the model's own units, which no processor has */
#define RP_PROCESSOR_SKYLAKE_SP 1
#define RP_PROCESSOR_AMD_ZEN4 2
#define RP_PROCESSOR_NEHALEM_EP 3
#define RP_PROCESSOR_IVYBRIDGE_EP 4
#define RP_PROCESSOR_AMD_ZEN1 5
#define RP_PROCESSOR_NEOVERSE_N1 6
#define RP_PROCESSORS 7

/*
 * USER: the plugin keeps RP_CPU_USER_COUNTERS and obeys the level bits of slots.
 * IP:   samples carry the address of the sampled instruction (RP_ENTRY_IP).
 */
#define RP_FEATURE_USER_MASK 1
#define RP_FEATURE_IP_MASK 2

/*
 * One block per CPU, at RP_CPU_BASE + cpu * RP_CPU_WORDS.  The CPU number is the
 * vCPU index, which is the guest kernel's CPU number.
 *
 * COUNTERS        by plugin: event counts since power-on, index = event
 * USER_COUNTERS   by plugin: the share of them at user level (RP_FEATURE_USER)
 * TIME_PS         by plugin: this CPU's guest time at the latest export
 * EXPORTS         by plugin: how often this block was exported
 * FROZEN          by driver, followed by RP_MARKER_SLOTS: while 1, no slot of this
 *                 CPU counts.  The driver freezes in its NMI handler, as real ones
 *                 do, so that handling a sample cannot produce the next.
 * PRICE           by driver, followed by RP_MARKER_PRICE: RP_PRICE_MANAGER while
 *                 this CPU executes for a manager, whose time passes at the speed
 *                 of the real machine and not in slow motion; else 0.
 */
#define RP_CPU_BASE 131072
#define RP_CPU_WORDS 8192
#define RP_CPU_COUNTERS 0
#define RP_CPU_USER_COUNTERS 64
#define RP_CPU_TIME_PS 128
#define RP_CPU_EXPORTS 129
#define RP_CPU_FROZEN 130
#define RP_CPU_PRICE 131
#define RP_CPU_SLOTS 256
#define RP_CPU_RING 512
#define RP_CPU_ENTRIES 1024

/*
 * Slots: programmable counters that count down and take samples.  There are
 * RP_HEADER_SLOTS of them and one more behind, for AMD's op sampling and Arm's SPE.  Slot s of a
 * CPU begins at RP_CPU_SLOTS + s * RP_SLOT_WORDS of its block.  Only the CPU
 * itself writes its slots.
 *
 * To start, the driver writes all words (GENERATION changed, CONTROL with
 * RP_CONTROL_ENABLED_MASK) and executes RP_MARKER_SLOTS. The plugin then loads
 * every enabled slot whose generation is new to it. To stop: the driver writes
 * CONTROL = 0 and executes the marker; the plugin writes COUNT and LEFT back and
 * lets go of the slot. In between the driver may write PERIOD only, which the
 * plugin reads at each reload, and the plugin writes COUNT and LEFT at
 * RP_MARKER_READ.
 *
 * Each event that matches (privilege level, latency >= THRESHOLD where the event
 * is LOADS, STORES or MEM_ANY) raises COUNT and lowers LEFT.  At zero the plugin
 * adds PERIOD to LEFT, appends a sample to the ring and raises an NMI on the CPU.
 * An event without an address of its own (INSTRUCTIONS, CYCLES...) is sampled at
 * the next point where the plugin has control, with RP_SOURCE_NONE or with the
 * access found there.
 */
#define RP_SLOT_WORDS 8
#define RP_SLOT_EVENT 0 /* driver: RP_EVENT_* */
#define RP_SLOT_PERIOD 1 /* driver: events per sample, >= 1 */
#define RP_SLOT_LEFT 2 /* driver at start, plugin after: events until the next sample */
#define RP_SLOT_THRESHOLD 3 /* driver: least latency in core cycles, 0 = all */
#define RP_SLOT_CONTROL 4 /* driver: RP_CONTROL_* */
#define RP_SLOT_GENERATION 5 /* driver: changes with every start, 56 bits */
#define RP_SLOT_COUNT 6 /* driver at start (any value), plugin after: one more per matching event */

#define RP_CONTROL_ENABLED_MASK 1
#define RP_CONTROL_USER_MASK 2 /* count at user level */
#define RP_CONTROL_KERNEL_MASK 4 /* count at kernel level */
/*
 * Sample accesses that no cache answered. Where the counter comes to zero at
 * another access, the sample waits for one of the next 127 that no cache answered.
 * AMD's op sampling does so: it re-arms itself after 1 to 127 operations until it
 * hits one.
 */
#define RP_CONTROL_MISSES_MASK 8

/*
 * Sample ring at RP_CPU_RING: HEAD counts samples written by the plugin, TAIL
 * those taken by the driver; both only grow.  Entry n lies at RP_CPU_ENTRIES +
 * (n % RP_RING_ENTRIES) * RP_ENTRY_WORDS and is complete before HEAD passes it.
 * When HEAD - TAIL is RP_RING_ENTRIES the plugin raises DROPPED instead.
 */
#define RP_RING_ENTRIES 512
#define RP_RING_HEAD 512 /* plugin; word in the CPU block, like the next two */
#define RP_RING_TAIL 513 /* driver */
#define RP_RING_DROPPED 514 /* plugin */

#define RP_ENTRY_WORDS 8
#define RP_ENTRY_SLOT 0 /* slot | generation << 8 */
#define RP_ENTRY_VADDR 1
#define RP_ENTRY_PADDR 2 /* 0 = unknown */
#define RP_ENTRY_SOURCE 3 /* RP_SOURCE_* | node << 8, node that held the data */
#define RP_ENTRY_LATENCY_CYCLES 4 /* of this access, issue to use */
#define RP_ENTRY_FLAGS 5 /* RP_FLAG_* */
#define RP_ENTRY_TIME_PS 6 /* the CPU's guest time */
#define RP_ENTRY_IP 7 /* of the sampled instruction, 0 = unknown */

#define RP_SOURCE_NODE_SHIFT 8
#define RP_ENTRY_GENERATION_SHIFT 8

#define RP_SOURCE_NONE 0 /* not a memory access */
#define RP_SOURCE_L1 1
#define RP_SOURCE_L2 2
#define RP_SOURCE_LLC 3 /* the CPU's own last-level cache */
#define RP_SOURCE_LOCAL_FWD 4 /* another cache of the same node, clean */
#define RP_SOURCE_LOCAL_HITM 5 /* another cache of the same node, modified */
#define RP_SOURCE_REMOTE_FWD 6 /* a cache of another node, clean */
#define RP_SOURCE_REMOTE_HITM 7 /* a cache of another node, modified */
#define RP_SOURCE_LOCAL_DRAM 8
#define RP_SOURCE_REMOTE_DRAM 9
#define RP_SOURCE_IN_FLIGHT 10 /* a line already on its way (fill buffer) */

#define RP_FLAG_STORE_MASK 1 /* else a load */
#define RP_FLAG_LOCKED_MASK 2
#define RP_FLAG_KERNEL_MASK 4 /* executed at kernel level */
#define RP_FLAG_OTHER_DOMAIN_MASK 8 /* LOCAL_FWD, LOCAL_HITM: from another cache domain */

/*
 * Node blocks at RP_NODE_BASE + node * RP_NODE_WORDS, written by the plugin:
 * what an uncore PMU counts.  DRAM_TO belongs to the node that asks, the rest to
 * the node's own memory controller.
 */
#define RP_NODE_BASE 393216
#define RP_NODE_WORDS 256
#define RP_NODE_DRAM_TO 0 /* 16 words: lines read by this node's CPUs from DRAM of node k */
#define RP_NODE_READ_BYTES 16
#define RP_NODE_WRITE_BYTES 17
#define RP_NODE_REQUESTS 18 /* requests served by the controller */
#define RP_NODE_QUEUE_PS 19 /* sum of their queueing delays */
#define RP_NODE_WRITTEN_BY 32 /* 16 words: bytes that CPUs of node k wrote back to this node */

/* Link blocks at RP_LINK_BASE + link * RP_LINK_WORDS, written by the plugin. */
#define RP_LINK_BASE 397312
#define RP_LINK_WORDS 8
#define RP_LINK_BYTES 0
#define RP_LINK_REQUESTS 1
#define RP_LINK_QUEUE_PS 2

/*
 * Events: indices into the counters of a CPU and values of RP_SLOT_EVENT.  These
 * numbers are the `event` field of the PMU's perf config and never change meaning.
 * "Demand" means loads and stores of the program, not prefetches.
 */
#define RP_EVENT_INSTRUCTIONS 0
#define RP_EVENT_CYCLES 1 /* not halted */
#define RP_EVENT_REF_CYCLES 2 /* the same: the modelled clock does not vary */
#define RP_EVENT_LOADS 3 /* retired, first-level hits included */
#define RP_EVENT_STORES 4
#define RP_EVENT_MEM_ANY 5 /* LOADS + STORES */
#define RP_EVENT_L1_MISS 6 /* demand */
#define RP_EVENT_L2_MISS 7 /* demand; = references to the last-level cache */
#define RP_EVENT_LLC_HIT 8
#define RP_EVENT_LLC_MISS 9 /* demand; DRAM or another cache answers */
#define RP_EVENT_LOCAL_DRAM 10 /* demand, served by DRAM of the CPU's node */
#define RP_EVENT_REMOTE_DRAM 11 /* demand, served by DRAM of another node */
#define RP_EVENT_LOCAL_FWD 12
#define RP_EVENT_LOCAL_HITM 13
#define RP_EVENT_REMOTE_FWD 14
#define RP_EVENT_REMOTE_HITM 15
#define RP_EVENT_PREFETCH_DRAM 16 /* lines that prefetchers of this CPU read from DRAM */
#define RP_EVENT_WRITEBACKS 17 /* modified lines that this CPU's misses pushed out to DRAM */
#define RP_EVENT_STALL_CYCLES 18 /* waiting for memory */
#define RP_EVENT_DRAM_LATENCY_CYCLES 19 /* sum over DRAM_REQUESTS */
#define RP_EVENT_DRAM_REQUESTS 20 /* LOCAL_DRAM + REMOTE_DRAM */
#define RP_EVENT_DRAM_READS 21 /* DRAM_REQUESTS + PREFETCH_DRAM */
#define RP_EVENT_DRAM_NODE0 32 /* lines read from DRAM of node 0, demand and prefetch */
#define RP_EVENT_DRAM_NODE1 33
#define RP_EVENT_DRAM_NODE2 34
#define RP_EVENT_DRAM_NODE3 35
#define RP_EVENT_DRAM_NODE4 36
#define RP_EVENT_DRAM_NODE5 37
#define RP_EVENT_DRAM_NODE6 38
#define RP_EVENT_DRAM_NODE7 39
#define RP_EVENT_DRAM_NODE8 40
#define RP_EVENT_DRAM_NODE9 41
#define RP_EVENT_DRAM_NODE10 42
#define RP_EVENT_DRAM_NODE11 43
#define RP_EVENT_DRAM_NODE12 44
#define RP_EVENT_DRAM_NODE13 45
#define RP_EVENT_DRAM_NODE14 46
#define RP_EVENT_DRAM_NODE15 47
#define RP_EVENTS 48

#endif
