/*
 * measure.cuh
 *		One case of bench_gpu: an input, sorted in turns, timed, checked.
 *
 * Clock rates drift, and machines differ from day to day. So only times of one process and one case are
 * compared: in each repetition every contender sorts once, and another one begins each time. A first
 * round, which is checked but not timed, loads the kernels and fills the memory pool.
 *
 * Every sort starts from a fresh copy of the input on an idle device. The buffers that may return the
 * result are overwritten first, so an earlier result is never mistaken for this one. Two times are
 * measured:
 *
 *	ms		by CUDA events, recorded before and after the call, so it includes
 *			all launches, allocations and waits that the host makes in between;
 *			Gkeys/s and all quoted numbers are computed from it
 *	wall	by the host's clock, from the call until the device is idle again
 *
 * Every result is checked on the device, outside the measured time: the order, and the sum of hashes of
 * all keys against that of the input; with rows, also key by key and row by row against CUB's stable sort
 * of pairs.
 *
 * Floats are fractions in [0, 1), made from the integers of the same distribution and encoded as in SQL
 * (src/key/keybits.h). Half of all keys differ in 23 (or 52) bits only, which makes them a different
 * input to a sort.
 */
#ifndef GPUSORT_MEASURE_CUH
#define GPUSORT_MEASURE_CUH

#include "../src/key/keybits.h"
#include "contenders.cuh"

#include <chrono>

struct KeyType {
	const char *name;
	int key_bytes;
	bool floats, with_rows;
};

/* The times of one contender in one case. */
struct Timing {
	std::string name;
	std::vector<double> ms, wall_ms; /* ascending; empty if it could not sort this case */
};

static double median(const std::vector<double> &sorted)
{
	size_t half = sorted.size() / 2;
	return sorted.size() % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/* ---- input ---- */

__device__ inline uint32_t float_key(uint32_t fraction)
{
	uint32_t bits = __float_as_uint((float)((double)fraction * 0x1p-32));
	return (bits ^ GPUSORT_SIGN32) - GPUSORT_FLOAT4_ORIGIN; /* no fraction is negative */
}

__device__ inline uint64_t float_key(uint64_t fraction)
{
	uint64_t bits = (uint64_t)__double_as_longlong((double)fraction * 0x1p-64);
	return (bits ^ GPUSORT_SIGN64) - GPUSORT_FLOAT8_ORIGIN;
}

/* Converts integers to floats, in place. */
template <typename K> __global__ void floatKeys(K *keys, uint64_t n)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (uint64_t)blockDim.x)
		keys[i] = float_key(keys[i]);
}

/* The most device memory that a case takes: for the benchmark's buffers and the sort that needs most. */
static uint64_t memory_for(const KeyType &type, uint64_t n)
{
	uint64_t bytes = type.with_rows ? 8 * type.key_bytes + 32 : 6 * type.key_bytes;
	return n * bytes + (64 << 20);
}

