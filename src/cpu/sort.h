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
 * A few values far away would put all others into one bin.  So a sample of the keys tells where
 * most of them are.  The bins divide that range, and the first and the last bin also get the keys
 * before and behind it.  If a bin is too large for one thread all the same, all threads sort it
 * together after the other bins.
 *
 * The partition moves elements.  A template argument is the class of elements:
 * KeyElements in cpu/cpu.cc, or RowElements in cpu/rows.h.  Its members are:
 *
 *	()			makes an element of a key's distance and position
 *	later		the deferred ranges
 *	defer		called with the unsorted elements of a bin that is too large; returns true if the
 *				bin must not be sorted now, because it has been deferred
 *	finish		called with a bin's sorted elements
 *	sort_open	called with the unsorted elements of an open bin (see Split)
 *
 * C++, for the .cc files of src/cpu only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_SORT_H
#define GPUSORT_CPU_SORT_H

#include <string.h>

#include "cpu/input.h"

namespace
{

constexpr int BIN_BITS = 8;
constexpr size_t BINS = size_t(1) << BIN_BITS;

/*
 * Of n elements, the most that a thread sorts at once: some milliseconds of work, and a part of
 * it for which the other threads need not wait.
 */
inline size_t
most_at_once(size_t n)
{
	constexpr size_t LEAST = 512 * 1024;
	constexpr size_t MOST = 2 * 1024 * 1024;

	return n / 16 < LEAST ? LEAST : n / 16 > MOST ? MOST : n / 16;
}

/* The least bytes of a page of memory */
constexpr size_t PAGE_BYTES = 4096;

/*
 * How numbers are divided into bins.  The numbers of a bin have the same bits above shift.  An
 * open bin is the exception: the first bin if it also has all smaller numbers, and the last bin if it also
 * has all larger ones.
 */
template <typename Number>
struct Split
{
	int			shift;
	Number		first;			/* the first bin's numbers, shifted */
	Number		last;			/* the last bin's */
	bool		open_below;
	bool		open_above;

	size_t
	bin_of(Number number) const
	{
		number >>= shift;
		number = number < first ? first : number;
		return (number > last ? last : number) - first;
	}

	size_t
	bins() const
	{
		return size_t(last - first) + 1;
	}

