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

/* Rows of a group that take no memory of their own, and keys that are sorted without a check, in some milliseconds */
constexpr size_t FEW_ROWS = 1024;
constexpr size_t AT_ONCE = 256 * 1024;

/* Strings are compared if so many sorts by keys have left more than half of them with equal keys. */
constexpr int SLOW_ROUNDS = 4;

/* Look-ahead of prefetches, in places */
constexpr size_t AHEAD = 24;

/* A row of the group that a thread sorts */
struct Row
{
	const char *bytes;
	uint32_t	length:31;
	uint32_t	equal:1;		/* when it is sorted: its string is that of the row before */
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

/* Returns a number that compares as the bytes from place on do, as far as 63 bits have them.  0: there are none. */
inline uint64_t
word_at(const Row &row, uint32_t place)
{
	uint32_t	left = row.length - place;
	uint64_t	word = 0;

	memcpy(&word, row.bytes + place, std::min<size_t>(left, sizeof(word)));
	return left > 0 ? (uint64_t) 1 << 63 | be64toh(word) >> 1 : 0;
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
	Row			few[2 * FEW_ROWS];
	uint64_t	few_keys[FEW_ROWS];

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

	/* Sorts keys, no two of which are equal.  Returns false if stopped. */
	bool
	sort_keys(uint64_t *keys, size_t n)
	{
		while (n > AT_ONCE)
		{
			uint64_t	a = keys[n / 4];
			uint64_t	b = keys[n / 2];
			uint64_t	median = std::max(std::min(a, b), std::min(std::max(a, b), keys[n - 1]));
			size_t		less = std::partition(keys, keys + n, [=](uint64_t key) { return key < median; }) - keys;
			bool		first = less < n - less;

			/* the smaller part first, so that calls are not deep */
			if (stopped(n) || !sort_keys(first ? keys : keys + less, first ? less : n - less))
				return false;
			keys += first ? less : 0;
			n = first ? n - less : less;
		}
		gpusort_cpu_sort_few(keys, n, sizeof(uint64_t));
		return !stopped(n);
	}

	/*
	 * Sorts rows as sort_rows() does, by comparing their strings with that of a pivot.  This is for strings each of which begins
	 * with the one before: a key has some five bytes, of which only the shortest ones get an order.
	 */
	bool
	compare_rows(Row *rows, Row *room, size_t n, uint32_t skip)
	{
		auto		compare = [=](const Row &a, const Row &b) {
			int			order = memcmp(a.bytes + skip, b.bytes + skip, std::min<uint32_t>(a.length, b.length) - skip);

			return order != 0 ? order : (int) a.length - (int) b.length;
		};

		while (n > 1)
		{
			/* any place will do, but the middle of strings that repeat in turn is often the shortest of them */
			Row			pivot = rows[(n * UINT64_C(0x9e3779b97f4a7c15) >> 32) % n];
			size_t		less = 0;
			size_t		same = 0;
			size_t		more = 0;

			for (size_t i = 0; i < n; i++)
			{
				int			order = input.descending ? compare(pivot, rows[i]) : compare(rows[i], pivot);

				rows[i].equal = order == 0 && same > 0;
				(order < 0 ? rows[less++] : order == 0 ? room[same++] : room[n - ++more]) = rows[i];
				if (stopped(1 + (rows[i].length - skip) / PLACE_BYTES))
					return false;
			}
			std::copy(room, room + same, rows + less);
			std::reverse_copy(room + n - more, room + n, rows + less + same);
			if (!compare_rows(less < more ? rows : rows + less + same, room, std::min(less, more), skip))
				return false;
			rows += less < more ? less + same : 0;
			n = std::max(less, more);
		}
		return true;
	}

	/*
	 * Sorts rows, which are in the order of their numbers, and whose strings share the first skip bytes: by keys of the bits
	 * behind the prefix that they share, and then those with equal keys in the same way.  A key ends with the row's place so
	 * far.  room: for n rows; keys: for n.
	 */
	bool
	sort_rows(Row *rows, Row *room, uint64_t *keys, size_t n, uint32_t skip)
	{
		for (int slow = 0; n > 1;)
		{
			int			place_bits = 64 - __builtin_clzll(n);
			uint32_t	common = rows[0].length;
			uint32_t	longest = common;
			size_t		rest = 0;	/* where the most rows with equal keys begin: they are sorted last, so that calls are not deep */
			size_t		most = 1;
			uint32_t	shared = 0; /* bytes that their strings share */

			for (size_t i = 1; i < n; i++)
			{
				common = common_bytes(rows[0], rows[i], skip, std::min<uint32_t>(common, rows[i].length));
				longest = std::max<uint32_t>(longest, rows[i].length);
				rows[i].equal = common == longest;
				if (stopped(1 + (common - skip) / PLACE_BYTES))
					return false;
			}
			if (common == longest)
				return true;
			if (slow == SLOW_ROUNDS)
				return compare_rows(rows, room, n, common);
			for (size_t i = 0; i < n; i++)
			{
				uint64_t	word = word_at(rows[i], common);

				rows[i].equal = false;
				keys[i] = (input.descending ? ~word : word) >> place_bits << place_bits | i;
				if (stopped(1))
					return false;
			}
			if (!sort_keys(keys, n))
				return false;
			for (size_t i = 0; i < n; i++)
			{
				room[i] = rows[keys[i] & (((uint64_t) 1 << place_bits) - 1)];
				keys[i] >>= place_bits;
				if (stopped(1))
					return false;
			}
			memcpy(rows, room, n * sizeof(Row));
			for (size_t begin = 0, end; begin < n; begin = end)
			{
				size_t		sub = begin;
				size_t		count;
				uint32_t	share = common + (63 - place_bits) / 8;

				for (end = begin; end < n && keys[end] == keys[begin]; end++)
					share = std::min<uint32_t>(share, rows[end].length);
				count = end - begin;
				if (count > most)
				{
					std::swap(rest, sub);
					std::swap(most, count);
					std::swap(shared, share);
				}
				if (!sort_rows(rows + sub, room + sub, keys + sub, count, share))
					return false;
			}
			slow += most > n / 2;
			rows += rest;
			room += rest;
			keys += rest;
			n = most;
			skip = shared;
		}
		return true;
	}

	/*
	 * Reads the rows of the group of n places from begin on, in the order of their numbers.  Returns false if the caller must
	 * sort it: if a string cannot be read, or if their order is another one, unless all are equal.
	 */
	bool
	read(Row *rows, size_t begin, size_t n)
	{
		bool		ascending = true;

		for (size_t i = 0; i < n; i++)
		{
			GpusortString string;

			if (n > FEW_ROWS && i + AHEAD < n)
				input.prefetch(input.arg, order[begin + i + AHEAD]);
			if (!input.string(input.arg, order[begin + i], &string) || string.bytes == NULL)
				return false;
			rows[i] = {string.bytes, static_cast<uint32_t>(string.length), false, order[begin + i]};
			if (!input.by_bytes && (string.length != rows[0].length || memcmp(string.bytes, rows[0].bytes, string.length) != 0))
				return false;
			if (stopped(1))
				return false;
			ascending = ascending && (i == 0 || rows[i - 1].row < rows[i].row);
		}
		if (!ascending)
			std::sort(rows, rows + n, [](const Row &a, const Row &b) { return a.row < b.row; });
		return true;
	}

	/* Sorts the group of n places from begin on, unless the caller must do it.  Returns false if stopped. */
	bool
	sort(size_t begin, size_t n)
	{
		Row		   *rows = n <= FEW_ROWS ? few : allocate<Row>(2 * n);
		uint64_t   *keys = n <= FEW_ROWS ? few_keys : allocate<uint64_t>(n);

		if (rows == NULL || keys == NULL)
			crew.no_memory = true;
		else if (read(rows, begin, n) && sort_rows(rows, rows + n, keys, n, 0))
		{
			for (size_t i = 0; i < n; i++)
				order[begin + i] = rows[i].row;
			for (size_t i = 1; i < n; i++)
				__atomic_store_n(&ties[begin + i], rows[i].equal && !input.decides ? GPUSORT_TIE_EQUAL : GPUSORT_TIE_BROKEN,
								 __ATOMIC_RELAXED);
		}
		if (n > FEW_ROWS)
		{
			release(rows, 2 * n);
			release(keys, n);
		}
		return !stopped(n);
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
			if (next - begin > 1 ? !sort(begin, next - begin) : stopped(1))
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
