/*-------------------------------------------------------------------------
 *
 * rows.h
 *		The CPU engine: sorts positions.
 *
 * To sort positions, each row becomes one element of 64 bits.  Its low bits hold the row's
 * position.  The bits above hold the leading bits of the key, without those that all keys of a
 * bin have in common: for ten million keys, 48 bits of the key decide.  No two elements are
 * equal, so any sort of them is stable.
 *
 * If the key has more bits, rows that agree in the bits seen so far form a tie.  A tie of a
 * few rows is sorted by comparing whole keys; larger ones are sorted like the whole input, by
 * the next 64 bits.  Each such step uses at least 32 bits, so the depth is at most
 * 2 * GPUSORT_MAX_WORDS.
 *
 * To refine short ties one after another would mean a cache miss for every row, so the rows
 * are prefetched.  A tie or a bin that is a large part of the input is deferred: all threads
 * sort it together after the bins.  The rows of an open bin (cpu/sort.h) do not have the same leading bits, so
 * their elements tell only the positions, and they are sorted as a tie.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_ROWS_H
#define GPUSORT_CPU_ROWS_H

#include "cpu/sort.h"

/* gpusort_cpu_in_order() and gpusort_cpu_argsort() for an input whose keys have several words: in words.cc. */
extern bool gpusort_cpu_in_order_words(const GpusortCpuInput *input, const GpusortCpuOptions *options);
extern GpusortCpuStatus gpusort_cpu_argsort_words(const GpusortCpuInput *input, uint32_t *rows, uint8_t *ties,
												  const GpusortCpuOptions *options, GpusortCpuReport *report);

namespace
{

/* Ties of up to this many rows are sorted by comparisons of whole keys. */
constexpr size_t FEW_ROWS = 12;

/* Ties of up to this many rows are refined in a buffer on the stack. */
constexpr size_t LOCAL_ROWS = 256;

/* Rows that are prefetched ahead of their use; a power of two. */
constexpr size_t AHEAD = 32;

/* A sort of an input's rows, shared by all threads. */
template <typename In>
struct RowSort
{
	const In   *input;
	uint32_t   *rows;			/* the result */
	uint64_t   *elems;			/* one element for each row */
	Crew	   *crew;
	int			row_bits;		/* low bits of an element that hold the row */
	DeferredList *later;		/* ties, whose elements are in input order */
	uint8_t    *marks;			/* as ties of gpusort_cpu_argsort(), or NULL */

	uint32_t
	row_of(uint64_t elem) const
	{
		return uint32_t(elem & ((uint64_t(1) << row_bits) - 1));
	}

	/* Of this many bits of a key, the number that does not fit into an element. */
	int
	excess(int bits) const
	{
		return bits > 64 - row_bits ? bits - (64 - row_bits) : 0;
	}

	/*
	 * Marks the places from begin on, whose n elements are sorted; the row before differs.  If the
	 * elements do not hold all bits of the keys, those that tie are refined, and marked again, later.
	 */
	void
	mark(const uint64_t *elems, size_t n, size_t begin, int thread) const
	{
		uint64_t	limit = uint64_t(1) << row_bits;
		uint8_t    *marks_of;

		if (marks == NULL || n == 0)
			return;
		marks_of = marks + begin;
		marks_of[0] = 0;
		each_part(n - 1, crew, thread, [=](size_t from, size_t to) {
			for (size_t i = from + 1; i <= to; i++)
				marks_of[i] = (elems[i - 1] ^ elems[i]) < limit;
		});
	}
};

/*
 * Sorts at most FEW_ROWS elements, which are in input order, by the rows' whole keys.  They belong
 * at position of the result.
 */
template <typename In>
void
sort_few_rows(const RowSort<In> &sort, uint64_t *elems, size_t n, size_t position)
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
	for (size_t i = 0; sort.marks != NULL && i < n; i++)
		sort.marks[position + i] = i > 0 && sort.input->compare(keys[i - 1], keys[i]) == 0;
}

/* Calls use(i, row at position at(i)) for i from 0 to n - 1, and prefetches the rows. */
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
void refine_ties(RowSort<In> *sort, uint64_t *elems, size_t n, size_t position, int bits,
				 int thread);

/*
 * Sorts the elements of a tie, which are in input order, by the keys' bits after
 * the first.  The elements belong at position of the result.
 */
template <typename In>
void
refine_tie(RowSort<In> *sort, uint64_t *elems, size_t n, size_t position, int bits,
		   int thread)
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
		/* only the bits below the leading equal ones need room in an element */
		excess = sort->excess(bit_length(differing));
		for (size_t i = 0; i < n; i++)
			elems[i] = keys[i] >> excess << sort->row_bits | sort->row_of(elems[i]);
		if (keys != local)
			release(keys, n);
		/* if all keys are equal, the elements are in order already */
		if (differing != 0)
			sort_few(elems, n);
		sort->mark(elems, n, position, thread);
		bits = distance_of.end - excess;
	});
	if (crew->status() == GPUSORT_CPU_OK)
		refine_ties(sort, elems, n, position, bits, thread);
}

