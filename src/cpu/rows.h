/*-------------------------------------------------------------------------
 *
 * rows.h
 *		The CPU engine: sorts positions.
 *
 * A key is a number of bits (at most 64 for a key of one word, 1024 for one of
 * 16).  Positions are sorted by packing: a row's position in the low bits, as
 * many as the largest one needs, and above it as much of the key as fits make
 * one 64-bit element.  All elements differ, so any sort is stable.  The bits
 * that told bins apart are equal in a bin and are left out: of ten million
 * keys, 24 bits are the position, and 48 bits of the key decide.
 *
 * Where the key has more bits, rows that agree in those that were looked at
 * are looked at again.  PostgreSQL calls that an abbreviated key, and decides
 * by whole keys then; so are a few rows here.  More rows are sorted as all
 * were, by the next 64 bits, of which the leading ones that these rows have in
 * common are left out.  So each time uses up 32 bits at least, and the depth
 * is at most 32 however the keys are made.
 *
 * Most ties are short, and a processor that meets them one after another would
 * spend its time waiting for their rows: these are fetched ahead.  Ties that
 * are a large part of the input would keep one thread busy, and its cancel
 * flag unseen; so would bins.  They are put off, and sorted by all threads
 * when the bins are done.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_ROWS_H
#define GPUSORT_CPU_ROWS_H

#include "cpu/sort.h"

namespace
{

/* Up to here rows are compared one with another. */
constexpr size_t FEW_ROWS = 12;

/* Ties up to here are sorted without malloc(). */
constexpr size_t LOCAL_ROWS = 256;

/* Rows that are fetched ahead of their use; a power of two. */
constexpr size_t AHEAD = 32;

/* Elements looked at between two looks at the cancel flag. */
constexpr size_t ROWS_STRIDE = 64 * 1024;

/* More of n rows than this are sorted by the whole crew. */
inline size_t
large_tie(size_t n)
{
	return n / 16 > LARGEST_BIN ? n / 16 : LARGEST_BIN;
}

/*
 * Rows to be sorted by the whole crew: they lie at [begin, begin + n) of the
 * result, in input order, and agree in the first bits of their keys.
 */
struct Tie
{
	size_t		begin;
	size_t		n;
	int			bits;
};

/* A sort of an input's rows. */
template <typename In>
struct RowSort
{
	const In   *input;
	uint32_t   *rows;			/* the result */
	uint64_t   *elems;			/* as many */
	Crew	   *crew;
	int			row_bits;		/* of an element, for the row */
	size_t		large;			/* large_tie(): more rows are put off */
	Tie		   *ties;			/* put off; disjoint, so there is room for all */
	std::atomic<size_t> nties;

	uint32_t
	row_of(uint64_t elem) const
	{
		return uint32_t(elem & ((uint64_t(1) << row_bits) - 1));
	}

	/* How many of bits do not fit into an element. */
	int
	excess(int bits) const
	{
		return bits > 64 - row_bits ? bits - (64 - row_bits) : 0;
	}

	void
	put_off(size_t begin, size_t n, int bits)
	{
		ties[nties++] = {begin, n, bits};
	}
};

/* Orders a few elements, in order of their rows, by the rows' whole keys. */
template <typename In>
void
compare_few(const RowSort<In> &sort, uint64_t *elems, size_t n)
{
	typedef typename In::Word Word;
	const Word *keys[FEW_ROWS];

	for (size_t i = 0; i < n; i++)
	{
		uint64_t	elem = elems[i];
		const Word *key = sort.input->row(sort.row_of(elem));
		size_t		j = i;

		for (; j > 0 && sort.input->compare(keys[j - 1], key) > 0; j--)
		{
			keys[j] = keys[j - 1];
			elems[j] = elems[j - 1];
		}
		keys[j] = key;
		elems[j] = elem;
	}
}

/*
 * Calls use(i, key) for the keys of n rows, the i-th of which is at(i), and
 * fetches the keys ahead.
 */
template <typename In, typename At, typename Use>
void
gather(const In &input, size_t n, At at, Use use)
{
	typedef typename In::Word Word;
	const Word *ahead[AHEAD];

	for (size_t i = 0; i < n + AHEAD; i++)
	{
		const Word *key = ahead[i % AHEAD];

		if (i < n)
		{
			ahead[i % AHEAD] = input.row(at(i));
			__builtin_prefetch(ahead[i % AHEAD]);
		}
		if (i >= AHEAD)
			use(i - AHEAD, key);
	}
}

template <typename In>
void repair_ties(RowSort<In> *sort, uint64_t *elems, size_t n, size_t position, int bits,
				 const hwy::Sorter &sorter, int thread);

/*
 * Sorts elements whose rows agree in the first bits of their keys, but not in
 * all, and which are in order of their rows.
 */
