/*-------------------------------------------------------------------------
 *
 * cpu.cc
 *		The CPU engine: sorts keys of one word, or their positions.
 *
 * Up to GPUSORT_CPU_DIRECT_KEYS keys go to VQSort as they are.  More keys are copied if they are in
 * order already, and partitioned into bins if not (cpu/sort.h).
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/cpu.h"

#include "cpu/rows.h"

namespace
{

/* The class of elements (cpu/sort.h) that sorts keys, without positions. */
template <typename KeyType>
struct KeyElements
{
	typedef KeyType Key;
	typedef KeyType Elem;

	Key			min;
	size_t		begin;			/* where the keys begin in the result */
	DeferredList *later;

	Elem operator()(Key distance, size_t) const { return distance + min; }

	bool
	defer(size_t n, size_t position, bool) const
	{
		later->add(begin + position, n, 0);
		return true;
	}

	void
	sort_open(Elem *elems, size_t n, size_t, int) const
	{
		sort_few(elems, n);
	}

	void finish(Elem *, size_t, size_t, int) const {}
};

/* Encodes the input into out, in reverse order if reverse. */
template <typename In>
void
copy_keys(const In &input, typename In::Key *out, bool reverse, Crew *crew)
{
	typedef typename In::Key Key;

	input.each_thread_span(crew, [&](int, const Key *words, size_t count, size_t position) {
		Key		   *to = reverse ? out + (input.n - 1 - position) : out + position;
		ptrdiff_t	step = reverse ? -1 : 1;

		for (size_t i = 0; i < count; i++)
			to[ptrdiff_t(i) * step] = input.key_of(words[i]);
	});
}

/* Sorts an input by bins.  Its range has been found, and its result begins at begin of out. */
template <typename In>
void
sort_by_bins(const In &input, typename In::Key *out, size_t begin, DeferredList *later, Crew *crew)
{
	input.with_bits(0, [&](auto distance_of) {
		Partition	partition(input, crew, distance_of);
		KeyElements<typename In::Key> elements = {input.min, begin, later};

		partition.scatter(elements, out + begin);
		partition.sort_bins(elements, out + begin);
	});
}

/* Sorts a deferred range of the result. */
template <typename Key>
void
sort_deferred(Key *out, const Deferred &range, DeferredList *later, Crew *crew)
{
	typedef Input<Encoded<Key, GPUSORT_ENCODING_WORD>> Keys;
	Key		   *copy = allocate<Key>(range.n);
	GpusortSpan span = {out + range.begin, range.n};
	Keys		keys({&span, 1, sizeof(Key), {GPUSORT_ENCODING_WORD, 0}, 1});

	if (copy == NULL)
	{
		crew->no_memory = true;
		return;
	}
	keys.find_range(crew);
	if (keys.min < keys.max && !crew->stopped(0))
		copy_keys(keys, copy, false, crew);
	if (keys.min < keys.max && !crew->stopped(0))
	{
		span.words = copy;
		sort_by_bins(keys, out, range.begin, later, crew);
	}
	release(copy, range.n);
}

/* gpusort_cpu_sort() for one encoding and width. */
template <typename Encoding>
GpusortCpuStatus
sort_keys(const GpusortCpuInput &described, void *result,
		  const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	typedef typename Encoding::Key Key;
	Input<Encoding> input(described);
	Key		   *out = static_cast<Key *>(result);
	Crew		crew(options);
	Order		order;

	*report = {crew.threads, 1};
	if (input.n <= GPUSORT_CPU_DIRECT_KEYS)
	{
		crew.threads = report->threads = 1;
		copy_keys(input, out, false, &crew);
		if (!crew.cancelled)
			sort_few(out, input.n);
		return crew.status();
	}

	order = find_order(input, NULL, &crew);
	if (order != UNORDERED && !crew.cancelled)
		copy_keys(input, out, order == DESCENDING, &crew);
	else if (!crew.cancelled)
	{
		DeferredList later(input.n, &crew);

		input.find_range(&crew);
		report->bins = BINS;
		if (!crew.stopped(0))
			sort_by_bins(input, out, 0, &later, &crew);
		later.sort_all(&crew, [&](const Deferred &range) { sort_deferred(out, range, &later, &crew); });
	}
	return crew.status();
}

/* Calls sort(e), where e has the type of the encoding for keys of this type. */
template <typename Key, typename Sort>
auto
with_kind(GpusortEncodingKind kind, Sort sort)
{
	switch (kind)
	{
		case GPUSORT_ENCODING_FLOAT:
			return sort(Encoded<Key, GPUSORT_ENCODING_FLOAT>());
		case GPUSORT_ENCODING_FLOAT_RANK:
			return sort(Encoded<Key, GPUSORT_ENCODING_FLOAT_RANK>());
		default:
			return sort(Encoded<Key, GPUSORT_ENCODING_WORD>());
	}
}

/* Calls sort(e), where e has the type of the input's encoding and width. */
template <typename Sort>
auto
with_encoding(const GpusortCpuInput *input, Sort sort)
{
	return input->key_bytes == 4 ? with_kind<uint32_t>(input->encoding.kind, sort) :
		with_kind<uint64_t>(input->encoding.kind, sort);
}

}								/* namespace */

GpusortCpuStatus
gpusort_cpu_sort(const GpusortCpuInput *input, void *out,
				 const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	return with_encoding(input, [&](auto encoding) {
		return sort_keys<decltype(encoding)>(*input, out, options, report);
	});
}

GpusortCpuStatus
gpusort_cpu_argsort(const GpusortCpuInput *input, uint32_t *rows, uint8_t *ties,
					const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	if (input->words > 1)
		return gpusort_cpu_argsort_words(input, rows, ties, options, report);
	return with_encoding(input, [&](auto encoding) {
		Input<decltype(encoding)> keys(*input);

		return sort_rows(&keys, rows, ties, options, report);
	});
}

bool
gpusort_cpu_in_order(const GpusortCpuInput *input, const GpusortCpuOptions *options)
{
	if (input->words > 1)
		return gpusort_cpu_in_order_words(input, options);
	return with_encoding(input, [&](auto encoding) {
		return is_in_order(Input<decltype(encoding)>(*input), options);
	});
}

void
gpusort_cpu_sort_few(void *keys, size_t count, int key_bytes)
{
	if (key_bytes == 4)
		sort_few(static_cast<uint32_t *>(keys), count);
	else
		sort_few(static_cast<uint64_t *>(keys), count);
}

size_t
gpusort_cpu_scratch(uint64_t n, int key_bytes, bool rows, int threads)
{
	/* each thread refines one tie at a time: the most rows of all these ties */
	uint64_t	refined = uint64_t(threads) * most_at_once(n);

	/* an element and a gathered key of each row, and a key of each row that is being refined */
	if (rows)
		return (2 * n + (refined < n ? refined : n)) * sizeof(uint64_t);
	return n <= most_at_once(n) ? 0 : n * key_bytes;
}
