/*-------------------------------------------------------------------------
 *
 * cpu.cc
 *		The CPU engine: keys, and the positions of keys of one word.
 *
 * Few keys are given to VQSort as they are; input that is in order already, or
 * in reverse, is recognised and copied; all else is spread into bins first
 * (sort.h).  How positions are sorted is in engine_cpu_rows.h.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/cpu.h"

#include <hwy/targets.h>

#include "cpu/rows.h"
#include "cpu/words.h"

namespace
{

/* The keys alone. */
template <typename KeyType>
struct KeyElements
{
	typedef KeyType Key;
	typedef KeyType Elem;

	Key			min;

	Elem
	operator()(Key distance, size_t position) const
	{
		(void) position;
		return distance + min;
	}

	bool
	put_off(Elem *elems, size_t n, size_t position) const
	{
		(void) elems;
		(void) n;
		(void) position;
		return false;
	}

	void
	finish(Elem *elems, size_t n, size_t position, const hwy::Sorter &sorter,
		   Crew *crew, int thread) const
	{
		(void) elems;
		(void) n;
		(void) position;
		(void) sorter;
		(void) crew;
		(void) thread;
	}
};

/* Encodes the input into out, or from its end. */
template <typename In>
void
copy_keys(const In &input, typename In::Key *out, bool reverse, Crew *crew)
{
	typedef typename In::Key Key;

	in_parallel(crew->threads, [&](int thread) {
		input.each_piece(input.n * thread / crew->threads, input.n * (thread + 1) / crew->threads,
						 [&](const Key *words, size_t count, size_t position) {
							 Key		   *to = reverse ? out + (input.n - 1 - position) : out + position;
							 ptrdiff_t	step = reverse ? -1 : 1;

							 for (size_t i = 0; i < count; i++)
								 to[ptrdiff_t(i) * step] = input.key_of(words[i]);
							 return !crew->stopped(thread);
						 });
	});
}

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
	if (input.n <= DIRECT_KEYS)
	{
		crew.threads = report->threads = 1;
		copy_keys(input, out, false, &crew);
		if (input.n <= INSERTION_KEYS)
			insertion_sort(out, input.n);
		else if (!crew.cancelled)
		{
			/* kept: its scratch memory is allocated once */
			static const hwy::Sorter sorter;

			sorter(out, input.n, hwy::SortAscending());
		}
		return crew.status();
	}

	order = find_order(input, &crew);
	if (order != UNORDERED && !crew.cancelled)
		copy_keys(input, out, order == DESCENDING, &crew);
	else if (!crew.cancelled)
	{
		input.find_range(&crew);
		report->bins = BINS;
		if (!crew.cancelled)
			input.with_bits(0, [&](auto distance_of) {
				partition_and_sort(input, &crew, distance_of, KeyElements<Key>{input.min}, out);
			});
	}
	return crew.status();
}

/* Calls sort with a value of the encoding's type, for the width that input has. */
template <typename Key, typename Sort>
GpusortCpuStatus
with_width(GpusortEncodingKind kind, Sort sort)
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

template <typename Sort>
GpusortCpuStatus
with_encoding(const GpusortCpuInput *input, Sort sort)
{
	return input->key_bytes == 4 ? with_width<uint32_t>(input->encoding.kind, sort) :
		with_width<uint64_t>(input->encoding.kind, sort);
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
gpusort_cpu_argsort(const GpusortCpuInput *input, uint32_t *rows,
					const GpusortCpuOptions *options, GpusortCpuReport *report)
{
	if (input->words > 1)
		return gpusort_cpu_argsort_words(input, rows, options, report);
	return with_encoding(input, [&](auto encoding) {
		Input<decltype(encoding)> keys(*input);

		return sort_rows(&keys, rows, options, report);
	});
}

size_t
gpusort_cpu_scratch(uint64_t n, int key_bytes, bool rows, int threads)
{
	uint64_t	aside = uint64_t(threads) * large_tie(n);

	/* an element and a gathered key of each row, and what each thread sorts alone */
	if (rows)
		return (2 * n + (aside < n ? aside : n)) * sizeof(uint64_t);
	return n <= LARGEST_BIN ? 0 : n * key_bytes;
}

const char *
gpusort_cpu_target(void)
{
	/* the best target is the lowest bit set */
	int64_t		targets = hwy::SupportedTargets();

	return hwy::TargetName(targets & -targets);
}
