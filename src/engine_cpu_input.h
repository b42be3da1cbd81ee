/*-------------------------------------------------------------------------
 *
 * engine_cpu_input.h
 *		The CPU engine's input: spans of words, seen as keys.
 *
 * Words are encoded each time they are looked at.  That costs less than memory
 * for the keys would, whose first touch is as expensive as the sort.  Every
 * loop over the input is compiled for each encoding and width.  C++, for
 * engine_cpu.cc alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_ENGINE_CPU_INPUT_H
#define GPUSORT_ENGINE_CPU_INPUT_H

#include "engine_cpu_crew.h"
#include "engine_cpu_scan.h"

namespace
{

/* Words looked at between two looks at the cancel flag. */
constexpr size_t STRIDE = 1024 * 1024;

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

template <typename Encoding>
struct Input
{
	typedef typename Encoding::Key Key;

	const GpusortSpan *spans;
	size_t		nspans;
	size_t		n;
	Encoding	key_of;

	explicit Input(const GpusortCpuInput &input):
		spans(input.spans), nspans(input.nspans), n(0), key_of{Key(input.encoding.flip)}
	{
		for (size_t i = 0; i < nspans; i++)
			n += spans[i].count;
	}

	/* Calls use(words, count, position) for pieces of [begin, end), in order. */
	template <typename Use>
	void
	each_piece(size_t begin, size_t end, Use use) const
	{
		size_t		span_begin = 0;

		for (size_t i = 0; i < nspans && span_begin < end; i++)
		{
			const Key  *words = static_cast<const Key *>(spans[i].words);
			size_t		span_end = span_begin + spans[i].count;
			size_t		from = begin > span_begin ? begin : span_begin;
			size_t		to = end < span_end ? end : span_end;

			for (; from < to; from += STRIDE)
			{
				size_t		count = to - from < STRIDE ? to - from : STRIDE;

				if (!use(words + (from - span_begin), count, from))
					return;
			}
			span_begin = span_end;
		}
	}

	/* The key at a position. */
	Key
	at(size_t position) const
	{
		size_t		i = 0;

		while (position >= spans[i].count)
			position -= spans[i++].count;
		return key_of(static_cast<const Key *>(spans[i].words)[position]);
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
	typedef typename In::Key Key;
	bool		ascending = true;
	bool		descending = true;
	Key			last = 0;

	input.each_piece(0, input.n, [&](const Key *words, size_t count, size_t position) {
		for (size_t i = 0; i < count && (ascending || descending); i++)
		{
			Key			key = input.key_of(words[i]);

			if (position + i > 0)
			{
				ascending &= last <= key;
				descending &= last > key;
			}
			last = key;
		}
		return (ascending || descending) && !crew->stopped(0);
	});
	return ascending ? ASCENDING : descending ? DESCENDING : UNORDERED;
}

}								/* namespace */

#endif							/* GPUSORT_ENGINE_CPU_INPUT_H */
