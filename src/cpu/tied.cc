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

/*
 * Comparing this many bytes takes about as long as a place.  The caller must sort groups with
 * more than GROUP_BYTES, so that a thread asks every few milliseconds whether to stop.
 */
constexpr size_t PLACE_BYTES = 64;
constexpr size_t GROUP_BYTES = 1024 * 1024;

/* Look-ahead of prefetches, in places */
constexpr size_t AHEAD = 24;

/* A row of the group that a thread sorts */
struct Row
{
	uint64_t	word;			/* the 8 bytes behind the prefix that all strings share */
	const char *bytes;
	uint32_t	length;
	uint32_t	row;
};

/* Returns the length of the prefix that two strings share in their first limit bytes. */
inline uint32_t
common_bytes(const char *a, const char *b, uint32_t limit)
{
	uint32_t	common = 0;

	/* most rows that tie have the same string */
	if (memcmp(a, b, limit) == 0)
		return limit;
	while (a[common] == b[common])
		common++;
	return common;
}

/* Returns the 8 bytes at place as a number that compares as they do, padded with zeros. */
inline uint64_t
word_at(const Row &row, uint32_t place)
{
	uint64_t	word = 0;

	memcpy(&word, row.bytes + place, std::min<size_t>(row.length - place, sizeof(word)));
	return be64toh(word);
}

/* A thread's place for the group that it sorts */
struct Sorter
{
	const GpusortTieInput &input;
	uint32_t   *order;
	uint8_t    *ties;
	size_t		work = 0;		/* places since the last check */
	Row			rows[GPUSORT_TIED_ROWS];

	Sorter(const GpusortTieInput &input, uint32_t *order, uint8_t *ties):
		input(input), order(order), ties(ties)
	{
	}

	/* Compares the strings of two rows, which share the first skip bytes. */
	static int
	compare(const Row &a, const Row &b, uint32_t skip)
	{
		int			result;

		if (a.word != b.word)
			return a.word < b.word ? -1 : 1;
		result = memcmp(a.bytes + skip, b.bytes + skip, std::min(a.length, b.length) - skip);
		if (result != 0)
			return result;
		return a.length < b.length ? -1 : a.length > b.length;
	}

	/* Reads the strings of n rows into rows.  Returns false if one cannot be read or they are too long. */
	bool
	read(const uint32_t *numbers, size_t n)
	{
		size_t		bytes = 0;

		for (size_t i = 0; i < n; i++)
		{
			GpusortString string;

			if (!input.string(input.arg, numbers[i], &string) || string.bytes == NULL)
				return false;
			bytes += string.length;
			if (bytes > GROUP_BYTES)
				return false;
			rows[i] = {0, string.bytes, static_cast<uint32_t>(string.length), numbers[i]};
		}
		work += bytes / PLACE_BYTES;
		return true;
	}

	/* Sorts the group of the places from begin to end - 1, unless the caller must do it. */
	void
	sort(size_t begin, size_t end)
	{
		size_t		n = end - begin;
		bool		descending = input.descending;
		uint32_t	skip;
		bool		ready = true;	/* equal strings, by row number */

		if (!read(order + begin, n))
			return;
		skip = rows[0].length;
		for (size_t i = 1; i < n; i++)
		{
			skip = common_bytes(rows[0].bytes, rows[i].bytes, std::min(skip, rows[i].length));
			if (skip < rows[0].length || skip < rows[i].length)
			{
				ready = false;
				if (!input.by_bytes)
					return;
			}
			ready = ready && rows[i - 1].row < rows[i].row;
		}
		for (size_t i = 0; i < n; i++)
			rows[i].word = word_at(rows[i], skip);
		if (!ready)
			std::sort(rows, rows + n, [=](const Row &a, const Row &b) {
				int			result = compare(a, b, skip);

				return result != 0 ? (result < 0) != descending : a.row < b.row;
			});
		order[begin] = rows[0].row;
		for (size_t i = 1; i < n; i++)
		{
			order[begin + i] = rows[i].row;
			__atomic_store_n(&ties[begin + i],
							 input.decides || compare(rows[i - 1], rows[i], skip) != 0 ? GPUSORT_TIE_BROKEN : GPUSORT_TIE_LEFT,
							 __ATOMIC_RELAXED);
		}
	}

	bool
	continues(size_t place) const
	{
		return place < input.n && __atomic_load_n(&ties[place], __ATOMIC_RELAXED) != GPUSORT_TIE_NONE;
	}

	/* Sorts the groups that begin at the places from begin to end - 1.  Returns false if stopped. */
	bool
	sort_part(size_t begin, size_t end, Crew &crew, int thread)
	{
		size_t		ahead;

		while (begin < end && continues(begin))
			begin++;
		ahead = begin;
		for (size_t next; begin < end; begin = next)
		{
			for (next = begin + 1; next - begin <= GPUSORT_TIED_ROWS && continues(next);)
				next++;
			/* the places behind this part may be another thread's */
			for (; ahead < std::min(next + AHEAD, end); ahead++)
			{
				if (continues(ahead) || continues(ahead + 1))
					input.prefetch(input.arg, order[ahead]);
			}
			work += next - begin;
			if (next - begin > GPUSORT_TIED_ROWS)
			{
				/* a group for the caller; its places behind this part are skipped there */
				while (next < end && continues(next))
					next++;
			}
			else if (next - begin > 1)
				sort(begin, next);
			if (work >= CHECK_PLACES)
			{
				work = 0;
				if (crew.stopped(thread))
					return false;
			}
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
			Sorter		sorter(*input, order, ties);

			return sorter.sort_part(begin, end, crew, thread);
		});
	}
	return crew.status();
}
