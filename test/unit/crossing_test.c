/*
 * crossing_test.c - unit tests of the crossover that measured times give (src/service/crossing.h).
 */
#include "check.h"
#include "service/crossing.h"

#define MOST_SIZES	12

/* Timings of sizes that double from 4096 on: pairs of the device's time and the CPU's. */
static int
make_timings(GpusortTiming *timings, const double *times, int n)
{
	for (int i = 0; i < n; i++)
	{
		timings[i].rows = 4096u << i;
		timings[i].device_us = times[2 * i];
		timings[i].cpu_us = times[2 * i + 1];
	}
	return n;
}

/* The crossover must be between least and most, and the timings clear or not. */
static void
test(const char *name, const double *times, int n, uint32_t least, uint32_t most, bool clear)
{
	GpusortTiming timings[MOST_SIZES];
	uint32_t	crossover = gpusort_crossing(timings, make_timings(timings, times, n));

	CHECK(crossover >= least && crossover <= most, "%s: %u is not between %u and %u", name, crossover, least, most);
	CHECK(gpusort_crossing_is_clear(timings, n) == clear, "%s: clear or not", name);
}

#define TEST(name, least, most, clear, ...) \
	do { \
		const double times[] = {__VA_ARGS__}; \
		test(name, times, LENGTH(times) / 2, least, most, clear); \
	} while (0)

/* A device with fixed costs, and a CPU without: the crossover of the model must be found. */
static void
test_model(void)
{
	for (double fixed = 100; fixed < 1600; fixed *= 1.1)
	{
		double		device_ns = 1;
		double		cpu_ns = 11;
		double		exact = fixed * 1000 / (cpu_ns - device_ns);
		GpusortTiming timings[MOST_SIZES];
		int			n = 0;
		uint32_t	found;

		while (n < MOST_SIZES && !gpusort_crossing_is_clear(timings, n))
		{
			timings[n].rows = 4096u << n;
			timings[n].device_us = fixed + timings[n].rows * device_ns / 1000;
			timings[n].cpu_us = timings[n].rows * cpu_ns / 1000;
			n++;
		}
		found = gpusort_crossing(timings, n);
		CHECK(found >= 0.97 * exact && found <= 1.03 * exact, "fixed costs of %.0f us: %u instead of %.0f", fixed, found, exact);
	}
}

/* Random times: the device is faster from the crossover on, and slower at the last size below it. */
static void
test_random(void)
{
	for (int round = 0; round < 10000; round++)
	{
		GpusortTiming timings[MOST_SIZES];
		int			n = 1 + random_bits() % MOST_SIZES;
		uint32_t	crossover;
		bool		right = true;
		bool		faster_below = false;

		for (int i = 0; i < n; i++)
		{
			timings[i].rows = 4096u << i;
			timings[i].device_us = random_bits() % 8;
			timings[i].cpu_us = random_bits() % 8 + 0.5;
		}
		crossover = gpusort_crossing(timings, n);
		for (int i = 0; i < n; i++)
		{
			if (timings[i].rows >= crossover)
				right = right && gpusort_device_wins(&timings[i]);
			else
				faster_below = gpusort_device_wins(&timings[i]);
		}
		CHECK(right && !faster_below, "round %d of %d sizes: %u", round, n, crossover);
	}
}

int
main(void)
{
	TEST("no size", GPUSORT_CROSSOVER_NEVER, GPUSORT_CROSSOVER_NEVER, false, 0);
	TEST("always faster", 4096, 4096, true, 1, 2, 1, 4, 1, 8, 1, 16, 1, 32, 1, 64, 1, 128);
	TEST("always faster, but at small sizes", 4096, 4096, false, 1, 2, 1, 4, 1, 8, 1, 16, 1, 32, 1, 64);
	TEST("never faster", GPUSORT_CROSSOVER_NEVER, GPUSORT_CROSSOVER_NEVER, false, 2, 1, 4, 1, 8, 1);
	TEST("as fast is not faster", GPUSORT_CROSSOVER_NEVER, GPUSORT_CROSSOVER_NEVER, false, 1, 1, 2, 2);
	TEST("one size, faster", 4096, 4096, false, 1, 2);
	TEST("one size, slower", GPUSORT_CROSSOVER_NEVER, GPUSORT_CROSSOVER_NEVER, false, 2, 1);
	TEST("half way between two sizes", 5792, 5793, false, 2, 1, 2, 4);
	TEST("near the smaller size", 4096, 4400, false, 1.01, 1, 1, 4);
	TEST("near the larger size", 7900, 8192, false, 4, 1, 3.99, 4);
	TEST("equal at the smaller size", 4096, 4096, false, 1, 1, 1, 2);
	TEST("a win below does not count", 11585, 11586, false, 1, 2, 2, 1, 2, 4, 2, 8);
	TEST("a loss to several threads", 370727, 370728, false, 2, 1, 2, 1, 2, 1, 2, 1, 2, 4, 2, 8, 8, 4, 4, 8);
	TEST("a win at the last size alone", 11585, 11586, false, 2, 1, 2, 1, 2, 4);
	TEST("a loss at the last size", GPUSORT_CROSSOVER_NEVER, GPUSORT_CROSSOVER_NEVER, false, 2, 1, 1, 2, 1, 2, 2, 1);
	TEST("falls back, but at small sizes", GPUSORT_CROSSOVER_NEVER, GPUSORT_CROSSOVER_NEVER, false, 2, 1, 5, 2, 11, 4);
	TEST("falls back", GPUSORT_CROSSOVER_NEVER, GPUSORT_CROSSOVER_NEVER, true, 9, 1, 9, 2, 9, 4, 9, 8, 19, 16, 60, 32, 130, 64);
	TEST("falls back once", GPUSORT_CROSSOVER_NEVER, GPUSORT_CROSSOVER_NEVER, false, 9, 1, 9, 2, 9, 4, 9, 8, 19, 16, 60, 32, 120, 64);
	TEST("slower, but catches up", GPUSORT_CROSSOVER_NEVER, GPUSORT_CROSSOVER_NEVER, false, 999, 1, 999, 2, 999, 4, 999, 8, 999, 16, 999, 32, 999, 64);
	TEST("times of 0", 4096, 8192, false, 0, 0, 0, 1);
	test_model();
	test_random();
	return check_summary();
}
