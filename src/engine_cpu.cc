/*-------------------------------------------------------------------------
 *
 * engine_cpu.cc
 *		The CPU engine: histogram, partition, then VQSort of each bin.
 *
 * The plan is mppSort's, with a processor's cache in the place of a block's
 * shared memory: find the range of the keys, spread them into 256 bins by
 * their leading bits within that range (one counting and one moving pass, each
 * by all threads), and sort the bins one by one.  A bin fits the L2 cache,
 * where VQSort runs at twice its speed in memory, and bins are what threads
 * share out and what bounds the time to the next look at the cancel flag.
 *
 * Positions are sorted by packing: the top 32 bits of the key's distance from
 * the smallest key, and the row number below them, make one 64-bit element.
 * All elements differ, so any sort is stable.  Where the distance needs more
 * than 32 bits, rows that agree in the prefix are looked at again, by the
 * bits that tell them apart; PostgreSQL calls this an abbreviated key.
 *
 * Input that is in order already, or in reverse, is recognised and copied.
 *
 * VQSort: Wassenberg, Blacher, Giesen, Sanders, "Vectorized and
 * performance-portable Quicksort", arXiv 2205.05982, in libhwy.  Only its
 * entry points for unsigned integers are used: in 1.0.3 the one for floats
 * loses NaN and infinities and the one for 64-bit pairs corrupts payloads.
 *
 *-------------------------------------------------------------------------
 */
#include "engine_cpu.h"

#include <hwy/contrib/sort/vqsort.h>
#include <hwy/targets.h>
#include <string.h>

#include "engine_cpu_input.h"

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

inline int
bit_length(uint64_t value)
{
	return value == 0 ? 0 : 64 - __builtin_clzll(value);
}

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
	scratch = static_cast<Elem *>(allocate(n * sizeof(Elem)));
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
	free(scratch);

	/* a bin of a single value is in order */
	for (size_t bin = 0; shift > 0 && bin < BINS && !crew->stopped(thread); bin++)
		sort_range(elems + start[bin], start[bin + 1] - start[bin], sorter, crew, thread);
}

/* ----------------------------------------------------------------
 *		Elements: what is moved and sorted
 * ----------------------------------------------------------------
 */

/* The keys alone. */
template <typename KeyType>
struct KeyElements
{
	typedef KeyType Key;
	typedef KeyType Elem;

	Key			min;

	Elem
	make(Key distance, size_t position) const
	{
		(void) position;
		return distance + min;
	}

	void
	finish(Elem *elems, size_t n, size_t position, const hwy::Sorter &sorter,
		   Crew *crew, int thread) const
	{
		(void) elems;
		(void) n;
		(void) position;
		(void) sorter;
		(void) crew;
		(void) thread;
	}
};

/*
 * Orders elements (prefix << 32 | row) with equal prefixes by their whole
 * keys, then rows.  Takes the rows' keys apart as the top level does: by the
 * range that these rows have.
 */
template <typename In>
void
repair(uint64_t *elems, size_t n, const In &input, const hwy::Sorter &sorter,
	   Crew *crew, int thread)
{
	uint64_t	few[2 * INSERTION_KEYS];
	uint64_t   *keys = few;
	uint64_t	min = UINT64_MAX;
	uint64_t	max = 0;
	int			shift;

	if (n > 2 * INSERTION_KEYS)
	{
		if (crew->stopped(thread))
			return;
		keys = static_cast<uint64_t *>(allocate(n * sizeof(uint64_t)));
		if (keys == NULL)
		{
			crew->no_memory = true;
			return;
		}
	}
	for (size_t i = 0; i < n; i++)
	{
		keys[i] = input.at(uint32_t(elems[i]));
		min = keys[i] < min ? keys[i] : min;
		max = keys[i] > max ? keys[i] : max;
	}

	/* rows are in order already where the keys are all equal */
	if (min < max)
	{
		shift = bit_length(max - min) > 32 ? bit_length(max - min) - 32 : 0;
		for (size_t i = 0; i < n; i++)
			elems[i] = ((keys[i] - min) >> shift) << 32 | uint32_t(elems[i]);
		sort_range(elems, n, sorter, crew, thread);
	}
	else
		shift = 0;
	if (keys != few)
		free(keys);

	for (size_t begin = 0; shift > 0 && begin < n;)
	{
		size_t		end = begin + 1;

		while (end < n && elems[end] >> 32 == elems[begin] >> 32)
			end++;
		if (end - begin > 1)
			repair(elems + begin, end - begin, input, sorter, crew, thread);
		begin = end;
	}
}

