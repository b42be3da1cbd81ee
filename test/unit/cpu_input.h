/*-------------------------------------------------------------------------
 *
 * cpu_input.h
 *		Input for the tests of the CPU engine, and threads that cannot be made.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_TEST_CPU_INPUT_H
#define GPUSORT_TEST_CPU_INPUT_H

#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>

#include "check.h"
#include "cpu/cpu.h"
#include "key/keybits.h"

/* ---- threads ---- */

/* Every n-th thread cannot be made; 0: all can. */
static int	refuse_every = 0;

/* Replaces the function of the C library, which it calls unless it refuses the thread. */
int
pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start) (void *), void *arg)
{
	static int	(*create) (pthread_t *, const pthread_attr_t *, void *(*) (void *), void *) = NULL;
	static int	calls = 0;

	if (refuse_every > 0 && ++calls % refuse_every == 0)
		return EAGAIN;
	if (create == NULL)
		*(void **) &create = dlsym(RTLD_NEXT, "pthread_create");
	return create(thread, attr, start, arg);
}

/* ---- keys of one word ---- */

__attribute__((unused)) static const char *const distributions[] = {
	"uniform", "constant", "two values", "sorted", "reverse", "reverse with ties",
	"few distinct", "gaussian", "outlier and dense", "zipf", "exponential", "two clusters",
	"low bits only", "high bits only", "equal prefix", "runs of equal prefix", "organ pipe",
	"sawtooth", "almost sorted", "extremes", "outliers on both sides", "many outliers",
	"crowd in the middle", "not as the sample"
};

#define NDISTRIBUTIONS	LENGTH(distributions)

/* Is row i of n in the sample by which the engine chooses bins?  As take_sample() in cpu/sort.h. */
UNIT_FUNCTION bool
is_sampled(size_t i, size_t n)
{
	size_t		step = n / 4096 > 256 ? n / 4096 : 256;
	size_t		count = i / step;

	return i == count * step + (count * UINT64_C(0x9E3779B97F4A7C15) >> 32) % step;
}

/* The i-th of n keys.  A key of 4 bytes is its upper half. */
UNIT_FUNCTION uint64_t
make_key(int distribution, size_t i, size_t n)
{
	uint64_t	r = random_bits();

	switch (distribution)
	{
		case 0:
			return r;
		case 1:
			return UINT64_C(0x123456789ABCDEF0);
		case 2:
			return r & 1 ? UINT64_MAX : 0;
		case 3:
			return (uint64_t) i << 33;
		case 4:
			return (uint64_t) (n - i) << 33;
		case 5:
			return (uint64_t) ((n - i) / 3) << 33;
		case 6:
			return (r % 100) << 40;
		case 7:
			return (r >> 2) + (random_bits() >> 2) / 2 + (random_bits() >> 2) / 2;
		case 8:
			return i == n / 2 ? UINT64_MAX : (r % 100000) << 32;
		case 9:
			return (uint64_t) (1e9 / (1 + r % 1000000)) << 32;
		case 10:
			return r >> (random_bits() % 64);
		case 11:
			return (r & 1 ? UINT64_C(0xF000000000000000) : 0) + ((r >> 8) % 1000 << 32);
		case 12:
			return (UINT64_C(0xABCDEF) << 40) + (r % 65536 << 20);
		case 13:
			return r & UINT64_C(0xFF00000000000000);
		case 14:
			return (UINT64_C(0xABCDEF01) << 32) + (r & 0xFFFFFFFF);
		case 15:
			return ((r % 1000) << 52) + (random_bits() % 5);
		case 16:
			return (uint64_t) (i < n / 2 ? i : n - i) << 34;
		case 17:
			return (uint64_t) (i % 1000) << 40;
		case 18:
			return r % 1000 == 0 ? r : (uint64_t) i << 33;
		case 20:
			/* ten on each side, which the sample does not have */
			if (i % (n / 20 + 1) == 5)
				return i % 2 ? r >> 20 : ~(r >> 20);
			return UINT64_C(0x7FFFFF0000000000) + (r % 1000000 << 32);
		case 21:
			/* open bins that are not small, and one that is large */
			return r % 10 < 2 ? r << 4 : UINT64_C(0x7FFFFF0000000000) + (r % 1000000 << 32);
		case 22:
			return r % 3 ? r << 2 : UINT64_C(0x7FFFFF0000000000) + (random_bits() % 5 << 32);
		case 23:
			return is_sampled(i, n) ? r % 100 << 32 : r;
		default:
			return r % 3 == 0 ? UINT64_MAX : r % 3 == 1 ? 0 : r;
	}
}

