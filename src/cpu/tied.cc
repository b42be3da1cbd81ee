/*-------------------------------------------------------------------------
 *
 * tied.cc
 *		Finds the tie groups of an order, and sorts most of them by strings, in
 *		several threads.
 *
 * This takes two passes.  In the first, unless the caller knows them, the threads mark the places
 * whose rows tie with the ones before.  In the second, each thread takes a part of the places at a
 * time, and sorts the groups that begin in it; the last of them may reach into the
 * next part.  A place that continues a group keeps a mark other than
 * GPUSORT_TIE_NONE throughout, so the thread that has the next part sees where its first
 * group begins, whatever the first thread has done by then.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/cpu.h"

#include <endian.h>
#include <string.h>

#include <algorithm>

#include "cpu/crew.h"

namespace
{

/* Places that a thread takes at a time; places or rows between two checks */
constexpr size_t PART = 4096;
constexpr size_t CHECK_PLACES = 1024;

/* Comparing this many bytes takes about as long as a place. */
constexpr size_t PLACE_BYTES = 64;

/* Rows of a group that take no memory of their own, and rows that are sorted without a check */
constexpr size_t FEW_ROWS = 1024;
constexpr size_t AT_ONCE = 4096;

/* Look-ahead of prefetches, in places */
constexpr size_t AHEAD = 24;

/* Bytes of a string that a word has, and what is in its last byte if the string has more */
constexpr uint32_t WORD_BYTES = 7;
constexpr uint64_t MORE = 8;

/* A row of the group that a thread sorts */
struct Row
{
	uint64_t	word;			/* of the bytes behind those that its string shares with others: see word_at() */
	const char *bytes;
	uint32_t	length;
	uint32_t	row;
};

/* Returns how many of their first limit bytes two strings share, which share skip of them at least. */
inline uint32_t
common_bytes(const Row &a, const Row &b, uint32_t skip, uint32_t limit)
{
	/* most rows that tie have the same string */
	if (memcmp(a.bytes + skip, b.bytes + skip, limit - skip) == 0)
		return limit;
	while (a.bytes[skip] == b.bytes[skip])
		skip++;
	return skip;
}

/*
 * Returns the 7 bytes at place as a number that compares as they do, padded with zeros, and behind them how many they are, or
 * MORE.  So strings with equal words that do not end with MORE are equal.
 */
inline uint64_t
word_at(const Row &row, uint32_t place)
{
	uint32_t	left = row.length - place;
	uint64_t	word = 0;

	memcpy(&word, row.bytes + place, std::min(left, WORD_BYTES));
	return be64toh(word) | (left > WORD_BYTES ? MORE : left);
}

/* A thread's place for the group that it sorts */
struct Sorter
{
	const GpusortTieInput &input;
	uint32_t   *order;
	uint8_t    *ties;
	Crew	   &crew;
	int			thread;
	size_t		work = 0;		/* places since the last check */
	Row			few[FEW_ROWS];

	Sorter(const GpusortTieInput &input, uint32_t *order, uint8_t *ties, Crew &crew, int thread):
		input(input), order(order), ties(ties), crew(crew), thread(thread)
	{
	}

	/* Counts places that work is done for.  Returns true if stopped. */
	bool
	stopped(size_t places)
	{
		work += places;
		if (work < CHECK_PLACES)
			return false;
		work = 0;
		return crew.stopped(thread);
	}

	/* Does row a come before row b?  Words begin behind the first skip bytes, which all strings share. */
	bool
	before(const Row &a, const Row &b, uint32_t skip) const
	{
		int			result = 0;

		if (a.word != b.word)
			return (a.word < b.word) != input.descending;
		if ((a.word & 0xff) == MORE)
			result = memcmp(a.bytes + skip, b.bytes + skip, std::min(a.length, b.length) - skip);
		if (result == 0 && a.length != b.length)
			result = a.length < b.length ? -1 : 1;
		return result != 0 ? (result < 0) != input.descending : a.row < b.row;
	}

	/*
	 * Sorts rows, which share the first skip bytes, and have their words: quicksort by words, then by the words behind
	 * equal ones.  Returns false if stopped.
	 */
	bool
	sort_words(Row *rows, size_t n, uint32_t skip)
	{
		while (n > AT_ONCE)
		{
			uint64_t	a = rows[n / 4].word;
			uint64_t	b = rows[n / 2].word;
			uint64_t	pivot = std::max(std::min(a, b), std::min(std::max(a, b), rows[n - n / 4].word));
			size_t		less = 0;
			size_t		greater = n;

			for (size_t i = 0; i < greater;)
			{
				if (stopped(1))
					return false;
				if (rows[i].word == pivot)
					i++;
				else if ((rows[i].word < pivot) != input.descending)
					std::swap(rows[i++], rows[less++]);
				else
					std::swap(rows[i], rows[--greater]);
			}
			if (!sort_behind(rows + less, greater - less, skip))
				return false;
			/* the calls for the smaller parts are not deeper than the logarithm of n */
			if (!(less < n - greater ? sort_words(rows, less, skip) : sort_words(rows + greater, n - greater, skip)))
				return false;
			if (less < n - greater)
			{
				rows += greater;
				n -= greater;
			}
			else
				n = less;
		}
		std::sort(rows, rows + n, [=](const Row &a, const Row &b) {
			return before(a, b, skip);
		});
		return !stopped(n);
	}