/*
 * Prefetches the rows of ties among the AHEAD elements from begin on, and
 * returns whether any of these elements is in a tie with the next one, that is,
 * equal except for the row.
 */
template <typename In>
bool
prefetch_ties(const RowSort<In> &sort, const uint64_t *elems, size_t n, size_t begin)
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

		/* the last element of a tie differs from its successor */
		if (tie || tied)
			__builtin_prefetch(sort.input->row(sort.row_of(elems[i])));
		tied = tie;
	}
	return any;
}

/*
 * Completes the order of elements that are sorted by the first bits of their
 * keys: refines every tie.  The elements belong at position of the result.
 */
template <typename In>
void
refine_ties(RowSort<In> *sort, uint64_t *elems, size_t n, size_t position, int bits,
			int thread)
{
	uint64_t	limit = uint64_t(1) << sort->row_bits;
	size_t		begin = 0;		/* elements before it are in order */
	bool		ties;
	bool		ties_ahead;

	if (n < 2 || bits >= sort->input->bits)
		return;

	ties_ahead = prefetch_ties(*sort, elems, n, 0);
	for (size_t batch = 0; batch < n; batch += AHEAD)
	{
		size_t		batch_end = batch + AHEAD < n ? batch + AHEAD : n;

		if (batch % CHECK_ELEMS == 0 && batch > 0 && sort->crew->stopped(thread))
			return;

		/*
		 * A refined element's bits are not comparable with those of the
		 * elements after it, but refined elements are before begin.
		 */
		ties = ties_ahead;
		ties_ahead = batch_end < n && prefetch_ties(*sort, elems, n, batch_end);
		if (!ties && begin < batch_end)
			begin = batch_end;
		while (begin < batch_end)
		{
			size_t		end = begin + 1;

			while (end < n && (elems[begin] ^ elems[end]) < limit)
			{
				end++;
				if (end % CHECK_ELEMS == 0 && sort->crew->stopped(thread))
					return;
			}
			if (end - begin > sort->later->most)
				sort->later->add(position + begin, end - begin, bits);
			else if (end - begin > FEW_ROWS)
				refine_tie(sort, elems + begin, end - begin, position + begin, bits, thread);
			else if (end - begin > 1)
				sort_few_rows(*sort, elems + begin, end - begin, position + begin);
			begin = end;
		}
	}
}

/*
 * The class of elements (cpu/sort.h) that sorts positions.  TIE: it sorts a
 * deferred tie, whose rows are in the result; else the whole input.
 */
template <typename In, bool TIE>
struct RowElements
{
	typedef uint64_t Elem;

	RowSort<In> *sort;
	DeferredList *later;
	size_t		begin;			/* where the tie begins in the result; 0 for the whole input */
	int			row_bits;		/* copy of sort->row_bits */
	int			excess;			/* low bits of a distance that do not fit into an element */
	int			open_bits;		/* first bits of the keys that agree in all of the tie */
	int			bin_bits;		/* first bits of the keys that agree within a bin that is not open */
	int			bits;			/* first bits of the keys that bin and element decide */

	/*
	 * The distances are made of the keys' bits before bit end, and the bins of those without the
	 * last shift.  An element has no room for the leading bits of the distance, which are
	 * the same in all of a bin that is not open; packing shifts them out.
	 */
	RowElements(RowSort<In> *sort, const Deferred &tie, int shift, int end):
		sort(sort), later(sort->later), begin(tie.begin), row_bits(sort->row_bits),
		excess(sort->excess(shift)), open_bits(tie.bits),
		bin_bits(end - shift), bits(end - excess)
	{
	}

	template <typename Distance>
	Elem
	operator()(Distance distance, size_t position) const
	{
		return uint64_t(distance) >> excess << row_bits |
			(TIE ? sort->rows[begin + position] : uint32_t(position));
	}

	/* Writes the elements' rows to the result. */
	void
	store(const Elem *elems, size_t n, size_t position, int thread) const
	{
		uint32_t   *rows = sort->rows + begin + position;
		uint64_t	mask = (uint64_t(1) << row_bits) - 1;

		each_part(n, sort->crew, thread, [=](size_t from, size_t to) {
			for (size_t i = from; i < to; i++)
				rows[i] = uint32_t(elems[i] & mask);
		});
	}

	bool
	defer(size_t n, size_t position, bool open) const
	{
		int			agree = open ? open_bits : bin_bits;

		if (agree >= sort->input->bits)
			return false;
		later->add(begin + position, n, agree);
		return true;
	}

	void
	sort_open(Elem *elems, size_t n, size_t position, int thread) const
	{
		refine_tie(sort, elems, n, begin + position, open_bits, thread);
		store(elems, n, position, thread);
	}

	void
	finish(Elem *elems, size_t n, size_t position, int thread) const
	{
		sort->mark(elems, n, begin + position, thread);
		refine_ties(sort, elems, n, begin + position, bits, thread);
		store(elems, n, position, thread);
	}
};