/* Row numbers, with as much of the key in front as fits. */
template <typename In>
struct RowElements
{
	typedef typename In::Key Key;
	typedef uint64_t Elem;

	const In   *input;
	uint32_t   *rows;
	int			prefix_shift;	/* bits of the key that did not fit */

	Elem
	make(Key distance, size_t position) const
	{
		return uint64_t(distance >> prefix_shift) << 32 | uint32_t(position);
	}

	void
	finish(Elem *elems, size_t n, size_t position, const hwy::Sorter &sorter,
		   Crew *crew, int thread) const
	{
		for (size_t begin = 0; prefix_shift > 0 && begin < n;)
		{
			size_t		end = begin + 1;

			while (end < n && elems[end] >> 32 == elems[begin] >> 32)
				end++;
			if (end - begin > 1)
				repair(elems + begin, end - begin, *input, sorter, crew, thread);
			begin = end;
		}
		for (size_t i = 0; i < n; i++)
			rows[position + i] = uint32_t(elems[i]);
	}
};

/* ----------------------------------------------------------------
 *		The pipeline
 * ----------------------------------------------------------------
 */

/* The smallest and the largest key. */
template <typename In>
void
find_range(const In &input, Crew *crew, typename In::Key *min, typename In::Key *max)
{
	typedef typename In::Key Key;
	Key			mins[MAX_THREADS];
	Key			maxs[MAX_THREADS];

	in_parallel(crew->threads, [&](int thread) {
		Key			low = Key(~Key(0));
		Key			high = 0;

		input.each_piece(input.n * thread / crew->threads, input.n * (thread + 1) / crew->threads,
						 [&](const Key *words, size_t count, size_t) {
							 input.key_of.scan(words, count, &low, &high);
							 return !crew->stopped(thread);
						 });
		mins[thread] = low;
		maxs[thread] = high;
	});
	*min = mins[0];
	*max = maxs[0];
	for (int i = 1; i < crew->threads; i++)
	{
		*min = mins[i] < *min ? mins[i] : *min;
		*max = maxs[i] > *max ? maxs[i] : *max;
	}
}

/*
 * Moves the input's elements to out, bin by bin, and sorts each bin.
 * Thread t's keys of bin b go to next[t][b] and up: thread after thread within
 * a bin, so that rows stay in order.
 */
template <typename In, typename Elements>
void
partition_and_sort(const In &input, Crew *crew, const Elements &elements,
				   typename In::Key min, typename In::Key max,
				   typename Elements::Elem *out)
{
	typedef typename In::Key Key;
	int			shift = bin_shift(max - min);
	int			threads = crew->threads;
	size_t		(*next)[BINS] = static_cast<size_t (*)[BINS]>(allocate(threads * sizeof(*next)));
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
						 [&](const Key *words, size_t count, size_t) {
							 for (size_t i = 0; i < count; i++)
								 count_of[Key(input.key_of(words[i]) - min) >> shift]++;
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
							 [&](const Key *words, size_t count, size_t first) {
								 for (size_t i = 0; i < count; i++)
								 {
									 Key			distance = input.key_of(words[i]) - min;

									 out[to[distance >> shift]++] = elements.make(distance, first + i);
								 }
								 return !crew->stopped(thread);
							 });
		});
	free(next);

	if (!crew->stopped(0))
		in_parallel(threads, [&](int thread) {
			hwy::Sorter sorter;
			size_t		bin;

			while ((bin = next_bin++) < BINS && !crew->stopped(thread))
			{
				size_t		n = start[bin + 1] - start[bin];

				/* a bin of one key value has its rows in order already */
				if (n > 1 && shift > 0)
					sort_range(out + start[bin], n, sorter, crew, thread);
				elements.finish(out + start[bin], n, start[bin], sorter, crew, thread);
			}
		});
}

/* Encodes the input into out, or from its end. */
template <typename In>
void
copy_keys(const In &input, typename In::Key *out, bool reverse, Crew *crew)
{
	typedef typename In::Key Key;

	in_parallel(crew->threads, [&](int thread) {
		input.each_piece(input.n * thread / crew->threads, input.n * (thread + 1) / crew->threads,
						 [&](const Key *words, size_t count, size_t position) {
							 Key		   *to = reverse ? out + (input.n - 1 - position) : out + position;
							 ptrdiff_t	step = reverse ? -1 : 1;

							 for (size_t i = 0; i < count; i++)
								 to[ptrdiff_t(i) * step] = input.key_of(words[i]);
							 return !crew->stopped(thread);
						 });
	});
}