	/* Sorts rows with equal words. */
	bool
	sort_behind(Row *rows, size_t n, uint32_t skip)
	{
		bool		equal = (rows[0].word & 0xff) != MORE;
		uint32_t	common = rows[0].length;

		if (n <= AT_ONCE)
			return sort_words(rows, n, skip);
		for (size_t i = 1; i < n && !equal; i++)
		{
			if (stopped(1 + common / PLACE_BYTES))
				return false;
			common = common_bytes(rows[0], rows[i], skip, std::min(common, rows[i].length));
		}
		for (size_t i = 0; i < n; i++)
		{
			/* equal strings are sorted by row number */
			rows[i].word = !equal ? word_at(rows[i], common) : input.descending ? ~(uint64_t) rows[i].row : rows[i].row;
			if (stopped(1))
				return false;
		}
		return sort_words(rows, n, common);
	}

	/*
	 * Sorts the group of the n places from begin on in rows, unless the caller must do it: if a string cannot be read, or
	 * their order is another one.  Returns false if stopped.
	 */
	bool
	sort_rows(Row *rows, size_t begin, size_t n)
	{
		uint32_t	skip = 0;	/* bytes that all strings share */
		bool		ready = true;	/* equal strings, by row number */

		for (size_t i = 0; i < n; i++)
		{
			GpusortString string;

			if (n > FEW_ROWS && i + AHEAD < n)
				input.prefetch(input.arg, order[begin + i + AHEAD]);
			if (!input.string(input.arg, order[begin + i], &string) || string.bytes == NULL)
				return true;
			rows[i] = {0, string.bytes, static_cast<uint32_t>(string.length), order[begin + i]};
			skip = i == 0 ? rows[i].length : common_bytes(rows[0], rows[i], 0, std::min(skip, rows[i].length));
			if (skip < rows[0].length || skip < rows[i].length)
			{
				ready = false;
				if (!input.by_bytes)
					return true;
			}
			ready = ready && (i == 0 || rows[i - 1].row < rows[i].row);
			if (stopped(1 + skip / PLACE_BYTES))
				return false;
		}
		for (size_t i = 0; i < n && !ready; i++)
			rows[i].word = word_at(rows[i], skip);
		if (!ready && !sort_words(rows, n, skip))
			return false;
		for (size_t i = 1; i < n; i++)
		{
			bool		equal = !input.decides && rows[i - 1].length == rows[i].length &&
				memcmp(rows[i - 1].bytes + skip, rows[i].bytes + skip, rows[i].length - skip) == 0;

			__atomic_store_n(&ties[begin + i], equal ? GPUSORT_TIE_LEFT : GPUSORT_TIE_BROKEN, __ATOMIC_RELAXED);
			if (stopped(1))
				return false;
		}
		for (size_t i = 0; i < n; i++)
			order[begin + i] = rows[i].row;
		return true;
	}

	/* Sorts the group of n places from begin on, unless the caller must do it.  Returns false if stopped. */
	bool
	sort(size_t begin, size_t n)
	{
		Row		   *rows = n <= FEW_ROWS ? few : allocate<Row>(n);
		bool		going = rows == NULL || sort_rows(rows, begin, n);

		if (rows != few)
			release(rows, n);
		return going;
	}

	bool
	continues(size_t place) const
	{
		return place < input.n && __atomic_load_n(&ties[place], __ATOMIC_RELAXED) != GPUSORT_TIE_NONE;
	}

	/* Sorts the groups that begin at the places from begin to end - 1.  Returns false if stopped. */
	bool
	sort_part(size_t begin, size_t end)
	{
		size_t		ahead;

		while (begin < end && continues(begin))
			begin++;
		ahead = begin;
		for (size_t next; begin < end; begin = next)
		{
			for (next = begin + 1; continues(next);)
				next++;
			/* the places behind this part may be another thread's */
			for (; ahead < std::min(std::min(next, begin + FEW_ROWS) + AHEAD, end); ahead++)
			{
				if (continues(ahead) || continues(ahead + 1))
					input.prefetch(input.arg, order[ahead]);
			}
			ahead = std::max(ahead, next);
			if (stopped(next - begin) || (next - begin > 1 && !sort(begin, next - begin)))
				return false;
		}
		return !crew.stopped(thread);
	}
};

/* Marks the places from begin to end - 1.  Returns false if stopped. */
bool
mark_part(const GpusortTieInput &input, uint8_t *ties, size_t begin, size_t end, Crew &crew, int thread)
{
	for (size_t i = begin; i < end; i++)
	{
		ties[i] = i > 0 && input.tied(input.arg, i) ? GPUSORT_TIE_LEFT : GPUSORT_TIE_NONE;
		if (i % CHECK_PLACES == 0 && crew.stopped(thread))
			return false;
	}
	return true;
}

}								/* namespace */

GpusortCpuStatus
gpusort_tied_sort(const GpusortTieInput *input, uint32_t *order, uint8_t *ties,
				  const GpusortCpuOptions *options)
{
	Crew		crew(options);

	if (!input->marked)
		for_parts(&crew, input->n, PART, [&](size_t begin, size_t end, int thread) {
			return mark_part(*input, ties, begin, end, crew, thread);
		});
	else if (input->n > 0)
		ties[0] = GPUSORT_TIE_NONE;
	if (input->string != NULL && crew.status() == GPUSORT_CPU_OK)
	{
		for_parts(&crew, input->n, PART, [&](size_t begin, size_t end, int thread) {
			Sorter		sorter(*input, order, ties, crew, thread);

			return sorter.sort_part(begin, end);
		});
	}
	return crew.status();
}
