/*-------------------------------------------------------------------------
 *
 * engine_cpu_words.cc
 *		The CPU engine: positions of keys of several words.
 *
 * A pass over all rows finds the smallest and the largest value of each word.
 * A word's distance from its smallest value takes some number of bits, none
 * where the word is the same everywhere; the distances, one after another
 * without a gap, are a number whose order is the keys' order.  What people
 * order by takes few bits that way: a thousand groups and an integer are 42.
 *
 * That number is not stored: any 64 bits of it, from any bit on, are made of a
 * row's words by a subtraction and a shift for each word that has a part in
 * them.  The rest is as for keys of one word (engine_cpu_rows.h).
 *
 *-------------------------------------------------------------------------
 */
#include "engine_cpu_words.h"

#include "engine_cpu_rows.h"

namespace
{

constexpr int MAX_WORDS = 16;

/* Rows that the range is found of side by side: vectors of 8 words. */
constexpr size_t SIDE_BY_SIDE = 8;

/* A word that is not the same everywhere, as a part of the packed number. */
struct Part
{
	int			word;
	int			begin;			/* its first bit and the one after its last, */
	int			end;			/* counted from the most significant */
};

/*
 * Up to 64 bits of the packed number.  PIECES is how many words have a part in
 * them, or 0 where only npieces tells.
 */
template <int PIECES>
struct PackedBits
{
	struct Piece
	{
		int			word;
		int			left;		/* shifts; one is 0 */
		int			right;
		uint64_t	min;
	};

	Piece		pieces[PIECES > 0 ? PIECES : MAX_WORDS];
	int			npieces;
	int			end;			/* the bit after the last */
	uint64_t	range;			/* the largest number, if begun at bit 0 */

	/* Bits before the first one overflow, or are left for the caller to disregard. */
	uint64_t
	operator()(const uint64_t *row) const
	{
		uint64_t	number = 0;

		for (int i = 0; i < (PIECES > 0 ? PIECES : npieces); i++)
			number |= (row[pieces[i].word] - pieces[i].min) << pieces[i].left >> pieces[i].right;
		return number;
	}
};

/* Lowers mins and raises maxs, words of each, to the range of n rows' words. */
GPUSORT_CLONES void
scan_side_by_side(const uint64_t *row, size_t n, size_t words, uint64_t *mins, uint64_t *maxs)
{
	uint64_t	low[MAX_WORDS * SIDE_BY_SIDE];
	uint64_t	high[MAX_WORDS * SIDE_BY_SIDE];
	size_t		width = words * SIDE_BY_SIDE;

	for (size_t i = 0; i < width; i++)
	{
		low[i] = mins[i % words];
		high[i] = maxs[i % words];
	}
	for (; n >= SIDE_BY_SIDE; n -= SIDE_BY_SIDE, row += width)
		for (size_t i = 0; i < width; i += SIDE_BY_SIDE)
			for (size_t lane = i; lane < i + SIDE_BY_SIDE; lane++)
			{
				low[lane] = row[lane] < low[lane] ? row[lane] : low[lane];
				high[lane] = row[lane] > high[lane] ? row[lane] : high[lane];
			}
	for (size_t i = 0; i < n * words; i++)
	{
		low[i] = row[i] < low[i] ? row[i] : low[i];
		high[i] = row[i] > high[i] ? row[i] : high[i];
	}
	for (size_t i = 0; i < width; i++)
	{
		mins[i % words] = low[i] < mins[i % words] ? low[i] : mins[i % words];
		maxs[i % words] = high[i] > maxs[i % words] ? high[i] : maxs[i % words];
	}
}

/* Keys of several words. */
struct WordsInput : Rows<uint64_t, 0>
{
	uint64_t	min[MAX_WORDS];
	uint64_t	max[MAX_WORDS];
	Part		parts[MAX_WORDS];
	int			nparts;
	int			bits;			/* of the packed number */

	explicit WordsInput(const GpusortCpuInput &input):
		Rows<uint64_t, 0>(input), nparts(0), bits(0)
	{
	}

	/* Below zero, zero or above: how two rows compare. */
	int
	compare(const uint64_t *a, const uint64_t *b) const
	{
		for (size_t i = 0; i < words(); i++)
			if (a[i] != b[i])
				return a[i] < b[i] ? -1 : 1;
		return 0;
	}

	/* Finds each word's range, and so the parts. */
	void
	find_range(Crew *crew)
	{
		uint64_t	mins[MAX_THREADS][MAX_WORDS];
		uint64_t	maxs[MAX_THREADS][MAX_WORDS];

		in_parallel(crew->threads, [&](int thread) {
			memset(mins[thread], 0xFF, sizeof(mins[thread]));
			memset(maxs[thread], 0, sizeof(maxs[thread]));
			each_piece(n * thread / crew->threads, n * (thread + 1) / crew->threads,
					   [&](const uint64_t *row, size_t count, size_t) {
						   scan_side_by_side(row, count, words(), mins[thread], maxs[thread]);
						   return !crew->stopped(thread);
					   });
		});
		for (size_t i = 0; i < words(); i++)
		{
			min[i] = mins[0][i];
			max[i] = maxs[0][i];
			for (int thread = 1; thread < crew->threads; thread++)
			{
				min[i] = mins[thread][i] < min[i] ? mins[thread][i] : min[i];
				max[i] = maxs[thread][i] > max[i] ? maxs[thread][i] : max[i];
			}
			if (min[i] < max[i])
			{
				int			end = bits + bit_length(max[i] - min[i]);

				parts[nparts++] = {int(i), bits, end};
				bits = end;
			}
		}
	}

	/* The 64 bits from begin on, or those that there are, of pieces words. */
	template <int PIECES>
	PackedBits<PIECES>
	bits_from(int begin, int end) const
	{
		PackedBits<PIECES> packed;

		packed.npieces = 0;
		packed.end = end;
		for (int i = 0; i < nparts; i++)
		{
			const Part &part = parts[i];

			if (part.end > begin && part.begin < end)
				packed.pieces[packed.npieces++] = {
					part.word,
					part.end < end ? end - part.end : 0,
					part.end > end ? part.end - end : 0,
					min[part.word]
				};
		}
		packed.range = packed(max);
		return packed;
	}

	/*
	 * Calls use with what makes a number of the 64 bits from begin on, or of
	 * all that are left, for rows that agree in those before.
	 */
	template <typename Use>
	void
	with_bits(int begin, Use use) const
	{
		int			end = begin + 64 < bits ? begin + 64 : bits;
		int			pieces = 0;

		for (int i = 0; i < nparts; i++)
			pieces += parts[i].end > begin && parts[i].begin < end;
		if (pieces == 1)
			use(bits_from<1>(begin, end));
		else if (pieces == 2)
			use(bits_from<2>(begin, end));
		else
			use(bits_from<0>(begin, end));
	}
};

}								/* namespace */

GpusortCpuStatus
gpusort_cpu_argsort_words(const GpusortCpuInput *described, uint32_t *rows,
						  const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	WordsInput	input(*described);

	return sort_rows(&input, rows, options, report);
}