template <typename K> class Bench
{
  public:
	/* Makes the input and, with rows, its reference. There must be enough memory. */
	Bench(const KeyType &type, Distribution distribution, uint64_t count) : n(count), with_rows(type.with_rows)
	{
		take(input, n * sizeof(K));
		make_keys<K>(input, distribution, n, 1);
		if (type.floats) {
			floatKeys<<<grid(n), THREADS, 0, stream>>>(input.as<K>(), n);
			MUST(cudaGetLastError());
		}
		if (!with_rows) return;
		GpusortCudaReport report = {};
		Context context = make_context(&report);
		GpusortCudaStatus status;
		renew();
		status =
			radix_pairs<K, uint32_t>(context, buffers.keys.template as<K>(), buffers.keys_spare.template as<K>(),
									 buffers.rows.template as<uint32_t>(), buffers.rows_spare.template as<uint32_t>(),
									 (uint32_t)n, &buffers.sorted, &buffers.rows_sorted);
		MUST_PASS(status);
		take(good_keys, n * sizeof(K));
		take(good_rows, n * sizeof(uint32_t));
		copy(good_keys.as<K>(), buffers.sorted);
		copy(good_rows.as<uint32_t>(), buffers.rows_sorted);
	}

	~Bench()
	{
		scratch.release();
	}

	/* Measures all entries; adds the number of wrong results to *failures. */
	std::vector<Timing> measure(const std::vector<Entry<K>> &list, int repeat, uint64_t *failures)
	{
		std::vector<Timing> timings;
		std::vector<bool> out(list.size(), false); /* which entries have dropped out */
		for (const Entry<K> &entry : list)
			timings.push_back({entry.name, {}, {}});
		for (int round = 0; round <= repeat; round++) {
			for (size_t turn = 0; turn < list.size(); turn++) {
				size_t i = (turn + round) % list.size();
				double ms, wall_ms;
				if (out[i]) continue;
				out[i] = !sort(list[i], &ms, &wall_ms, failures);
				if (out[i] || round == 0) continue;
				timings[i].ms.push_back(ms);
				timings[i].wall_ms.push_back(wall_ms);
			}
		}
		for (size_t i = 0; i < list.size(); i++) {
			if (out[i]) timings[i] = {timings[i].name, {}, {}};
			std::sort(timings[i].ms.begin(), timings[i].ms.end());
			std::sort(timings[i].wall_ms.begin(), timings[i].wall_ms.end());
		}
		return timings;
	}

  private:
	uint64_t n;
	bool with_rows;
	Memory input, good_keys, good_rows;
	Buffers<K> buffers;

	template <typename T> void copy(T *to, T *from)
	{
		MUST(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyDeviceToDevice, stream));
	}

	/*
	 * Overwrites a buffer with bytes that are no result. Allocates it again if a failed sort has left a
	 * smaller one.
	 */
	void spoil(Memory &memory, uint64_t bytes)
	{
		if (memory.bytes() < bytes) take(memory, bytes);
		MUST(cudaMemsetAsync(memory.as<void>(), 0xa5, bytes, stream));
	}

	/* Makes the state that every sort starts from. */
	void renew()
	{
		if (buffers.keys.bytes() < n * sizeof(K)) take(buffers.keys, n * sizeof(K));
		copy(buffers.keys.template as<K>(), input.as<K>());
		spoil(buffers.keys_spare, n * sizeof(K));
		if (with_rows) {
			spoil(buffers.rows, n * sizeof(uint32_t));
			spoil(buffers.rows_spare, n * sizeof(uint32_t));
		}
	}

	/* Sorts once and checks the result. Returns false, after printing why, if this contender drops out. */
	bool sort(const Entry<K> &entry, double *ms, double *wall_ms, uint64_t *failures)
	{
		typedef std::chrono::steady_clock Clock;
		GpusortCudaReport report = {};
		Context context = make_context(&report);
		Found found[2];
		float event_ms = 0;
		cudaEvent_t begin, end;

		MUST(cudaEventCreate(&begin));
		MUST(cudaEventCreate(&end));
		renew();
		MUST(cudaStreamSynchronize(stream));
		Clock::time_point begun = Clock::now();
		MUST(cudaEventRecord(begin, stream));
		GpusortCudaStatus status = sort_once(context, entry, buffers, n);
		if (status == GPUSORT_CUDA_OK) {
			MUST(cudaEventRecord(end, stream));
			MUST(cudaStreamSynchronize(stream));
			*wall_ms = std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
			MUST(cudaEventElapsedTime(&event_ms, begin, end));
			*ms = event_ms;
		}
		MUST(cudaEventDestroy(begin));
		MUST(cudaEventDestroy(end));
		if (status == GPUSORT_CUDA_NO_MEMORY) {
			printf("  %s: skipped, too little device memory for %llu keys\n", entry.name.c_str(),
				   (unsigned long long)n);
			return false;
		}
		if (status != GPUSORT_CUDA_OK) {
			printf("  FAILED: %s: status %d, %s: %s\n", entry.name.c_str(), status, error.call, error.text);
			++*failures;
			if (status == GPUSORT_CUDA_FAULT) exit(1); /* the context may be lost */
			return false;
		}

		check_result(input.as<K>(), buffers.sorted, buffers.rows_sorted, with_rows ? good_keys.as<K>() : nullptr,
					 with_rows ? good_rows.as<uint32_t>() : nullptr, n, found);
		if (found[1].wrong == 0 && found[0].sum == found[1].sum) return true;
		printf("  FAILED: %s: %llu keys wrong, sum %s\n", entry.name.c_str(), found[1].wrong,
			   found[0].sum == found[1].sum ? "same" : "differs");
		++*failures;
		return false;
	}
};

#endif /* GPUSORT_MEASURE_CUH */