/* Splits n keys of width bytes into at most 64 spans, in one of three ways.  Returns the number of spans. */
UNIT_FUNCTION size_t
split(const char *keys, size_t n, int width, int way, GpusortSpan *spans)
{
	size_t		nspans = 0;
	size_t		done = 0;

	while (done < n || nspans == 0)
	{
		size_t		count = way == 0 ? n : way == 1 ? n / 3 + 1 : (nspans % 2 ? 0 : n / 17 + 1);

		if (count > n - done)
			count = n - done;
		spans[nspans].words = keys + done * width;
		spans[nspans++].count = count;
		done += count;
	}
	return nspans;
}

/* Counts places of sorted keys whose mark is not what tied(arg, place) says. */
UNIT_FUNCTION size_t
count_wrong_ties(const uint8_t *ties, size_t n, bool (*tied) (const void *, size_t), const void *arg)
{
	size_t		wrong = n > 0 && ties[0] != 0;

	for (size_t i = 1; i < n; i++)
		wrong += ties[i] != tied(arg, i);
	return wrong;
}

/* ---- keys of several words ---- */

__attribute__((unused)) static const char *const shapes[] = {
	"random", "few first words", "few of each", "many and an integer", "constant first", "last differs",
	"sorted", "reverse", "reverse with ties", "equal", "two first words", "first in pairs",
	"outliers in each", "at a power of two", "small ranges", "crowds in a tie",
	"far outliers", "almost sorted"
};

#define NSHAPES		LENGTH(shapes)

/* Makes the i-th of n keys of several words. */
UNIT_FUNCTION void
make_words(int shape, size_t i, size_t n, int words, uint64_t *key)
{
	for (int w = 0; w < words; w++)
	{
		uint64_t	r = random_bits();
		int			last = w == words - 1;

		switch (shape)
		{
			case 0:
				key[w] = r;
				break;
			case 1:
				/* values so far apart that the word needs 64 bits */
				key[w] = w > 0 ? r : (r % 10) * UINT64_C(0x1999999999999999);
				break;
			case 2:
				key[w] = (r % 3) * UINT64_C(0x5555555555555555);
				break;
			case 3:
				key[w] = last ? r >> 32 : r % 1000;
				break;
			case 4:
				key[w] = w == 0 ? UINT64_C(0x123456789ABCDEF0) : r;
				break;
			case 5:
				key[w] = last ? r % (n + 1) : UINT64_MAX;
				break;
			case 6:
				key[w] = w == 0 ? i / 4 : i;
				break;
			case 7:
				key[w] = w == 0 ? (n - i) / 4 : n - i;
				break;
			case 8:
				key[w] = (n - i) / 4;
				break;
			case 9:
				key[w] = UINT64_C(0xFEDCBA9876543210);
				break;
			case 10:
				key[w] = w > 0 ? r : r & GPUSORT_SIGN64;
				break;
			case 11:
				/* tie groups of two keys, many of which the next word decides */
				key[w] = w == 0 ? (i * 7919 % n / 2) * (UINT64_MAX / (n + 1)) : r;
				break;
			case 12:
				key[w] = r % 10007 == 0 ? UINT64_MAX : r % 1000;
				break;
			case 13:
				key[w] = (UINT64_C(1) << 40) - 500 + r % 1000 + (r % 4999 == 0 ? UINT64_C(1) << 62 : 0);
				break;
			case 14:
				key[w] = UINT64_MAX - r % (w + 2);
				break;
			case 15:
				/* most rows tie on the first word, and their next words form 20 dense clusters */
				if (w == 0)
					key[w] = r % 10 ? 128 : r >> 56;
				else
					key[w] = key[0] != 128 ? r : ((r >> 56) % 20 + 1) * UINT64_C(0x0B0B0B0B0B0B0B0B) + r % 5000;
				break;
			case 16:
				/* several values far away on both sides of each word */
				key[w] = r % 1000 < 3 ? r : GPUSORT_SIGN64 + r % 5000;
				break;
			default:
				key[w] = w == 0 ? i / 3 : r % 1000 == 0 ? r : i;
				break;
		}
	}
}

#endif
