/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Read-only data with one copy on each memory node.
 *
 * A replica returns the copy that is nearest to the calling thread. Versions replace the data while
 * threads read it: readers are never blocked, and an old version is freed after its last reader.
 *
 * Where copies are not possible, readers get the original: one node, too little memory, no
 * permission. rondpoint_replica_refusal and rondpoint_replica_describe say why.
 *
 * Functions that can fail return NULL or 0; rondpoint_last_error has the message. All functions
 * may be called by several threads at once, but for the two that free.
 */
#ifndef RONDPOINT_REPLICA_H
#define RONDPOINT_REPLICA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rondpoint_replica rondpoint_replica;
typedef struct rondpoint_versions rondpoint_versions;

/* Data that nothing writes to. The address is not NULL, also where the length is 0. */
typedef struct {
	const void *address;
	size_t length;
} rondpoint_slice;

/* A node that gets a copy, and the CPUs that read it, by the kernel's numbers. */
typedef struct {
	uint32_t node;
	uint32_t cpu_count;
	const uint32_t *cpus;
} rondpoint_place;

/* How copies are made. NULL instead of options, or all zero but for the size, is the default. */
typedef struct {
	size_t size;               /* sizeof(rondpoint_options) */
	uint64_t budget_bytes;     /* that all copies may take; 0: as much as there is */
	uint32_t threads_per_node; /* that fill one copy; 0: the library's choice */
	uint32_t flags;            /* RONDPOINT_NO_HUGE_PAGES or 0 */
	const rondpoint_place *places; /* which copies there are; NULL: one for each node */
	size_t place_count;
} rondpoint_options;

#define RONDPOINT_NO_HUGE_PAGES 1u

/* Why there are no copies. */
enum {
	RONDPOINT_COPIES = 0,        /* there are */
	RONDPOINT_ONE_NODE = 1,      /* the original is the nearest copy */
	RONDPOINT_EMPTY = 2,         /* no data */
	RONDPOINT_BUDGET = 3,        /* more than budget_bytes */
	RONDPOINT_NODE_FULL = 4,     /* a node has too little memory */
	RONDPOINT_CGROUP_FULL = 5,   /* the cgroup's memory limit is too low */
	RONDPOINT_MISPLACED = 6,     /* pages came to lie on other nodes */
	RONDPOINT_NO_PERMISSION = 7, /* memory cannot be placed on a node */
	RONDPOINT_FAILED = 8         /* a system call failed while copying */
};

/*
 * Copies a file or memory to every node; the calling thread waits.
 *
 * Nothing may write to the file or truncate it while the replica is in use; replace it with rename.
 * The memory is released by release(context) when it is not needed, by any thread: before the
 * function returns where copies were made. A NULL release leaves the memory alone; then it stays
 * until the replica is freed. Where the function fails, release is not called.
 */
rondpoint_replica *rondpoint_replica_of_file(const char *path, const rondpoint_options *options);
rondpoint_replica *rondpoint_replica_of_memory(const void *bytes, size_t length,
					       void (*release)(void *), void *context,
					       const rondpoint_options *options);

/*
 * The copy that is nearest to the calling thread, in a few nanoseconds; valid until the replica is
 * freed. Any copy is correct: a thread that moves to another node may keep it, and is faster if it
 * asks again.
 */
rondpoint_slice rondpoint_replica_nearest(const rondpoint_replica *replica);

/* RONDPOINT_COPIES, or why there are none. */
int rondpoint_replica_refusal(const rondpoint_replica *replica);

/*
 * Writes a line about the copies, or why there are none, as snprintf does: cut to capacity, with
 * the 0 at its end. Returns the length of the whole line.
 */
size_t rondpoint_replica_describe(const rondpoint_replica *replica, char *buffer, size_t capacity);

/* Frees the copies. Nothing may read them any more. NULL is nothing. */
void rondpoint_replica_free(rondpoint_replica *replica);

/* A version that is kept for its reader. The fields after the generation are the library's. */
typedef struct {
	rondpoint_slice data; /* the copy that is nearest to the thread that pinned it */
	uint64_t generation;  /* 1 for the first version, one more for each later one */
	const rondpoint_versions *versions;
	size_t internal[2];
} rondpoint_pin;

/* Begins with one version; as the functions for a replica. */
rondpoint_versions *rondpoint_versions_of_file(const char *path, const rondpoint_options *options);
rondpoint_versions *rondpoint_versions_of_memory(const void *bytes, size_t length,
						 void (*release)(void *), void *context,
						 const rondpoint_options *options);

/*
 * Makes data the newest version and returns its generation. Copies it to every node first: readers
 * go on with the version before, and the calling thread waits. Returns 0 where the file cannot be
 * read or readers hold three old versions. The memory is then released, unless its address or
 * length was not valid.
 */
uint64_t rondpoint_versions_publish_file(const rondpoint_versions *versions, const char *path);
uint64_t rondpoint_versions_publish_memory(const rondpoint_versions *versions, const void *bytes,
					   size_t length, void (*release)(void *), void *context);

/* Keeps the newest version until it is unpinned, by any thread. Hold it for a request. */
rondpoint_pin rondpoint_versions_pin(const rondpoint_versions *versions);
/* The pin is empty then, and may be unpinned again; a copy of it may not. */
void rondpoint_versions_unpin(rondpoint_pin *pin);

/* Bytes that the copies of all versions take now. */
uint64_t rondpoint_versions_copied_bytes(const rondpoint_versions *versions);

/* As rondpoint_replica_describe, of the newest version. */
size_t rondpoint_versions_describe(const rondpoint_versions *versions, char *buffer,
				   size_t capacity);

/* Frees all versions. None may be pinned. NULL is nothing. */
void rondpoint_versions_free(rondpoint_versions *versions);

/* The message of the last function that failed in this thread, until the next one fails. */
const char *rondpoint_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
