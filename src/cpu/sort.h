/*-------------------------------------------------------------------------
 *
 * sort.h
 *		The CPU engine: spreads elements into bins and sorts each.
 *
 * The plan is mppSort's, with a processor's cache in the place of a block's
 * shared memory: spread the keys into 256 bins by the leading bits of their
 * distance from the smallest (one counting and one moving pass, each by all
 * threads), and sort the bins one by one.  A bin fits the L2 cache, where
 * VQSort runs at twice its speed in memory, and bins are what threads share
 * out and what bounds the time to the next look at the cancel flag.
 *
 * What is moved and sorted, an element, is made of a key's distance and its
 * position by a class of elements:
 *
 *	()			the element
 *	put_off		called with a bin's elements before they are sorted; true if
 *				they are left to a later time
 *	finish		called with a bin's elements when they are sorted
 *
 * VQSort: Wassenberg, Blacher, Giesen, Sanders, "Vectorized and
 * performance-portable Quicksort", arXiv 2205.05982, in libhwy.  Only its
 * entry points for unsigned integers are used: in 1.0.3 the one for floats
 * loses NaN and infinities and the one for 64-bit pairs corrupts payloads.
 * C++, for the engine_cpu*.cc files alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_SORT_H
#define GPUSORT_CPU_SORT_H

#include <hwy/contrib/sort/vqsort.h>
#include <string.h>

#include "cpu/input.h"

namespace
{

constexpr int BIN_BITS = 8;
constexpr size_t BINS = size_t(1) << BIN_BITS;

/* Up to here insertion sort beats the set-up of a vector sort. */
constexpr size_t INSERTION_KEYS = 24;

/* Up to here, alone in its thread, VQSort beats partitioning first. */
constexpr size_t DIRECT_KEYS = 128 * 1024;

/* The most that is given to VQSort at once: a few milliseconds. */
constexpr size_t LARGEST_BIN = 512 * 1024;

/* ----------------------------------------------------------------
 *		Sorting a range in place, by one thread
 * ----------------------------------------------------------------
 */

/* The shift that leaves the leading BIN_BITS of numbers up to range. */
inline int
bin_shift(uint64_t range)
{
	int			bits = bit_length(range);

	return bits > BIN_BITS ? bits - BIN_BITS : 0;
}

template <typename Elem>
void
insertion_sort(Elem *elems, size_t n)
{
	for (size_t i = 1; i < n; i++)
	{
		Elem		elem = elems[i];
		size_t		j = i;

		for (; j > 0 && elem < elems[j - 1]; j--)
			elems[j] = elems[j - 1];
		elems[j] = elem;
	}
}

/*
 * Sorts elems.  More than LARGEST_BIN are partitioned by their own range
 * first, through scratch memory; each level uses up BIN_BITS of it, so the
 * depth is at most 8.
 */
template <typename Elem>
void
sort_range(Elem *elems, size_t n, const hwy::Sorter &sorter, Crew *crew, int thread)
{
	Elem		min;
	Elem		max;
	size_t		start[BINS + 1] = {0};
	size_t		next[BINS];
	int			shift;
	Elem	   *scratch;

	if (n <= INSERTION_KEYS)
	{
		insertion_sort(elems, n);
		return;
	}
	if (n <= LARGEST_BIN)
	{
		sorter(elems, n, hwy::SortAscending());
		return;
	}

	min = max = elems[0];
	gpusort_scan_words(elems, n, Elem(0), &min, &max);
	if (min == max || crew->stopped(thread))
		return;
	scratch = allocate<Elem>(n);
	if (scratch == NULL)
	{
		crew->no_memory = true;
		return;
	}
	shift = bin_shift(max - min);
	for (size_t i = 0; i < n; i++)
		start[((elems[i] - min) >> shift) + 1]++;
	for (size_t bin = 0; bin < BINS; bin++)
	{
		start[bin + 1] += start[bin];
		next[bin] = start[bin];
	}
	memcpy(scratch, elems, n * sizeof(Elem));
	for (size_t i = 0; i < n; i++)
		elems[next[(scratch[i] - min) >> shift]++] = scratch[i];
	release(scratch, n);

	/* a bin of a single value is in order */
	for (size_t bin = 0; shift > 0 && bin < BINS && !crew->stopped(thread); bin++)
		sort_range(elems + start[bin], start[bin + 1] - start[bin], sorter, crew, thread);
}

/* ----------------------------------------------------------------
 *		Sorting an input, by all threads
 * ----------------------------------------------------------------
 */

/*
 * Moves the input's elements to out, bin by bin, and sorts each bin.  Bins are
 * told by the leading bits of the keys' distances.
 * Thread t's keys of bin b go to next[t][b] and up: thread after thread within
 * a bin, so that rows stay in order.
 */
template <typename In, typename Distance, typename Elements>
void
partition_and_sort(const In &input, Crew *crew, const Distance &distance_of,
				   const Elements &elements, typename Elements::Elem *out)
{
	typedef typename In::Word Word;
	int			shift = bin_shift(distance_of.range);
	int			threads = crew->threads;
	size_t		(*next)[BINS] = allocate<size_t[BINS]>(threads);
	size_t		start[BINS + 1];
	size_t		position = 0;
	std::atomic<size_t> next_bin(0);

	if (next == NULL)
	{
		crew->no_memory = true;
		return;
	}

	in_parallel(threads, [&](int thread) {
		size_t	   *count_of = next[thread];

		memset(count_of, 0, sizeof(*next));
		input.each_piece(input.n * thread / threads, input.n * (thread + 1) / threads,
						 [&](const Word *row, size_t count, size_t) {
							 const Distance distance = distance_of;	/* these stay in registers */
							 const size_t words = input.words();

							 for (size_t i = 0; i < count; i++)
								 count_of[distance(row + i * words) >> shift]++;
							 return !crew->stopped(thread);
						 });
	});

	for (size_t bin = 0; bin < BINS; bin++)
	{
		start[bin] = position;
		for (int thread = 0; thread < threads; thread++)
		{
			size_t		count = next[thread][bin];

			next[thread][bin] = position;
			position += count;
		}
	}
	start[BINS] = position;

	if (!crew->stopped(0))
		in_parallel(threads, [&](int thread) {
			size_t	   *to = next[thread];

			input.each_piece(input.n * thread / threads, input.n * (thread + 1) / threads,
							 [&](const Word *row, size_t count, size_t first) {
								 const Distance distance = distance_of;
								 const Elements make = elements;
								 const size_t words = input.words();

								 for (size_t i = 0; i < count; i++)
								 {
									 auto		number = distance(row + i * words);

									 out[to[number >> shift]++] = make(number, first + i);
								 }
								 return !crew->stopped(thread);
							 });
		});
	release(next, threads);

	if (!crew->stopped(0))
		in_parallel(threads, [&](int thread) {
			hwy::Sorter sorter;
			size_t		bin;

			while ((bin = next_bin++) < BINS && !crew->stopped(thread))
			{
				size_t		n = start[bin + 1] - start[bin];

				if (elements.put_off(out + start[bin], n, start[bin]))
					continue;
				/* a bin of one distance has its rows in order already */
				if (n > 1 && shift > 0)
					sort_range(out + start[bin], n, sorter, crew, thread);
				elements.finish(out + start[bin], n, start[bin], sorter, crew, thread);
			}
		});
}

}								/* namespace */

#endif							/* GPUSORT_CPU_SORT_H */
