/*-------------------------------------------------------------------------
 *
 * fuzz.h
 *		Makes a program of a fuzz target.
 *
 * A target defines LLVMFuzzerTestOneInput() and aborts at a failed check.  With clang,
 * libFuzzer calls it and chooses inputs by coverage.  With other compilers, define
 * FUZZ_RANDOM: the driver here calls it with random bytes for -max_total_time=N seconds
 * from -seed=N, which are libFuzzer's option names, and prints the seed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition) \
	do { \
		if (!(condition)) \
		{ \
			fprintf(stderr, "%s:%d: failed check: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

#ifdef FUZZ_RANDOM
/* splitmix64: Steele, Lea, Flood, OOPSLA 2014 */
static uint64_t
fuzz_random(uint64_t *state)
{
	uint64_t	z = (*state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

int
main(int argc, char **argv)
{
	uint64_t	state = (uint64_t) time(NULL);
	unsigned	seconds = 10;
	unsigned long runs = 0;
	time_t		end;

	for (int i = 1; i < argc; i++)
	{
		if (strncmp(argv[i], "-seed=", 6) == 0)
			state = strtoull(argv[i] + 6, NULL, 10);
		else if (strncmp(argv[i], "-max_total_time=", 16) == 0)
			seconds = strtoul(argv[i] + 16, NULL, 10);
	}
	fprintf(stderr, "random bytes, -seed=%llu\n", (unsigned long long) state);
	end = time(NULL) + seconds;
	while (time(NULL) < end)
	{
		for (int i = 0; i < 100; i++, runs++)
		{
			uint64_t	bytes[64];
			size_t		size = fuzz_random(&state) % sizeof(bytes);

			/* all magnitudes; the leading bits are all ones as often as all zeros */
			for (size_t j = 0; j < 64; j++)
				bytes[j] = (fuzz_random(&state) >> (fuzz_random(&state) % 64)) ^ -(fuzz_random(&state) & 1);
			LLVMFuzzerTestOneInput((const uint8_t *) bytes, size);
		}
	}
	fprintf(stderr, "Done %lu runs\n", runs);
	return 0;
}
#endif							/* FUZZ_RANDOM */

#endif							/* FUZZ_H */