	bool
	is_open(size_t bin) const
	{
		return (open_below && bin == 0) || (open_above && bin == size_t(last - first));
	}
};

/* Calls use(bin_of), where bin_of(number) is the number's bin.  Numbers are not compared with the bounds if no bin is open. */
template <typename Number, typename Use>
void
with_bins(const Split<Number> &split, Use use)
{
	int			shift = split.shift;

	if (split.open_below || split.open_above)
		use([split](Number number) { return split.bin_of(number); });
	else
		use([shift](Number number) { return size_t(number >> shift); });
}

/* The split of the numbers up to range into at most BINS bins, of which those before low and behind high are open. */
template <typename Number>
Split<Number>
make_split(Number low, Number high, Number range)
{
	Split<Number> split;

	split.shift = std::max(bit_length(high - low) - BIN_BITS, 0);
	for (;; split.shift++)
	{
		split.open_below = low >> split.shift > 0;
		split.open_above = high >> split.shift < range >> split.shift;
		split.first = (low >> split.shift) - split.open_below;
		split.last = (high >> split.shift) + split.open_above;
		if (split.bins() <= BINS)
			return split;
	}
}

/* The sample has one of this many numbers or more, and at most SAMPLE_NUMBERS. */
constexpr size_t SAMPLE_STEP = 256;
constexpr size_t SAMPLE_NUMBERS = 4096;

/* Open bins get one of these parts of the sample on each side, if there are any. */
constexpr size_t TRIMMED_PARTS[] = {256, 16};

/* Open bins have at most this part of all elements: what they have is partitioned once more. */
constexpr size_t OPEN_PART = 4;

/* Fills the sample with the numbers of some rows, in ascending order, and returns how many these are. */
template <typename In, typename Distance>
size_t
take_sample(const In &input, const Distance &distance_of, uint64_t *sample)
{
	size_t		step = std::max(input.n / SAMPLE_NUMBERS, SAMPLE_STEP);
	size_t		count = 0;
	size_t		next = 0;

	input.each_span(0, input.n, [&](const typename In::Word *row, size_t n, size_t position) {
		while (count < SAMPLE_NUMBERS && next < position + n)
		{
			sample[count++] = distance_of(row + (next - position) * input.words());
			/* not at regular distances, because keys may be periodic */
			next = count * step + (count * UINT64_C(0x9E3779B97F4A7C15) >> 32) % step;
		}
		return count < SAMPLE_NUMBERS;
	});
	gpusort_vqsort(sample, count);
	return count;
}

/* The sum of the squares of the numbers of keys in each bin: count times the size of an average key's bin. */
template <typename Number>
size_t
unevenness(const Split<Number> &split, const uint64_t *sample, size_t count)
{
	size_t		sum = 0;

	for (size_t begin = 0, end; begin < count; begin = end)
	{
		size_t		bin = split.bin_of(Number(sample[begin]));

		for (end = begin + 1; end < count && split.bin_of(Number(sample[end])) == bin;)
			end++;
		sum += (end - begin) * (end - begin);
	}
	return sum;
}

/* Chooses the bins of the input's numbers: of the whole range, unless others are far more even. */
template <typename In, typename Distance, typename Number>
Split<Number>
choose_split(const In &input, const Distance &distance_of, Number range)
{
	uint64_t	sample[SAMPLE_NUMBERS];
	size_t		count = input.n > GPUSORT_CPU_DIRECT_KEYS ? take_sample(input, distance_of, sample) : 0;

	if (count == 0)
		return make_split(Number(0), range, range);

	Split<Number> best = make_split(Number(0), range, range);
	size_t		least = unevenness(best, sample, count) / 2;

	for (size_t part : TRIMMED_PARTS)
	{
		Split<Number> split = make_split(Number(sample[count / part]), Number(sample[count - 1 - count / part]), range);
		size_t		uneven = unevenness(split, sample, count);

		if (uneven < least)
		{
			least = uneven;
			best = split;
		}
	}
	return best;
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

/* Elements that a thread reads between two checks of the cancel flag */
constexpr size_t CHECK_ELEMS = 64 * 1024;

/* Calls use(begin, end) for parts of n elements in turn.  Returns false if the crew has stopped before the last. */
template <typename Use>
bool
each_part(size_t n, Crew *crew, int thread, Use use)
{
	for (size_t begin = 0; begin < n; begin += CHECK_ELEMS)
	{
		if (begin > 0 && crew->stopped(thread))
			return false;
		use(begin, n - begin < CHECK_ELEMS ? n : begin + CHECK_ELEMS);
	}
	return true;
}

/* A range of the result, of more than most_at_once() elements, that all threads sort together later */
struct Deferred
{
	size_t		begin;
	size_t		n;
	int			bits;			/* of positions: how many first bits of the keys agree */
};

/* The deferred ranges of n elements.  They are disjoint, so there is room for all. */
struct DeferredList
{
	size_t		most;			/* most_at_once() */
	size_t		room;
	Deferred   *ranges;			/* NULL if there is no memory */
	std::atomic<size_t> count;

	DeferredList(size_t n, Crew *crew):
		most(most_at_once(n)), room(n / most + 1), ranges(allocate<Deferred>(room)), count(0)
	{
		if (ranges == NULL)
			crew->no_memory = true;
	}

	~DeferredList()
	{
		release(ranges, room);
	}

	DeferredList(const DeferredList &) = delete;
	DeferredList &operator=(const DeferredList &) = delete;

	/* Any thread may call it. */
	void
	add(size_t begin, size_t n, int bits)
	{
		ranges[count++] = {begin, n, bits};
	}

	/* Calls sort(range) for each range, also for those that it adds, until the crew stops. */
	template <typename Sort>
	void
	sort_all(Crew *crew, Sort sort)
	{
		while (count > 0 && !crew->stopped(0))
		{
			Deferred	range = ranges[--count];

			sort(range);
		}
	}
};

/*
 * A partition of an input's elements by the leading bits of their
 * keys' distances.  The threads read consecutive parts of the input.  Within a
 * bin, a thread's elements follow those of the threads before it, so the
 * partition is stable.
 */
template <typename In, typename Distance>
struct Partition
{
	typedef typename In::Word Word;
	typedef decltype(Distance::range) Number;

	const In   &input;
	Crew	   *crew;
	const Distance &distance_of;	/* distance_of(row) is the distance of a row's key, at most distance_of.range */
	Split<Number> split;		/* of the distances */
	size_t		start[BINS + 1];	/* bin b is the elements from start[b] to start[b + 1] - 1 */

	/*
	 * next[t][b] counts thread t's elements of bin b; then it is where
	 * the next of them goes.  NULL if there is no memory.
	 */
	size_t		(*next)[BINS];

	Partition(const In &input, Crew *crew, const Distance &distance_of):
		input(input), crew(crew), distance_of(distance_of), next(allocate<size_t[BINS]>(crew->threads))
	{
		if (next == NULL)
		{
			crew->no_memory = true;
			return;
		}
		split = choose_split(input, distance_of, distance_of.range);
		make_histograms();
		scan_histograms();
		if ((split.open_below ? start[1] : 0) + (split.open_above ? input.n - start[split.bins() - 1] : 0) > input.n / OPEN_PART)
		{
			/* the sample is not like the input */
			split = make_split(Number(0), distance_of.range, distance_of.range);
			make_histograms();
			scan_histograms();
		}
	}

	~Partition()
	{
		release(next, crew->threads);
	}

	/* Counts each thread's elements of each bin. */
	void
	make_histograms()
	{
		memset(next, 0, crew->threads * sizeof(*next));
		with_bins(split, [&](auto bin_of_number) {
			input.each_thread_span(crew, [&](int thread, const Word *row, size_t count, size_t) {
				const Distance distance = distance_of;	/* local copies stay in registers */
				const auto	bin_of = bin_of_number;
				const size_t words = input.words();
				size_t	   *count_of = next[thread];

				for (size_t i = 0; i < count; i++)
					count_of[bin_of(distance(row + i * words))]++;
			});
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

	/*
	 * Touches the pages of out.  The first elements go to all bins: if their pages were new, a
	 * thread would wait for hundreds of huge pages before it looks at the cancel flag again.
	 */
	template <typename Elem>
	void
	touch(Elem *out)
	{
		for_parts(crew, input.n, STRIDE, [&](size_t begin, size_t end, int thread) {
			for (size_t i = begin; i < end; i += PAGE_BYTES / sizeof(Elem))
				*const_cast<volatile Elem *>(out + i) = 0;
			return !crew->stopped(thread);
		});
	}

	/* Makes the elements in out, each in its place.  Does nothing if the crew has stopped. */
	template <typename Elements>
	void
	scatter(const Elements &elements, typename Elements::Elem *out)
	{
		if (crew->stopped(0))
			return;
		touch(out);
		with_bins(split, [&](auto bin_of_number) {
			input.each_thread_span(crew, [&](int thread, const Word *row, size_t count, size_t first) {
				const Distance distance = distance_of;	/* local copies stay in registers */
				const auto	bin_of = bin_of_number;
				const Elements make = elements;
				const size_t words = input.words();
				size_t	   *to = next[thread];

				for (size_t i = 0; i < count; i++)
				{
					auto		number = distance(row + i * words);

					out[to[bin_of(number)]++] = make(number, first + i);
				}
			});
		});
	}

	/* Sorts the bins; each thread takes the next one as soon as it is idle.  Does not read the input. */
	template <typename Elements>
	void
	sort_bins(const Elements &elements, typename Elements::Elem *out)
	{
		std::atomic<size_t> next_bin(0);

		if (crew->stopped(0))
			return;
		in_parallel(crew, crew->threads, [&](int thread) {
			size_t		bin;

			while ((bin = next_bin++) < BINS && !crew->stopped(thread))
			{
				size_t		n = start[bin + 1] - start[bin];
				bool		open = split.is_open(bin);

				if (n == 0 || (n > elements.later->most && elements.defer(n, start[bin], open)))
					continue;
				if (open)
				{
					elements.sort_open(out + start[bin], n, start[bin], thread);
					continue;
				}
				/* with a shift of 0, a bin's elements have equal distances and are in order */
				if (n > 1 && split.shift > 0)
					sort_few(out + start[bin], n);
				elements.finish(out + start[bin], n, start[bin], thread);
			}
		});
	}
};

}								/* namespace */

#endif							/* GPUSORT_CPU_SORT_H */
