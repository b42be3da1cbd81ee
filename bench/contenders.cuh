/*
 * contenders.cuh
 *		The table of the sorts that bench_gpu measures.
 *
 * gpusort's own algorithms are measured in two ways: as the functions of kernels/sort.h, and as a sort
 * from SQL uses them ("-checked"), by sort_on_device, with the checks of the keys before and after. Only
 * sort_on_device sorts positions.
 *
 * The rivals are the sorts that a CUDA programmer would call instead, at their best:
 *
 *	cub-radix-32, -64	cub::DeviceRadixSort with a DoubleBuffer and scratch memory
 *						allocated beforehand. The count has 32 or 64 bits, for
 *						which CUB has different tile sizes; "CUB" is the faster of
 *						the two
 *	cub-merge			cub::DeviceMergeSort, in place
 *	thrust				thrust::sort and thrust::stable_sort_by_key (the same as
 *						sort_by_key for these keys), including the allocation and
 *						the wait that are part of the call
 *
 * A sort of positions includes numbering them, for all contenders. The rivals sort pairs and so return
 * the sorted keys too; gpusort's sorts return only positions, which is all that its callers use.
 */
#ifndef GPUSORT_CONTENDERS_CUH
#define GPUSORT_CONTENDERS_CUH

#include "../test/kernels/on_device.cuh"

#include <cub/device/device_merge_sort.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <exception>
#include <new>
#include <string>
#include <thrust/execution_policy.h>
#include <thrust/sort.h>
#include <vector>

using gpusort::Context;

/* Like the algorithms of kernels/sort.h: sets *sorted to keys or spare. */
template <typename K>
using KeySort = GpusortCudaStatus (*)(Context &context, K *keys, K *spare, uint64_t count, K **sorted);

/* Also fills rows or rows_spare, whatever they hold before, with stable positions. */
template <typename K>
using PairSort = GpusortCudaStatus (*)(Context &context, K *keys, K *keys_spare, uint32_t *rows, uint32_t *rows_spare,
									   uint32_t count, K **keys_sorted, uint32_t **rows_sorted);

template <typename K> struct Contender {
	const char *name;
	GpusortAlgorithm algorithm; /* for sort_on_device; AUTO: not one of gpusort's algorithms */
	KeySort<K> keys;
	PairSort<K> pairs; /* NULL: sorts pairs only by sort_on_device, or not at all */
};

/* ---- rivals ---- */

/* Scratch memory of the rivals; it grows in the round that warms up and is kept for the timed ones. */
static Memory scratch;

static GpusortCudaStatus grow_scratch(Context &context, size_t bytes)
{
	return scratch.bytes() >= bytes ? GPUSORT_CUDA_OK : scratch.allocate(context, bytes);
}

template <typename K, typename Count>
static GpusortCudaStatus radix_keys(Context &context, K *keys, K *spare, uint64_t count, K **sorted)
{
	cub::DoubleBuffer<K> buffers(keys, spare);
	const int bits = 8 * sizeof(K);
	size_t bytes = 0;
	GPUSORT_TRY(cub::DeviceRadixSort::SortKeys(nullptr, bytes, buffers, (Count)count, 0, bits, context.stream),
				context.err);
	GPUSORT_PASS(grow_scratch(context, bytes));
	GPUSORT_TRY(
		cub::DeviceRadixSort::SortKeys(scratch.as<void>(), bytes, buffers, (Count)count, 0, bits, context.stream),
		context.err);
	*sorted = buffers.Current();
	return GPUSORT_CUDA_OK;
}

template <typename K, typename Count>
static GpusortCudaStatus radix_pairs(Context &context, K *keys, K *keys_spare, uint32_t *rows, uint32_t *rows_spare,
									 uint32_t count, K **keys_sorted, uint32_t **rows_sorted)
{
	cub::DoubleBuffer<K> buffers(keys, keys_spare);
	cub::DoubleBuffer<uint32_t> row_buffers(rows, rows_spare);
	const int bits = 8 * sizeof(K);
	size_t bytes = 0;
	make_rows(rows, count);
	GPUSORT_TRY(
		cub::DeviceRadixSort::SortPairs(nullptr, bytes, buffers, row_buffers, (Count)count, 0, bits, context.stream),
		context.err);
	GPUSORT_PASS(grow_scratch(context, bytes));
	GPUSORT_TRY(cub::DeviceRadixSort::SortPairs(scratch.as<void>(), bytes, buffers, row_buffers, (Count)count, 0, bits,
												context.stream),
				context.err);
	*keys_sorted = buffers.Current();
	*rows_sorted = row_buffers.Current();
	return GPUSORT_CUDA_OK;
}

struct Less {
	template <typename K> __host__ __device__ bool operator()(const K &a, const K &b) const
	{
		return a < b;
	}
};

template <typename K> static GpusortCudaStatus merge_keys(Context &context, K *keys, K *, uint64_t count, K **sorted)
{
	size_t bytes = 0;
	*sorted = keys;
	GPUSORT_TRY(cub::DeviceMergeSort::SortKeys(nullptr, bytes, keys, (uint32_t)count, Less(), context.stream),
				context.err);
	GPUSORT_PASS(grow_scratch(context, bytes));
	GPUSORT_TRY(
		cub::DeviceMergeSort::SortKeys(scratch.as<void>(), bytes, keys, (uint32_t)count, Less(), context.stream),
		context.err);
	return GPUSORT_CUDA_OK;
}