template <typename In>
void
repair(RowSort<In> *sort, uint64_t *elems, size_t n, size_t position, int bits,
	   const hwy::Sorter &sorter, int thread)
{
	uint64_t	local[LOCAL_ROWS];
	uint64_t   *keys = local;
	Crew	   *crew = sort->crew;

	if (n > LOCAL_ROWS)
	{
		if (crew->stopped(thread))
			return;
		keys = allocate<uint64_t>(n);
		if (keys == NULL)
		{
			crew->no_memory = true;
			return;
		}
	}
	sort->input->with_bits(bits, [&](auto distance_of) {
		uint64_t	differing = 0;
		int			excess;

		gather(*sort->input, n, [&](size_t i) { return sort->row_of(elems[i]); },
			   [&](size_t i, const typename In::Word *row) {
				   keys[i] = distance_of(row);
				   differing |= keys[i] ^ keys[0];
			   });
		/* the leading bits, which are the same, are shifted out */
		excess = sort->excess(bit_length(differing));
		for (size_t i = 0; i < n; i++)
			elems[i] = keys[i] >> excess << sort->row_bits | sort->row_of(elems[i]);
		if (keys != local)
			release(keys, n);
		/* rows are in order already where the keys are all equal */
		if (differing != 0)
			sort_range(elems, n, sorter, crew, thread);
		bits = distance_of.end - excess;
	});
	repair_ties(sort, elems, n, position, bits, sorter, thread);
}

/*
 * Whether any of the elements from begin on, AHEAD of them, agrees with the one
 * after it in all but the row; if so, fetches the keys of those that do.
 */
template <typename In>
bool
fetch_ties(const RowSort<In> &sort, const uint64_t *elems, size_t n, size_t begin)
{
	size_t		end = begin + AHEAD < n ? begin + AHEAD : n - 1;
	uint64_t	limit = uint64_t(1) << sort.row_bits;
	bool		any = false;
	bool		tied = begin > 0 && (elems[begin - 1] ^ elems[begin]) < limit;

	for (size_t i = begin; i < end; i++)
		any |= (elems[i] ^ elems[i + 1]) < limit;
	for (size_t i = begin; any && i < end; i++)
	{
		bool		tie = (elems[i] ^ elems[i + 1]) < limit;

		/* a tie's last one, too */
		if (tie || tied)
			__builtin_prefetch(sort.input->row(sort.row_of(elems[i])));
		tied = tie;
	}
	return any;
}

/*
 * Completes the order of elements that are sorted by the first bits of the
 * keys.  They belong at position of the result.
 */
template <typename In>
void
repair_ties(RowSort<In> *sort, uint64_t *elems, size_t n, size_t position, int bits,
			const hwy::Sorter &sorter, int thread)
{
	uint64_t	limit = uint64_t(1) << sort->row_bits;
	size_t		begin = 0;		/* all before are in order */
	bool		ties;
	bool		ties_ahead;

	if (n < 2 || bits >= sort->input->bits)
		return;

	ties_ahead = fetch_ties(*sort, elems, n, 0);
	for (size_t stretch = 0; stretch < n; stretch += AHEAD)
	{
		size_t		stretch_end = stretch + AHEAD < n ? stretch + AHEAD : n;

		if (stretch % ROWS_STRIDE == 0 && stretch > 0 && sort->crew->stopped(thread))
			return;

		/*
		 * Elements that have been repaired agree or not by other bits than
		 * those ahead, but they lie before begin.
		 */
		ties = ties_ahead;
		ties_ahead = stretch_end < n && fetch_ties(*sort, elems, n, stretch_end);
		if (!ties && begin < stretch_end)
			begin = stretch_end;
		while (begin < stretch_end)
		{
			size_t		end = begin + 1;

			while (end < n && (elems[begin] ^ elems[end]) < limit)
				end++;
			if (end - begin > sort->large)
				sort->put_off(position + begin, end - begin, bits);
			else if (end - begin > FEW_ROWS)
				repair(sort, elems + begin, end - begin, position + begin, bits, sorter, thread);
			else if (end - begin > 1)
				compare_few(*sort, elems + begin, end - begin);
			begin = end;
		}
	}
}

/*
 * The elements of a row sort: of the whole input, or of a tie, whose rows lie
 * in the result.
 */
template <typename In, bool TIE>
struct RowElements
{
	typedef uint64_t Elem;

	RowSort<In> *sort;
	size_t		begin;			/* the tie's, in the result */
	int			row_bits;		/* as in the sort */
	int			excess;			/* bits of a distance that do not fit */
	int			bin_bits;		/* bits of the keys that bins agree in */
	int			bits;			/* and those that elements decide */

	/*
	 * distance_of tells rows apart up to the bit end, by numbers up to range.
	 * The bins' bits of an element are shifted out of it.
	 */
	RowElements(RowSort<In> *sort, size_t begin, uint64_t range, int end):
		sort(sort), begin(begin), row_bits(sort->row_bits),
		excess(sort->excess(bin_shift(range))),
		bin_bits(end - bin_shift(range)), bits(end - excess)
	{
	}

	template <typename Distance>
	Elem
	operator()(Distance distance, size_t position) const
	{
		return uint64_t(distance) >> excess << row_bits |
			(TIE ? sort->rows[begin + position] : uint32_t(position));
	}