template <typename Encoding>
GpusortCpuStatus
sort_keys(const GpusortCpuInput &described, void *result,
		  const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	typedef typename Encoding::Key Key;
	Input<Encoding> input(described);
	Key		   *out = static_cast<Key *>(result);
	Crew		crew(options);
	Order		order;

	*report = {crew.threads, 1};
	if (input.n <= DIRECT_KEYS)
	{
		crew.threads = report->threads = 1;
		copy_keys(input, out, false, &crew);
		if (input.n <= INSERTION_KEYS)
			insertion_sort(out, input.n);
		else if (!crew.cancelled)
		{
			/* kept: its scratch memory is allocated once */
			static const hwy::Sorter sorter;

			sorter(out, input.n, hwy::SortAscending());
		}
		return crew.status();
	}

	order = find_order(input, &crew);
	if (order != UNORDERED && !crew.cancelled)
		copy_keys(input, out, order == DESCENDING, &crew);
	else if (!crew.cancelled)
	{
		Key			min;
		Key			max;

		find_range(input, &crew, &min, &max);
		report->bins = BINS;
		if (!crew.cancelled)
			partition_and_sort(input, &crew, KeyElements<Key>{min}, min, max, out);
	}
	return crew.status();
}

template <typename Encoding>
GpusortCpuStatus
sort_rows(const GpusortCpuInput &described, uint32_t *rows,
		  const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	typedef typename Encoding::Key Key;
	Input<Encoding> input(described);
	Crew		crew(options);
	Order		order;
	Key			min;
	Key			max;

	*report = {crew.threads, 1};
	if (input.n <= DIRECT_KEYS)
		crew.threads = report->threads = 1;
	order = find_order(input, &crew);
	if (order != UNORDERED)
	{
		for (size_t i = 0; i < input.n; i++)
			rows[i] = uint32_t(order == ASCENDING ? i : input.n - 1 - i);
		return crew.status();
	}
	find_range(input, &crew, &min, &max);
	if (!crew.cancelled)
	{
		int			bits = bit_length(uint64_t(max - min));
		RowElements<Input<Encoding>> elements = {&input, rows, bits > 32 ? bits - 32 : 0};
		uint64_t   *elems = static_cast<uint64_t *>(allocate(input.n * sizeof(uint64_t)));

		if (elems == NULL)
			return GPUSORT_CPU_NO_MEMORY;
		report->bins = BINS;
		partition_and_sort(input, &crew, elements, min, max, elems);
		free(elems);
	}
	return crew.status();
}

/* Calls sort with a value of the encoding's type, for the width that input has. */
template <typename Key, typename Sort>
GpusortCpuStatus
with_width(GpusortEncodingKind kind, Sort sort)
{
	switch (kind)
	{
		case GPUSORT_ENCODING_FLOAT:
			return sort(Encoded<Key, GPUSORT_ENCODING_FLOAT>());
		case GPUSORT_ENCODING_FLOAT_RANK:
			return sort(Encoded<Key, GPUSORT_ENCODING_FLOAT_RANK>());
		default:
			return sort(Encoded<Key, GPUSORT_ENCODING_WORD>());
	}
}

template <typename Sort>
GpusortCpuStatus
with_encoding(const GpusortCpuInput *input, Sort sort)
{
	return input->key_bytes == 4 ? with_width<uint32_t>(input->encoding.kind, sort) :
		with_width<uint64_t>(input->encoding.kind, sort);
}

}								/* namespace */

GpusortCpuStatus
gpusort_cpu_sort(const GpusortCpuInput *input, void *out,
				 const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	return with_encoding(input, [&](auto encoding) {
		return sort_keys<decltype(encoding)>(*input, out, options, report);
	});
}

GpusortCpuStatus
gpusort_cpu_argsort(const GpusortCpuInput *input, uint32_t *rows,
					const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	return with_encoding(input, [&](auto encoding) {
		return sort_rows<decltype(encoding)>(*input, rows, options, report);
	});
}

const char *
gpusort_cpu_target(void)
{
	/* the best target is the lowest bit set */
	int64_t		targets = hwy::SupportedTargets();

	return hwy::TargetName(targets & -targets);
}
