/*-------------------------------------------------------------------------
 *
 * select.cc
 *		The CPU engine: finds the keys at a few places of the sorted order.
 *
 * One pass counts the keys in bins by their leading bits (cpu/sort.h), a second copies the keys
 * of the bins that have the wanted places, and these are sorted.  If one bin has most keys,
 * the copied keys are still many.  So they are narrowed once more.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/sort.h"

namespace
{

/* Many bins, because floating-point keys that reach down to 0 differ mostly in their exponents. */
constexpr int SELECT_BITS = 12;
constexpr size_t BINS = size_t(1) << SELECT_BITS;

/* How often keys are narrowed before they are sorted */
constexpr int NARROWINGS = 2;

/* The bin of a partition that has a place of the sorted order */
inline size_t
bin_at(const size_t (&start)[BINS + 1], uint64_t place)
{
	return std::upper_bound(start, start + BINS, place) - start - 1;
}

template <typename Key>
struct Selection
{
	typedef Input<Encoded<Key, GPUSORT_ENCODING_WORD>> Keys;

	uint64_t   *places;			/* of the keys that are not narrowed away */
	size_t		nplaces;
	Key		   *found;
	Crew	   *crew;

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
	template <typename Bins>
	bool
	find(const Keys &keys, const Bins &bins)
	{
		if (bins.split.shift > 0)
			return false;
		for (size_t i = 0; i < nplaces; i++)
		{
			size_t		bin = bin_at(bins.start, places[i]);

			if (bins.split.is_open(bin))
				return false;
			found[i] = Key(keys.min + bins.split.first + bin);
		}
		return true;
	}

	/*
	 * Copies the keys of the wanted bins to kept, sets n to their number, and turns the places into those among
	 * these keys.
	 */
	template <typename Bins>
	void
	keep(const Keys &keys, const Bins &bins, Key **kept, size_t *n)
	{
		bool		wanted[BINS] = {false};
		size_t		gap[BINS];	/* places before the bin that are in no wanted one */
		Key		   *next[MAX_THREADS];
		Key		   *out;

		*n = 0;
		for (size_t i = 0; i < nplaces; i++)
			wanted[bin_at(bins.start, places[i])] = true;
		for (size_t bin = 0; bin < BINS; bin++)
		{
			gap[bin] = bins.start[bin] - *n;
			*n += wanted[bin] ? bins.start[bin + 1] - bins.start[bin] : 0;
		}
		for (size_t i = 0; i < nplaces; i++)
			places[i] -= gap[bin_at(bins.start, places[i])];
		out = *kept = allocate<Key>(*n);
		if (out == NULL)
		{
			crew->no_memory = true;
			return;
		}
		for (int thread = 0; thread < crew->threads; thread++)
		{
			next[thread] = out;
			for (size_t bin = 0; bin < BINS; bin++)
				out += wanted[bin] ? bins.count(thread, bin) : 0;
		}
		with_bins(bins.split, [&](auto bin_of_number) {
			keys.each_thread_span(crew, [&](int thread, const Key *key, size_t count, size_t) {
				const Key	min = keys.min;
				const auto	bin_of = bin_of_number;	/* local copies stay in registers */
				Key		   *to = next[thread];

				for (size_t i = 0; i < count; i++)
				{
					if (wanted[bin_of(key[i] - min)])
						*to++ = key[i];
				}
				next[thread] = to;
			});
		});
	}

	/* Finds the keys, or keeps those of the wanted bins. */
	void
	narrow(Keys *keys, Key **kept, size_t *n)
	{
		keys->find_range(crew);
		keys->with_bits(0, [&](auto distance_of) {
			Partition<Keys, decltype(distance_of), SELECT_BITS> bins(*keys, crew, distance_of);

			if (!crew->stopped(0) && !find(*keys, bins))
				keep(*keys, bins, kept, n);
		});
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
