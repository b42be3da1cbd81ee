/*-------------------------------------------------------------------------
 *
 * input.h
 *		The CPU engine's input: spans of words, read as keys.
 *
 * Words are encoded each time they are read.  That is cheaper than storing the
 * keys: the first touch of the memory for them costs as much as the sort.
 * Every loop over the input is compiled for each encoding and width.  C++, for
 * the .cc files of src/cpu only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_INPUT_H
#define GPUSORT_CPU_INPUT_H

#include <algorithm>

#include "cpu/crew.h"
#include "cpu/vectors.h"

namespace
{

/* Words read between two checks of the cancel flag. */
constexpr size_t STRIDE = 1024 * 1024;

static_assert(GPUSORT_MAX_WORDS <= STRIDE, "each_span() reads at least one row at a time");

/* Bits of value without leading zeros, 0 to 64. */
inline int
bit_length(uint64_t value)
{
	return value == 0 ? 0 : 64 - __builtin_clzll(value);
}

/*
 * The rows of an input.  A row has WORDS words or, if WORDS is 0, a number of
 * words that is known only at run time.
 */
template <typename WordType, int WORDS>
struct Rows
{
	typedef WordType Word;

	const GpusortSpan *spans;	/* the caller's */
	size_t		nspans;
	size_t		n;				/* rows of all spans */
	size_t	   *first;			/* position of each span's first row; NULL before index() */

	explicit Rows(const GpusortCpuInput &input):
		spans(input.spans), nspans(input.nspans), n(0), first(NULL),
		counted_words(input.words > 1 ? input.words : 1)
	{
		for (size_t i = 0; i < nspans; i++)
			n += spans[i].count;
	}

	~Rows()
	{
		release(first, nspans);
	}

	Rows(const Rows &) = delete;
	Rows &operator=(const Rows &) = delete;

	/* Returns the number of words of a row. */
	size_t
	words() const
	{
		return WORDS > 0 ? WORDS : counted_words;
	}

	/*
	 * Divides the rows [begin, end) into spans of at most STRIDE words and calls
	 * use(first row, count, position) for each in order, until use returns false.
	 */
	template <typename Use>
	void
	each_span(size_t begin, size_t end, Use use) const
	{
		size_t		stride = STRIDE / words();
		size_t		span_begin = 0;

		for (size_t i = 0; i < nspans && span_begin < end; i++)
		{
			const Word *row = static_cast<const Word *>(spans[i].words);
			size_t		span_end = span_begin + spans[i].count;
			size_t		from = begin > span_begin ? begin : span_begin;
			size_t		to = end < span_end ? end : span_end;

			for (; from < to; from += stride)
			{
				size_t		count = to - from < stride ? to - from : stride;

				if (!use(row + (from - span_begin) * words(), count, from))
					return;
			}
			span_begin = span_end;
		}
	}

	/* Calls use(thread, row, count, position) for the spans of each thread's part, until the crew stops. */
	template <typename Use>
	void
	each_thread_span(Crew *crew, Use use) const
	{
		in_parallel(crew, crew->threads, [&](int thread) {
			each_span(n * thread / crew->threads, n * (thread + 1) / crew->threads,
					  [&](const Word *row, size_t count, size_t position) {
						  use(thread, row, count, position);
						  return !crew->stopped(thread);
					  });
		});
	}

	/* Prepares row().  False if there is no memory. */
	bool
	index()
	{
		size_t		position = 0;

		first = allocate<size_t>(nspans);
		for (size_t i = 0; first != NULL && i < nspans; i++)
		{
			first[i] = position;
			position += spans[i].count;
		}
		return first != NULL;
	}

	/* The row at a position, after index(). */
	const Word *
	row(size_t position) const
	{
		size_t		span = 0;

		/* finds the last span that begins at or before position, without branches */
		for (size_t left = nspans; left > 1;)
		{
			size_t		half = left / 2;

			span = first[span + half] <= position ? span + half : span;
			left -= half;
		}
		return static_cast<const Word *>(spans[span].words) + (position - first[span]) * words();
	}

	/* Compares the words of two rows: below zero, zero or above zero. */
	int
	compare(const Word *a, const Word *b) const
	{
		for (size_t i = 0; i < words(); i++)
			if (a[i] != b[i])
				return a[i] < b[i] ? -1 : 1;
		return 0;
	}

  private:
	size_t		counted_words;
};

inline uint32_t float_key(uint32_t word) { return gpusort_key_float4(word); }
inline uint64_t float_key(uint64_t word) { return gpusort_key_float8(word); }
inline uint32_t rank_key(uint32_t word) { return gpusort_rank_float4(word); }
inline uint64_t rank_key(uint64_t word) { return gpusort_rank_float8(word); }

/* An encoding of words to keys of the same width: () encodes a word, scan() widens a range to n keys. */
template <typename KeyType, GpusortEncodingKind kind>
struct Encoded
{
	typedef KeyType Key;

