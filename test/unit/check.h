/*
 * check.h - counts checks, prints those that fail, and makes test data.
 */
#ifndef GPUSORT_TEST_CHECK_H
#define GPUSORT_TEST_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not every program uses all of this header. */
#define UNIT_FUNCTION __attribute__((unused)) static

#define LENGTH(array)	((int) (sizeof(array) / sizeof((array)[0])))

/* ----------------------------------------------------------------
 *		Checks
 * ----------------------------------------------------------------
 */

static long passed = 0;
static long failed = 0;

/* Counts one check.  Prints the message with its arguments if it is one of the first 20 that fail. */
#define CHECK(condition, ...) \
	do { \
		if (condition) \
			passed++; \
		else if (failed++ < 20) \
		{ \
			printf("not ok - "); \
			printf(__VA_ARGS__); \
			printf("\n"); \
		} \
	} while (0)

/* Prints the last line, and returns the exit status. */
UNIT_FUNCTION int
check_summary(void)
{
	printf("%ld passed, %ld failed\n", passed, failed);
	return failed > 0;
}

/* ----------------------------------------------------------------
 *		Random numbers
 * ----------------------------------------------------------------
 */

/* xorshift64* with a fixed seed: the numbers are the same in each run and on each machine. */
static unsigned long long random_state = 88172645463325252ULL;

UNIT_FUNCTION unsigned long long
random_bits(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 2685821657736338717ULL;
}

/* ----------------------------------------------------------------
 *		Keys
 * ----------------------------------------------------------------
 */

/* A key of one word and its position in the input. */
typedef struct Pair
{
	uint64_t	key;
	uint32_t	row;
} Pair;

/* For qsort(): by key, then by position, which makes the order stable. */
UNIT_FUNCTION int
compare_pairs(const void *a, const void *b)
{
	const Pair *x = (const Pair *) a;
	const Pair *y = (const Pair *) b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->row < y->row ? -1 : x->row > y->row;
}

/* Compares keys of several words, the most significant word first. */
UNIT_FUNCTION int
compare_words(const uint64_t *a, const uint64_t *b, int words)
{
	for (int w = 0; w < words; w++)
		if (a[w] != b[w])
			return a[w] < b[w] ? -1 : 1;
	return 0;
}

/* Keys are arrays of words of width bytes, 4 or 8. */
UNIT_FUNCTION uint64_t
get_key(const void *keys, int width, size_t i)
{
	return width == 4 ? ((const uint32_t *) keys)[i] : ((const uint64_t *) keys)[i];
}

UNIT_FUNCTION void
set_key(void *keys, int width, size_t i, uint64_t key)
{
	if (width == 4)
		((uint32_t *) keys)[i] = (uint32_t) key;
	else
		((uint64_t *) keys)[i] = key;
}

/* How many of n keys, or of n positions, differ from the expected ones. */
UNIT_FUNCTION size_t
count_wrong_keys(const void *keys, int width, const Pair *expected, size_t n)
{
	size_t		wrong = 0;

	for (size_t i = 0; i < n; i++)
		wrong += get_key(keys, width, i) != expected[i].key;
	return wrong;
}

UNIT_FUNCTION size_t
count_wrong_rows(const uint32_t *rows, const Pair *expected, size_t n)
{
	size_t		wrong = 0;

	for (size_t i = 0; i < n; i++)
		wrong += rows[i] != expected[i].row;
	return wrong;
}

/* ----------------------------------------------------------------
 *		Cancellation
 * ----------------------------------------------------------------
 */

/* A callback for GpusortCpuOptions.pending that returns true after calls_left calls. */
static __attribute__((unused)) int calls_left;

UNIT_FUNCTION bool
cancel_later(void)
{
	return --calls_left < 0;
}

/* A callback for GpusortCpuOptions.serve that cancels the call. */
UNIT_FUNCTION bool
refuse(void)
{
	return false;
}

#endif							/* GPUSORT_TEST_CHECK_H */
