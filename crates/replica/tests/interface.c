/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tries every function of the header; ends with status 1 at the first broken promise. */
#define _GNU_SOURCE
#include <pthread.h>
#include <rondpoint_replica.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static const uint32_t first_cpu[] = {0}, second_cpu[] = {1};
/* Two places on the memory of node 0, so that there are copies on any machine. */
static const rondpoint_place places[] = {{0, 1, first_cpu}, {0, 1, second_cpu}};

static rondpoint_options options(void)
{
	return (rondpoint_options){.size = sizeof(rondpoint_options), .places = places,
				   .place_count = 2};
}

static void count(void *context)
{
	atomic_fetch_add((atomic_int *)context, 1);
}

static void a_replica(const char *path)
{
	rondpoint_options wanted = options();
	rondpoint_replica *replica = rondpoint_replica_of_file(path, &wanted);
	char line[200], cut[5];

	CHECK(replica);
	CHECK(rondpoint_replica_refusal(replica) == RONDPOINT_COPIES);
	rondpoint_slice near = rondpoint_replica_nearest(replica);
	CHECK(near.length == 100000 && ((const char *)near.address)[99999] == 1);
	size_t length = rondpoint_replica_describe(replica, line, sizeof(line));
	CHECK(length == strlen(line) && strncmp(line, "2 copies of 100000 bytes", 24) == 0);
	CHECK(rondpoint_replica_describe(replica, cut, sizeof(cut)) == length);
	CHECK(strcmp(cut, "2 co") == 0);
	CHECK(rondpoint_replica_describe(replica, NULL, 0) == length);
	rondpoint_replica_free(replica);
	rondpoint_replica_free(NULL);
}

static void memory_is_released_once(void)
{
	rondpoint_options wanted = options();
	atomic_int released = 0;
	rondpoint_replica *replica =
		rondpoint_replica_of_memory("abc", 3, count, &released, &wanted);

	CHECK(released == 1);
	CHECK(memcmp(rondpoint_replica_nearest(replica).address, "abc", 3) == 0);
	rondpoint_replica_free(replica);
	CHECK(released == 1);

	const char *text = "abc";
	wanted.budget_bytes = 5;
	replica = rondpoint_replica_of_memory(text, 3, count, &released, &wanted);
	CHECK(rondpoint_replica_refusal(replica) == RONDPOINT_BUDGET);
	CHECK(rondpoint_replica_nearest(replica).address == text && released == 1);
	rondpoint_replica_free(replica);
	CHECK(released == 2);

	wanted.budget_bytes = 0;
	wanted.place_count = 1;
	replica = rondpoint_replica_of_memory(text, 3, NULL, NULL, &wanted);
	CHECK(rondpoint_replica_refusal(replica) == RONDPOINT_ONE_NODE);
	rondpoint_replica_free(replica);
	wanted.place_count = 2;
	replica = rondpoint_replica_of_memory(NULL, 0, NULL, NULL, &wanted);
	CHECK(rondpoint_replica_refusal(replica) == RONDPOINT_EMPTY);
	CHECK(rondpoint_replica_nearest(replica).length == 0);
	rondpoint_replica_free(replica);
}

static void refused(const void *made, const char *message)
{
	CHECK(!made);
	if (!strstr(rondpoint_last_error(), message)) {
		fprintf(stderr, "expected %s: %s\n", message, rondpoint_last_error());
		exit(1);
	}
}

static void bad_input_is_refused_with_a_message(const char *path)
{
	rondpoint_options wanted = options();
	atomic_int released = 0;

	refused(rondpoint_replica_of_file("absent", NULL), "absent: cannot open");
	refused(rondpoint_versions_of_file("/", NULL), "not a regular file");
	refused(rondpoint_replica_of_file(NULL, NULL), "path: null");
	refused(rondpoint_replica_of_memory(NULL, 1, count, &released, NULL), "bytes: null");
	refused(rondpoint_versions_of_memory("", SIZE_MAX, count, &released, NULL), "length");
	CHECK(released == 0);
	wanted.size = 4;
	refused(rondpoint_replica_of_file(path, &wanted), "size 4");
	wanted = options();
	wanted.flags = 6;
	refused(rondpoint_replica_of_file(path, &wanted), "flags 0x6");
	wanted = options();
	wanted.place_count = 0;
	refused(rondpoint_versions_of_file(path, &wanted), "no place");
	const rondpoint_place twice[] = {{0, 1, first_cpu}, {0, 1, first_cpu}};
	wanted.places = twice;
	wanted.place_count = 2;
	refused(rondpoint_replica_of_file(path, &wanted), "CPU 0 is in two places");
}