	Key			flip;			/* bits to complement, see GpusortEncoding */

	Key operator()(Key word) const
	{
		if constexpr (kind == GPUSORT_ENCODING_WORD)
			return word ^ flip;
		else if constexpr (kind == GPUSORT_ENCODING_FLOAT)
			return float_key(word) ^ flip;
		else
			return rank_key(word) ^ flip;
	}

	void
	scan(const Key *words, size_t n, Key *min, Key *max) const
	{
		if constexpr (kind == GPUSORT_ENCODING_WORD)
			gpusort_scan_words(words, n, flip, min, max);
		else if constexpr (kind == GPUSORT_ENCODING_FLOAT)
			gpusort_scan_floats(words, n, flip, min, max);
		else
			gpusort_scan_ranks(words, n, flip, min, max);
	}
};

/*
 * An input whose keys have one word.  Once find_range() has found the smallest
 * key, a key is represented by its distance from that key.
 */
template <typename Encoding>
struct Input : Rows<typename Encoding::Key, 1>
{
	typedef typename Encoding::Key Key;

	Encoding	key_of;
	Key			min;
	Key			max;
	int			bits;			/* bits of the largest distance */

	explicit Input(const GpusortCpuInput &input):
		Rows<Key, 1>(input), key_of{Key(input.encoding.flip)}, min(0), max(0), bits(0)
	{
	}

	/* Compares the keys of two rows: below zero, zero or above zero. */
	int
	compare(const Key *a, const Key *b) const
	{
		Key			x = key_of(*a);
		Key			y = key_of(*b);

		return (x > y) - (x < y);
	}

	/* Finds the smallest and the largest key.  The input is not empty. */
	void
	find_range(Crew *crew)
	{
		Key			mins[MAX_THREADS];
		Key			maxs[MAX_THREADS];

		std::fill_n(mins, MAX_THREADS, Key(~Key(0)));
		std::fill_n(maxs, MAX_THREADS, Key(0));
		this->each_thread_span(crew, [&](int thread, const Key *words, size_t count, size_t) {
			key_of.scan(words, count, &mins[thread], &maxs[thread]);
		});
		min = *std::min_element(mins, mins + crew->threads);
		max = *std::max_element(maxs, maxs + crew->threads);
		bits = bit_length(uint64_t(max - min));
	}

	/* Returns the distance of a row's key from the smallest key. */
	struct Distance
	{
		Encoding	key_of;
		Key			min;
		Key			range;		/* the largest distance */
		int			end;		/* bits of the key that the distance includes: all */

		Key operator()(const Key *row) const { return Key(key_of(*row) - min); }
	};

	/*
	 * Calls use(f), where f(row) is the number made of at most 64 bits of the
	 * row's key from a bit on.  A key of one word has no more than 64 bits, so f
	 * always returns the whole distance.
	 */
	template <typename Use>
	void
	with_bits(int, Use use) const
	{
		use(Distance{key_of, min, Key(max - min), bits});
	}
};

enum Order
{
	UNORDERED,
	ASCENDING,
	DESCENDING					/* strictly, so that reversing keeps equal keys in order */
};

/*
 * Returns whether the input is in order already.  If it is, ties, unless NULL, are those of
 * gpusort_cpu_argsort(), but for the first.  Each thread stops at the
 * first rows that are out of order, so for random input this costs nothing.
 */
template <typename In>
Order
find_order(const In &input, uint8_t *ties, Crew *crew)
{
	typedef typename In::Word Word;
	std::atomic<bool> ascending(true);
	std::atomic<bool> descending(true);
	size_t		words = input.words();

	in_parallel(crew, crew->threads, [&](int thread) {
		const Word *last = NULL;
		size_t		begin = input.n * thread / crew->threads;

		/* begin with the last row of the preceding thread */
		input.each_span(begin > 0 ? begin - 1 : 0, input.n * (thread + 1) / crew->threads,
						 [&](const Word *row, size_t count, size_t position) {
							 bool		up = ascending;
							 bool		down = descending;

							 for (size_t i = 0; i < count && (up || down); i++, row += words)
							 {
								 if (last != NULL)
								 {
									 int			order = input.compare(last, row);

									 up &= order <= 0;
									 down &= order > 0;
									 if (ties != NULL)
										 ties[position + i] = order == 0;
								 }
								 last = row;
							 }
							 if (!up)
								 ascending = false;
							 if (!down)
								 descending = false;
							 return (up || down) && !crew->stopped(thread);
						 });
	});
	return ascending ? ASCENDING : descending ? DESCENDING : UNORDERED;
}

/* gpusort_cpu_in_order() */
template <typename In>
bool
is_in_order(const In &input, const GpusortCpuOptions *options)
{
	Crew		crew(options);

	return find_order(input, NULL, &crew) != UNORDERED && !crew.cancelled;
}

}								/* namespace */

#endif							/* GPUSORT_CPU_INPUT_H */
