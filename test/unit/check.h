/*
 * check.h - counts checks and prints those that fail.
 */
#ifndef GPUSORT_TEST_CHECK_H
#define GPUSORT_TEST_CHECK_H

#include <stdio.h>

static long passed = 0;
static long failed = 0;

/* One check; the message is printed, with its arguments, if it fails. */
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

/* The closing line; the exit status. */
static int
check_summary(void)
{
	printf("%ld passed, %ld failed\n", passed, failed);
	return failed > 0;
}

/* xorshift64*: the same numbers everywhere */
static unsigned long long random_state = 88172645463325252ULL;

static unsigned long long
random_bits(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 2685821657736338717ULL;
}

#endif							/* GPUSORT_TEST_CHECK_H */
