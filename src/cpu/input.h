/*-------------------------------------------------------------------------
 *
 * input.h
 *		The CPU engine's input: spans of words, seen as keys.
 *
 * Words are encoded each time they are looked at.  That costs less than memory
 * for the keys would, whose first touch is as expensive as the sort.  Every
 * loop over the input is compiled for each encoding and width.  C++, for the
 * engine_cpu*.cc files alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_INPUT_H
#define GPUSORT_CPU_INPUT_H

#include "cpu/crew.h"
#include "cpu/scan.h"

namespace
{

/* Words looked at between two looks at the cancel flag. */
constexpr size_t STRIDE = 1024 * 1024;

inline int
bit_length(uint64_t value)
{
	return value == 0 ? 0 : 64 - __builtin_clzll(value);
}

/*
 * The rows of an input, WORDS words each, which are told when the code is
 * compiled or, where WORDS is 0, when it runs.
 */
template <typename WordType, int WORDS>
struct Rows
{
	typedef WordType Word;

	const GpusortSpan *spans;
	size_t		nspans;
	size_t		n;
	size_t	   *first;			/* position of each span's first row, once indexed */

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

	/* Words from one row to the next. */
	size_t
	words() const
	{
		return WORDS > 0 ? WORDS : counted_words;
	}

	/* Calls use(row, count, position) for pieces of [begin, end), in order. */
	template <typename Use>
	void
	each_piece(size_t begin, size_t end, Use use) const
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

	/* Makes row() possible; false if there is no memory. */
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

	/* The row at a position. */
	const Word *
	row(size_t position) const
	{
		size_t		span = 0;

		/* the last span that begins at or before it; without branches */
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

/* An encoding of words of KeyType: one word's key, and the range of many. */
template <typename KeyType, GpusortEncodingKind kind>
struct Encoded
{
	typedef KeyType Key;

	Key			flip;

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
 * Keys of one word.  Once their range is known, a key is its distance from the
 * smallest one, a number of bits.
 */
template <typename Encoding>
struct Input : Rows<typename Encoding::Key, 1>
{
	typedef typename Encoding::Key Key;

	Encoding	key_of;
	Key			min;
	Key			max;
	int			bits;

	explicit Input(const GpusortCpuInput &input):
		Rows<Key, 1>(input), key_of{Key(input.encoding.flip)}, min(0), max(0), bits(0)
	{
	}

	/* Below zero, zero or above: how the keys of two rows compare. */
	int
	compare(const Key *a, const Key *b) const
	{
		Key			x = key_of(*a);
		Key			y = key_of(*b);

		return (x > y) - (x < y);
	}

	/* Finds the smallest and the largest key. */
	void
	find_range(Crew *crew)
	{
		Key			mins[MAX_THREADS];
		Key			maxs[MAX_THREADS];
		size_t		n = this->n;

		in_parallel(crew->threads, [&](int thread) {
			Key			low = Key(~Key(0));
			Key			high = 0;

			this->each_piece(n * thread / crew->threads, n * (thread + 1) / crew->threads,
							 [&](const Key *words, size_t count, size_t) {
								 key_of.scan(words, count, &low, &high);
								 return !crew->stopped(thread);
							 });
			mins[thread] = low;
			maxs[thread] = high;
		});
		min = mins[0];
		max = maxs[0];
		for (int i = 1; i < crew->threads; i++)
		{
			min = mins[i] < min ? mins[i] : min;
			max = maxs[i] > max ? maxs[i] : max;
		}
		bits = bit_length(uint64_t(max - min));
	}

	/* A key's distance from the smallest. */
	struct Distance
	{
		Encoding	key_of;
		Key			min;
		Key			range;		/* the largest distance */
		int			end;		/* bits up to which it tells keys apart */

		Key operator()(const Key *row) const { return Key(key_of(*row) - min); }
	};

	/*
	 * Calls use with what makes a number of the bits from begin on, for rows
	 * that agree in those before.  Here it is always the whole distance.
	 */
	template <typename Use>
	void
	with_bits(int begin, Use use) const
	{
		(void) begin;
		use(Distance{key_of, min, Key(max - min), bits});
	}
};

enum Order
{
	UNORDERED,
	ASCENDING,
	DESCENDING					/* strictly */
};

/* Whether the input is in order already; random input is told by its head. */
template <typename In>
Order
find_order(const In &input, Crew *crew)
{
	typedef typename In::Word Word;
	std::atomic<bool> ascending(true);
	std::atomic<bool> descending(true);
	size_t		words = input.words();

	in_parallel(crew->threads, [&](int thread) {
		const Word *last = NULL;
		size_t		begin = input.n * thread / crew->threads;

		/* from the last row of the thread before */
		input.each_piece(begin > 0 ? begin - 1 : 0, input.n * (thread + 1) / crew->threads,
						 [&](const Word *row, size_t count, size_t) {
							 bool		up = ascending;
							 bool		down = descending;

							 for (size_t i = 0; i < count && (up || down); i++, row += words)
							 {
								 if (last != NULL)
								 {
									 int			order = input.compare(last, row);

									 up &= order <= 0;
									 down &= order > 0;
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

}								/* namespace */

#endif							/* GPUSORT_CPU_INPUT_H */