/*
 * Writes a tie's rows to the result and to keys the numbers made of their keys from bit tie.bits on, and
 * returns the bit after the last that they include.
 */
template <typename In>
int
gather_tie(const RowSort<In> &sort, const Deferred &tie, uint64_t *keys)
{
	Crew	   *crew = sort.crew;
	const uint64_t *elems = sort.elems + tie.begin;
	uint32_t   *rows = sort.rows + tie.begin;
	int			end = 0;

	sort.input->with_bits(tie.bits, [&](auto distance_of) {
		end = distance_of.end;
		for_parts(crew, tie.n, CHECK_ELEMS, [&](size_t from, size_t to, int thread) {
			gather(*sort.input, to - from, [&](size_t i) { return rows[from + i] = sort.row_of(elems[from + i]); },
				   [&](size_t i, const typename In::Word *row) { keys[from + i] = distance_of(row); });
			/* the rows tie as far as is known; the row before differs */
			if (sort.marks != NULL)
				memset(sort.marks + tie.begin + from, 1, to - from);
			return !crew->stopped(thread);
		});
	});
	if (sort.marks != NULL)
		sort.marks[tie.begin] = 0;
	return end;
}

/* Sorts a deferred tie, by all threads. */
template <typename In>
void
sort_tie(RowSort<In> *sort, const Deferred &tie)
{
	typedef Input<Encoded<uint64_t, GPUSORT_ENCODING_WORD>> Gathered;
	Crew	   *crew = sort->crew;
	uint64_t   *keys = allocate<uint64_t>(tie.n);
	GpusortSpan span = {keys, tie.n};
	int			end;

	if (keys == NULL)
	{
		crew->no_memory = true;
		return;
	}
	end = gather_tie(*sort, tie, keys);
	if (!crew->stopped(0))
	{
		GpusortCpuInput described = {&span, 1, 8, {GPUSORT_ENCODING_WORD, 0}, 1};
		Gathered	gathered(described);

		gathered.find_range(crew);

		/*
		 * Round min down to the leading bits that all keys have in common, so
		 * that subtracting it clears these bits and changes no other.
		 */
		if (gathered.min < gathered.max)
			gathered.min &= ~UINT64_C(0) << (bit_length(gathered.min ^ gathered.max) - 1) << 1;
		if (gathered.min < gathered.max && !crew->stopped(0))
			gathered.with_bits(0, [&](auto distance_of) {
				Partition	partition(gathered, crew, distance_of);
				RowElements<In, true> elements(sort, tie, partition.split.shift, end);

				partition.scatter(elements, sort->elems + tie.begin);
				partition.sort_bins(elements, sort->elems + tie.begin);
			});
		else if (end < sort->input->bits)
			sort->later->add(tie.begin, tie.n, end);
	}
	release(keys, tie.n);
}

/* Sorts rows by bins, then the deferred ties. */
template <typename In>
void
sort_many_positions(RowSort<In> *sort, In *input)
{
	Crew	   *crew = sort->crew;

	input->find_range(crew);
	if (!crew->cancelled)
		input->with_bits(0, [&](auto distance_of) {
			Partition	partition(*input, crew, distance_of);
			RowElements<In, false> elements(sort, {0, input->n, 0}, partition.split.shift, distance_of.end);

			partition.scatter(elements, sort->elems);
			partition.sort_bins(elements, sort->elems);
		});
	sort->later->sort_all(crew, [&](const Deferred &tie) { sort_tie(sort, tie); });
}

/* gpusort_cpu_argsort() for an input of either kind. */
template <typename In>
GpusortCpuStatus
sort_rows(In *input, uint32_t *rows, uint8_t *ties, const GpusortCpuOptions *options,
		  GpusortCpuReport *report)
{
	Crew		crew(options);
	RowSort<In> sort;
	Order		order;

	if (input->n <= GPUSORT_CPU_DIRECT_KEYS)
		crew.threads = 1;
	*report = {crew.threads, 1};
	sort.marks = ties;
	order = find_order(*input, ties, &crew);
	if (order != UNORDERED || crew.cancelled)
	{
		for_parts(&crew, crew.cancelled ? 0 : input->n, CHECK_ELEMS, [&](size_t begin, size_t end, int thread) {
			for (size_t i = begin; i < end; i++)
				rows[i] = uint32_t(order == ASCENDING ? i : input->n - 1 - i);
			return !crew.stopped(thread);
		});
		if (ties != NULL && input->n > 0)
			ties[0] = 0;
		return crew.status();
	}

	DeferredList later(input->n, &crew);

	sort.input = input;
	sort.rows = rows;
	sort.crew = &crew;
	sort.row_bits = bit_length(input->n - 1);
	sort.later = &later;
	sort.elems = allocate<uint64_t>(input->n);
	if (!input->index() || sort.elems == NULL)
		crew.no_memory = true;
	else
	{
		report->bins = BINS;
		sort_many_positions(&sort, input);
	}
	release(sort.elems, input->n);
	return crew.status();
}

}								/* namespace */

#endif							/* GPUSORT_CPU_ROWS_H */