	void
	store(const Elem *elems, size_t n, size_t position) const
	{
		uint32_t   *rows = sort->rows + begin + position;
		uint64_t	mask = (uint64_t(1) << row_bits) - 1;

		for (size_t i = 0; i < n; i++)
			rows[i] = uint32_t(elems[i] & mask);
	}

	bool
	put_off(const Elem *elems, size_t n, size_t position) const
	{
		if (n <= sort->large || bin_bits >= sort->input->bits)
			return false;
		store(elems, n, position);
		sort->put_off(begin + position, n, bin_bits);
		return true;
	}

	void
	finish(Elem *elems, size_t n, size_t position, const hwy::Sorter &sorter,
		   Crew *crew, int thread) const
	{
		(void) crew;
		repair_ties(sort, elems, n, begin + position, bits, sorter, thread);
		store(elems, n, position);
	}
};

/* Sorts a tie, by all threads. */
template <typename In>
void
sort_tie(RowSort<In> *sort, const Tie &tie)
{
	typedef Input<Encoded<uint64_t, GPUSORT_ENCODING_WORD>> Gathered;
	Crew	   *crew = sort->crew;
	uint64_t   *keys = allocate<uint64_t>(tie.n);
	const uint32_t *rows = sort->rows + tie.begin;
	GpusortSpan span = {keys, tie.n};
	int			end = 0;

	if (keys == NULL)
	{
		crew->no_memory = true;
		return;
	}
	sort->input->with_bits(tie.bits, [&](auto distance_of) {
		end = distance_of.end;
		in_parallel(crew->threads, [&](int thread) {
			size_t		to = tie.n * (thread + 1) / crew->threads;

			for (size_t from = tie.n * thread / crew->threads; from < to && !crew->stopped(thread);
				 from += ROWS_STRIDE)
				gather(*sort->input, to - from < ROWS_STRIDE ? to - from : ROWS_STRIDE,
					   [&](size_t i) { return rows[from + i]; },
					   [&](size_t i, const typename In::Word *row) { keys[from + i] = distance_of(row); });
		});
	});
	if (!crew->stopped(0))
	{
		GpusortCpuInput described = {&span, 1, 8, {GPUSORT_ENCODING_WORD, 0}, 1};
		Gathered	gathered(described);

		gathered.find_range(crew);
		/* the bits before must stay what they agree in: no carry into them */
		if (gathered.min < gathered.max)
			gathered.min &= ~UINT64_C(0) << (bit_length(gathered.min ^ gathered.max) - 1) << 1;
		if (gathered.min < gathered.max && !crew->stopped(0))
			gathered.with_bits(0, [&](auto distance_of) {
				RowElements<In, true> elements(sort, tie.begin, distance_of.range, end);

				partition_and_sort(gathered, crew, distance_of, elements, sort->elems + tie.begin);
			});
		else if (end < sort->input->bits)
			sort->put_off(tie.begin, tie.n, end);
	}
	release(keys, tie.n);
}

/* Sorts the rows of an input: gpusort_cpu_argsort() for keys of one sort. */
template <typename In>
GpusortCpuStatus
sort_rows(In *input, uint32_t *rows, const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	Crew		crew(options);
	RowSort<In> sort;
	size_t		max_ties;
	Order		order;

	if (input->n <= DIRECT_KEYS)
		crew.threads = 1;
	*report = {crew.threads, 1};
	order = find_order(*input, &crew);
	if (order != UNORDERED || crew.cancelled)
	{
		for (size_t i = 0; i < input->n && !crew.cancelled; i++)
			rows[i] = uint32_t(order == ASCENDING ? i : input->n - 1 - i);
		return crew.status();
	}

	sort.input = input;
	sort.rows = rows;
	sort.crew = &crew;
	sort.row_bits = bit_length(input->n - 1);
	sort.large = large_tie(input->n);
	sort.nties = 0;
	max_ties = input->n / sort.large + 1;
	sort.elems = allocate<uint64_t>(input->n);
	sort.ties = allocate<Tie>(max_ties);
	if (!input->index() || sort.elems == NULL || sort.ties == NULL)
		crew.no_memory = true;
	else if (input->n <= FEW_ROWS)
	{
		for (size_t i = 0; i < input->n; i++)
			sort.elems[i] = i;
		compare_few(sort, sort.elems, input->n);
		for (size_t i = 0; i < input->n; i++)
			rows[i] = uint32_t(sort.elems[i]);
	}
	else
	{
		input->find_range(&crew);
		report->bins = BINS;
		if (!crew.cancelled)
			input->with_bits(0, [&](auto distance_of) {
				RowElements<In, false> elements(&sort, 0, distance_of.range, distance_of.end);

				partition_and_sort(*input, &crew, distance_of, elements, sort.elems);
			});
		while (sort.nties > 0 && !crew.stopped(0))
		{
			Tie			tie = sort.ties[--sort.nties];

			sort_tie(&sort, tie);
		}
	}
	release(sort.elems, input->n);
	release(sort.ties, max_ties);
	return crew.status();
}

}								/* namespace */

#endif							/* GPUSORT_CPU_ROWS_H */