/* Turns thrust's exceptions into a status. */
template <typename Call> static GpusortCudaStatus call_thrust(Context &context, Call call)
{
	try {
		call();
	} catch (const std::bad_alloc &e) {
		(void)cudaGetLastError();
		return gpusort::fail(GPUSORT_CUDA_NO_MEMORY, "thrust", e.what(), context.err);
	} catch (const std::exception &e) {
		return gpusort::fail(GPUSORT_CUDA_FAULT, "thrust", e.what(), context.err);
	}
	return GPUSORT_CUDA_OK;
}

template <typename K> static GpusortCudaStatus thrust_keys(Context &context, K *keys, K *, uint64_t count, K **sorted)
{
	*sorted = keys;
	return call_thrust(context, [&] { thrust::sort(thrust::cuda::par.on(context.stream), keys, keys + count); });
}

template <typename K>
static GpusortCudaStatus thrust_pairs(Context &context, K *keys, K *, uint32_t *rows, uint32_t *, uint32_t count,
									  K **keys_sorted, uint32_t **rows_sorted)
{
	*keys_sorted = keys;
	*rows_sorted = rows;
	make_rows(rows, count);
	return call_thrust(
		context, [&] { thrust::stable_sort_by_key(thrust::cuda::par.on(context.stream), keys, keys + count, rows); });
}

/* ---- the table ---- */

template <typename K>
static const Contender<K> CONTENDERS[] = {
	{"mppsort", GPUSORT_ALGORITHM_MPPSORT, gpusort::mppsort<K>, nullptr},
	{"quicksort", GPUSORT_ALGORITHM_QUICKSORT, gpusort::quicksort<K>, nullptr},
	{"mergesort", GPUSORT_ALGORITHM_MERGESORT, gpusort::mergesort<K>, nullptr},
	{"radixsort", GPUSORT_ALGORITHM_RADIXSORT, gpusort::radixsort<K>, nullptr},
	{"cub", GPUSORT_ALGORITHM_CUB, gpusort::cub_sort<K>, nullptr},
	{"cub-radix-32", GPUSORT_ALGORITHM_AUTO, radix_keys<K, uint32_t>, radix_pairs<K, uint32_t>},
	{"cub-radix-64", GPUSORT_ALGORITHM_AUTO, radix_keys<K, uint64_t>, radix_pairs<K, uint64_t>},
	{"cub-merge", GPUSORT_ALGORITHM_AUTO, merge_keys<K>, nullptr},
	{"thrust", GPUSORT_ALGORITHM_AUTO, thrust_keys<K>, thrust_pairs<K>},
};

/* ---- what is measured of them ---- */

template <typename K> struct Entry {
	std::string name;
	const Contender<K> *contender;
	bool with_rows;
	bool checked; /* by sort_on_device */
};

/* The contenders with or without rows. names: those asked for; empty: all. */
template <typename K> static std::vector<Entry<K>> entries(bool with_rows, const std::vector<std::string> &names)
{
	std::vector<Entry<K>> list;
	auto add = [&](const std::string &name, const Contender<K> &contender, bool checked) {
		if (names.empty() || std::find(names.begin(), names.end(), name) != names.end())
			list.push_back({name, &contender, with_rows, checked});
	};
	for (const Contender<K> &contender : CONTENDERS<K>) {
		if (!with_rows || contender.pairs) add(contender.name, contender, false);
	}
	for (const Contender<K> &contender : CONTENDERS<K>) {
		if (contender.algorithm != GPUSORT_ALGORITHM_AUTO)
			add(std::string(contender.name) + "-checked", contender, true);
	}
	return list;
}

/* The buffers in which a sort finds its input and leaves its result. */
template <typename K> struct Buffers {
	Memory keys, keys_spare;
	Memory rows, rows_spare; /* with rows only */
	K *sorted;
	uint32_t *rows_sorted; /* NULL without rows */
};

/* Sorts the contents of buffers.keys. */
template <typename K>
static GpusortCudaStatus sort_once(Context &context, const Entry<K> &entry, Buffers<K> &buffers, uint64_t n)
{
	const Contender<K> &contender = *entry.contender;
	K *keys = buffers.keys.template as<K>(), *keys_spare = buffers.keys_spare.template as<K>();
	buffers.rows_sorted = nullptr;
	if (entry.checked) {
		GpusortCudaSort sort = {n, (int)sizeof(K), entry.with_rows, contender.algorithm};
		GPUSORT_PASS(gpusort::sort_on_device(context, sort, buffers.keys, buffers.rows));
		buffers.sorted = entry.with_rows ? nullptr : buffers.keys.template as<K>();
		if (entry.with_rows) buffers.rows_sorted = buffers.rows.template as<uint32_t>();
		return GPUSORT_CUDA_OK;
	}
	if (!entry.with_rows) return contender.keys(context, keys, keys_spare, n, &buffers.sorted);
	return contender.pairs(context, keys, keys_spare, buffers.rows.template as<uint32_t>(),
						   buffers.rows_spare.template as<uint32_t>(), (uint32_t)n, &buffers.sorted,
						   &buffers.rows_sorted);
}

#endif /* GPUSORT_CONTENDERS_CUH */
