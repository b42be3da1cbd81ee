/*-------------------------------------------------------------------------
 *
 * sort.h
 *		The CPU engine: partitions elements into bins and sorts each bin.
 *
 * The algorithm is mppSort's, with a processor's cache instead of a block's shared memory:
 * partition the keys into 256 bins by the leading bits of their distance from the smallest
 * key, and sort the bins one by one.  A bin fits the L2 cache, and is the unit of work of a
 * thread.
 *
 * The partition moves elements.  A template argument is the class of elements:
 * KeyElements in cpu/cpu.cc, or RowElements in cpu/rows.h.  Its members are:
 *
 *	()			makes an element of a key's distance and position
 *	defer		called with a bin's unsorted elements; returns true if the bin
 *				must not be sorted now, because the class will do it later
 *	finish		called with a bin's sorted elements
 *
 * C++, for the .cc files of src/cpu only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_SORT_H
#define GPUSORT_CPU_SORT_H

#include <string.h>

#include "cpu/input.h"
#include "cpu/vqsort.h"

namespace
{

constexpr int BIN_BITS = 8;
constexpr size_t BINS = size_t(1) << BIN_BITS;

/* Up to this many keys, VQSort in one thread is faster than partitioning first. */
constexpr size_t DIRECT_KEYS = GPUSORT_CPU_DIRECT_KEYS;

/* The most elements that VQSort gets at once: a few milliseconds of work. */
constexpr size_t LARGEST_BIN = 512 * 1024;

/* The right shift that leaves the leading BIN_BITS bits of numbers up to range. */
inline int
bin_shift(uint64_t range)
{
	int			bits = bit_length(range);

	return bits > BIN_BITS ? bits - BIN_BITS : 0;
}

/* For few elements: at most about GPUSORT_CPU_FEW_KEYS. */
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

/* Sorts elements that fit in the cache. */
template <typename Elem>
void
sort_few(Elem *elems, size_t n)
{
	if (n <= GPUSORT_CPU_FEW_KEYS)
		insertion_sort(elems, n);
	else
		gpusort_vqsort(elems, n);
}

/*
 * Partitions elems, whose smallest is min, by their leading bits after shift:
 * bin b becomes the range from start[b] to start[b + 1].  False if there is no
 * memory.
 */
template <typename Elem>
bool
partition_range(Elem *elems, size_t n, Elem min, int shift, size_t (&start)[BINS + 1])
{
	size_t		next[BINS];
	Elem	   *scratch = allocate<Elem>(n);

	if (scratch == NULL)
		return false;
	memset(start, 0, sizeof(start));
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
	return true;
}

/*
 * Sorts elems.  More than LARGEST_BIN elements are partitioned by their own
 * range first.  Each level of the recursion uses BIN_BITS bits of that range,
 * so the depth is at most 8.
 */
template <typename Elem>
void
sort_range(Elem *elems, size_t n, Crew *crew, int thread)
{
	Elem		min;
	Elem		max;
	size_t		start[BINS + 1];
	int			shift;

	if (n <= LARGEST_BIN)
	{
		sort_few(elems, n);
		return;
	}

	min = max = elems[0];
	gpusort_scan_words(elems, n, Elem(0), &min, &max);
	if (min == max || crew->stopped(thread))
		return;
	shift = bin_shift(max - min);
	if (!partition_range(elems, n, min, shift, start))
	{
		crew->no_memory = true;
		return;
	}

	/* with a shift of 0, all elements of a bin are equal */
	for (size_t bin = 0; shift > 0 && bin < BINS && !crew->stopped(thread); bin++)
		sort_range(elems + start[bin], start[bin + 1] - start[bin], crew, thread);
}

/*
 * A partition of an input's elements, in out, by the leading bits of their
 * keys' distances.  The threads read consecutive parts of the input.  Within a
 * bin, a thread's elements follow those of the threads before it, so the
 * partition is stable.
 */
template <typename In, typename Distance, typename Elements>
struct Partition
{
	typedef typename In::Word Word;

	const In   &input;
	Crew	   *crew;
	const Distance &distance_of;
	const Elements &elements;
	typename Elements::Elem *out;
	int			shift;			/* a distance's bin is distance >> shift */
	size_t		start[BINS + 1];	/* bin b is out[start[b]] to out[start[b + 1] - 1] */

	/*
	 * next[t][b] counts thread t's elements of bin b; then it is where in out
	 * the next of them goes.
	 */
	size_t		(*next)[BINS];

	/* Counts each thread's elements of each bin. */
	void
	make_histograms()
	{
		memset(next, 0, crew->threads * sizeof(*next));
		input.each_thread_span(crew, [&](int thread, const Word *row, size_t count, size_t) {
			const Distance distance = distance_of;	/* local copies stay in registers */
			const size_t words = input.words();
			size_t	   *count_of = next[thread];

			for (size_t i = 0; i < count; i++)
				count_of[distance(row + i * words) >> shift]++;
		});
	}

	/* Turns the counts into positions, by a prefix sum over bins and, in each, over threads. */
	void
	scan_histograms()
	{
		size_t		position = 0;

		for (size_t bin = 0; bin < BINS; bin++)
		{
			start[bin] = position;
			for (int thread = 0; thread < crew->threads; thread++)
			{
				size_t		count = next[thread][bin];

				next[thread][bin] = position;
				position += count;
			}
		}
		start[BINS] = position;
	}

	/* Makes the elements, each in its place. */
	void
	scatter()
	{
		input.each_thread_span(crew, [&](int thread, const Word *row, size_t count, size_t first) {
			const Distance distance = distance_of;	/* local copies stay in registers */
			const Elements make = elements;
			const size_t words = input.words();
			size_t	   *to = next[thread];

			for (size_t i = 0; i < count; i++)
			{
				auto		number = distance(row + i * words);

				out[to[number >> shift]++] = make(number, first + i);
			}
		});
	}

	/* Sorts the bins; each thread takes the next one as soon as it is idle. */
	void
	sort_bins()
	{
		std::atomic<size_t> next_bin(0);

		in_parallel(crew, crew->threads, [&](int thread) {
			size_t		bin;

			while ((bin = next_bin++) < BINS && !crew->stopped(thread))
			{
				size_t		n = start[bin + 1] - start[bin];

				if (elements.defer(out + start[bin], n, start[bin]))
					continue;
				/* with a shift of 0, a bin's elements have equal distances and are in order */
				if (n > 1 && shift > 0)
					sort_range(out + start[bin], n, crew, thread);
				elements.finish(out + start[bin], n, start[bin], thread);
			}
		});
	}
};

/*
 * Makes the input's elements in out, bin by bin, and sorts each bin.
 * distance_of(row) is the distance of a row's key, at most distance_of.range.
 */
template <typename In, typename Distance, typename Elements>
void
partition_and_sort(const In &input, Crew *crew, const Distance &distance_of,
				   const Elements &elements, typename Elements::Elem *out)
{
	Partition<In, Distance, Elements> partition = {input, crew, distance_of, elements, out,
	bin_shift(distance_of.range), {}, allocate<size_t[BINS]>(crew->threads)};

	if (partition.next == NULL)
	{
		crew->no_memory = true;
		return;
	}
	partition.make_histograms();
	partition.scan_histograms();
	if (!crew->stopped(0))
		partition.scatter();
	release(partition.next, crew->threads);
	if (!crew->stopped(0))
		partition.sort_bins();
}

}								/* namespace */

#endif							/* GPUSORT_CPU_SORT_H */
