/*-------------------------------------------------------------------------
 *
 * select.cc
 *		The CPU engine: finds the keys at a few places of the sorted order.
 *
 * One pass counts the keys in bins by their leading bits, a second copies the keys of
 * the bins that have the wanted places, and these are sorted.  If one bin has most keys,
 * the copied keys are still many.  So they are narrowed once more.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/sort.h"

namespace
{

/* Many bins, because floating-point keys that reach down to 0 differ mostly in their exponents. */
constexpr int SELECT_BITS = 12;
constexpr size_t SELECT_BINS = size_t(1) << SELECT_BITS;

/* How often keys are narrowed before they are sorted */
constexpr int NARROWINGS = 2;

/* The bins of an input's keys. */
struct Bins
{
	size_t		counts[MAX_THREADS][SELECT_BINS];	/* of each thread's part of the input */
	size_t		begin[SELECT_BINS + 1]; /* the first place of each bin in the sorted order */
	bool		wanted[SELECT_BINS];	/* has the bin one of the places? */
	size_t		gap[SELECT_BINS];	/* places before the bin that are in no wanted one */

	/* The bin that has a place. */
	size_t
	bin_of(uint64_t place) const
	{
		return std::upper_bound(begin, begin + SELECT_BINS, place) - begin - 1;
	}
};

template <typename Key>
struct Selection
{
	typedef Input<Encoded<Key, GPUSORT_ENCODING_WORD>> Keys;

	uint64_t   *places;			/* of the keys that are not narrowed away */
	size_t		nplaces;
	Key		   *found;
	Crew	   *crew;

	/* Counts the keys in the bins. */
	void
	count(const Keys &keys, const Split<Key> &split, Bins *bins)
	{
		with_bins(split, [&](auto bin_of_number) {
			keys.each_thread_span(crew, [&](int thread, const Key *key, size_t n, size_t) {
				const Key	min = keys.min;
				const auto	bin_of = bin_of_number;	/* local copies stay in registers */
				size_t	   *count_of = bins->counts[thread];

				for (size_t i = 0; i < n; i++)
					count_of[bin_of(key[i] - min)]++;
			});
		});
		for (size_t bin = 0; bin < SELECT_BINS; bin++)
		{
			bins->begin[bin + 1] = bins->begin[bin];
			for (int thread = 0; thread < crew->threads; thread++)
				bins->begin[bin + 1] += bins->counts[thread][bin];
		}
	}

	/* Turns the places into those among the keys of the wanted bins, and returns how many these are. */
	size_t
	choose(Bins *bins)
	{
		size_t		kept = 0;

		for (size_t i = 0; i < nplaces; i++)
			bins->wanted[bins->bin_of(places[i])] = true;
		for (size_t bin = 0; bin < SELECT_BINS; bin++)
		{
			bins->gap[bin] = bins->begin[bin] - kept;
			kept += bins->wanted[bin] ? bins->begin[bin + 1] - bins->begin[bin] : 0;
		}
		for (size_t i = 0; i < nplaces; i++)
			places[i] -= bins->gap[bins->bin_of(places[i])];
		return kept;
	}

	/* Copies the keys of the wanted bins. */
	void
	copy(const Keys &keys, const Split<Key> &split, const Bins &bins, Key *kept)
	{
		Key		   *next[MAX_THREADS];

		for (int thread = 0; thread < crew->threads; thread++)
		{
			next[thread] = kept;
			for (size_t bin = 0; bin < SELECT_BINS; bin++)
				kept += bins.wanted[bin] ? bins.counts[thread][bin] : 0;
		}
		with_bins(split, [&](auto bin_of_number) {
			keys.each_thread_span(crew, [&](int thread, const Key *key, size_t n, size_t) {
				const Key	min = keys.min;
				const auto	bin_of = bin_of_number;
				Key		   *out = next[thread];

				for (size_t i = 0; i < n; i++)
				{
					if (bins.wanted[bin_of(key[i] - min)])
						*out++ = key[i];
				}
				next[thread] = out;
			});
		});
	}

	/* Sorts all keys. */
	void
	sort(const GpusortCpuInput &input, size_t n)
	{
		Key		   *sorted = allocate<Key>(n);
		GpusortCpuReport report;
		GpusortCpuStatus status = sorted == NULL ? GPUSORT_CPU_NO_MEMORY :
			gpusort_cpu_sort(&input, sorted, crew->options, &report);

		crew->cancelled = status == GPUSORT_CPU_CANCELLED;
		crew->no_memory = status == GPUSORT_CPU_NO_MEMORY;
		for (size_t i = 0; status == GPUSORT_CPU_OK && i < nplaces; i++)
			found[i] = sorted[places[i]];
		release(sorted, n);
	}

	/* Finds the keys if those of each wanted bin are equal.  Returns false if they are not. */
	bool
	find(const Keys &keys, const Split<Key> &split, const Bins &bins)
	{
		if (split.shift > 0)
			return false;
		for (size_t i = 0; i < nplaces; i++)
		{
			size_t		bin = bins.bin_of(places[i]);

			if (split.is_open(bin))
				return false;
			found[i] = Key(keys.min + split.first + bin);
		}
		return true;
	}

	/* Copies the keys of the wanted bins to kept, and sets n to their number.  Finds the keys itself if a bin's are equal. */
	void
	narrow(Keys *keys, Key **kept, size_t *n)
	{
		Bins	   *bins = static_cast<Bins *>(calloc(1, sizeof(Bins)));
		Split<Key>	split;

		if (bins == NULL)
		{
			crew->no_memory = true;
			return;
		}
		keys->find_range(crew);
		keys->with_bits(0, [&](auto distance_of) {
			split = choose_split(*keys, distance_of, distance_of.range, SELECT_BITS);
		});
		if (!crew->stopped(0))
			count(*keys, split, bins);
		if (!crew->stopped(0) && !find(*keys, split, *bins))
		{
			*n = choose(bins);
			*kept = allocate<Key>(*n);
			if (*kept != NULL)
				copy(*keys, split, *bins, *kept);
			else
				crew->no_memory = true;
		}
		free(bins);
	}

	void
	select(const GpusortCpuInput &input, int narrowings)
	{
		Keys		keys(input);
		Key		   *kept = NULL;
		GpusortSpan span = {NULL, 0};

		if (keys.n <= DIRECT_KEYS || narrowings == 0)
			sort(input, keys.n);
		else
			narrow(&keys, &kept, &span.count);
		span.words = kept;
		if (kept != NULL && !crew->stopped(0))
			select({&span, 1, sizeof(Key), {GPUSORT_ENCODING_WORD, 0}, 1}, narrowings - 1);
		release(kept, span.count);
	}
};

template <typename Key>
GpusortCpuStatus
select_keys(const GpusortCpuInput *input, uint64_t *places, size_t nplaces, void *found,
			const GpusortCpuOptions *options)
{
	Crew		crew(options);
	Selection<Key> selection = {places, nplaces, static_cast<Key *>(found), &crew};

	selection.select(*input, NARROWINGS);
	return crew.status();
}

}								/* namespace */

GpusortCpuStatus
gpusort_cpu_select(const GpusortCpuInput *input, uint64_t *places, size_t nplaces, void *found,
				   const GpusortCpuOptions *options)
{
	return input->key_bytes == 4 ? select_keys<uint32_t>(input, places, nplaces, found, options) :
		select_keys<uint64_t>(input, places, nplaces, found, options);
}