static void versions_hold_while_they_are_pinned(const char *first, const char *second)
{
	rondpoint_options wanted = options();
	wanted.flags = RONDPOINT_NO_HUGE_PAGES;
	wanted.threads_per_node = 2;
	rondpoint_versions *versions = rondpoint_versions_of_file(first, &wanted);
	atomic_int released = 0;
	char line[200];

	CHECK(versions && rondpoint_versions_copied_bytes(versions) == 200000);
	rondpoint_pin old = rondpoint_versions_pin(versions);
	CHECK(rondpoint_versions_publish_file(versions, second) == 2);
	CHECK(rondpoint_versions_publish_file(versions, "absent") == 0);
	CHECK(strstr(rondpoint_last_error(), "absent"));
	CHECK(old.generation == 1 && old.data.length == 100000);
	CHECK(((const char *)old.data.address)[99999] == 1);
	CHECK(rondpoint_versions_copied_bytes(versions) == 500000);
	rondpoint_versions_describe(versions, line, sizeof(line));
	CHECK(strncmp(line, "2 copies of 150000 bytes", 24) == 0);
	rondpoint_versions_unpin(&old);
	rondpoint_versions_unpin(&old);
	CHECK(rondpoint_versions_publish_memory(versions, "xyz", 3, count, &released) == 3);
	CHECK(released == 1 && rondpoint_versions_copied_bytes(versions) == 6);
	rondpoint_pin new = rondpoint_versions_pin(versions);
	CHECK(new.generation == 3 && memcmp(new.data.address, "xyz", 3) == 0);
	rondpoint_versions_unpin(&new);
	rondpoint_versions_free(versions);
	rondpoint_versions_free(NULL);
}

static void *read_until_the_last(void *context)
{
	const rondpoint_versions *versions = context;
	uint64_t last = 0;

	while (last < 100) {
		rondpoint_pin pin = rondpoint_versions_pin(versions);
		const unsigned char *bytes = pin.data.address;
		CHECK(pin.generation >= last);
		for (size_t i = 0; i < pin.data.length; i += 100)
			CHECK(bytes[i] == pin.generation);
		last = pin.generation;
		rondpoint_versions_unpin(&pin);
	}
	return NULL;
}

static void readers_go_on_during_updates(void)
{
	enum { LENGTH = 10000 };
	rondpoint_options wanted = options();
	unsigned char *bytes = malloc(LENGTH);
	CHECK(bytes);
	memset(bytes, 1, LENGTH);
	rondpoint_versions *versions =
		rondpoint_versions_of_memory(bytes, LENGTH, free, bytes, &wanted);
	pthread_t readers[3];

	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&readers[i], NULL, read_until_the_last, versions) == 0);
	for (uint64_t next = 2; next <= 100;) {
		bytes = malloc(LENGTH);
		CHECK(bytes);
		memset(bytes, (int)next, LENGTH);
		/* Refused, and freed, while the readers hold three old versions. */
		if (rondpoint_versions_publish_memory(versions, bytes, LENGTH, free, bytes))
			next++;
	}
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(readers[i], NULL) == 0);
	rondpoint_versions_free(versions);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	CHECK(strcmp(rondpoint_last_error(), "") == 0);
	a_replica(argv[1]);
	memory_is_released_once();
	bad_input_is_refused_with_a_message(argv[1]);
	versions_hold_while_they_are_pinned(argv[1], argv[2]);
	readers_go_on_during_updates();
	return 0;
}
