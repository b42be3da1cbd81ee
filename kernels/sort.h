/*
 * sort.h - what the files of kernels/ share: status, memory, the sorts.
 *
 * Nothing outside kernels/ (and test/kernels/) includes this.  The plain C
 * door is gpusort_cuda.h.
 *
 * Every algorithm here sorts nothing but unsigned integers of 4 or 8 bytes,
 * ascending, and may be unstable.  Stable row numbers come from packing: a
 * key, or as much of it as fits, in front of its row is a unique 8-byte key
 * (argsort.cu); keys of several words are sorted by as few such sorts as will
 * do (wordsort.cu).  So a new algorithm is one
 * function of the same shape as those at the end of this file.  (What merge
 * sort does beyond that, items of any order, is in mergesort.cuh.)
 *
 * Sorts are given two buffers and leave the result in either one, and say
 * which.  What else they need comes from Memory, which counts every byte
 * against the limit that all lanes share.
 *
 * Errors: every function returns a GpusortCudaStatus, and details what CUDA
 * said in run.err.  GPUSORT_TRY is the one way to call CUDA.
 */
#ifndef GPUSORT_SORT_H
#define GPUSORT_SORT_H

#include "gpusort_cuda.h"

#include <cuda_runtime.h>

namespace gpusort
{

/* Device memory of a process: what may be held, and what is. */
struct Budget {
	cudaMemPool_t pool;
	uint64_t limit; /* bytes */
	uint64_t used;	/* bytes in live Memory objects; may exceed limit only if that was lowered since */
};

/* Enough for what any algorithm tells the host while it runs. */
static const size_t MAILBOX_BYTES = 256;

/* What tests make go wrong after the sort, to walk the paths that no input reaches. */
enum Spoil { SPOIL_NOTHING = 0, SPOIL_ORDER, SPOIL_KEY };

/* What one pass over the keys found, in device memory (look.cuh). All zeros before. */
struct Look {
	unsigned long long not_lo, hi;		   /* not_lo: the complement of the smallest key, in the keys' width */
	unsigned long long sum;				   /* of the keys' hashes */
	unsigned long long dense_lo, dense_hi; /* but for some in a thousand, keys are in here; or lo > hi: no telling */
	unsigned falls, rises;				   /* not 0: some key is below, above the one before it */
};

/* One sort on its way: where it runs, what it may use, where it reports. */
struct Run {
	cudaStream_t stream;
	Budget *budget;
	GpusortCudaError *err;	   /* never NULL */
	GpusortCudaReport *report; /* never NULL */
	int sm_count;
	int shared_optin;	/* bytes of shared memory that a block may ask for */
	int bins;			/* mppsort's h, 2 to 1024; 0: it chooses */
	void *mailbox;		/* MAILBOX_BYTES of pinned host memory, which kernels may write to */
	cudaEvent_t posted; /* recorded when the mailbox has been written */
	Spoil spoil;
	Look *look;	 /* of the keys that are to be sorted, on the device; NULL: nobody wants one */
	bool looked; /* it has been taken; else mppsort takes it, with the sum of keys alone, as it goes */
	/* An algorithm that is no good for these keys may leave them as they are, and says so. */
	bool may_refuse;
	bool refuse_crowds; /* also if most keys crowd in a few places, which costs it a level more */
	bool refused;
};

/* Turns what CUDA returned into a status. Errors that are not sticky are cleared. */
GpusortCudaStatus check(cudaError_t code, const char *call, GpusortCudaError *err);

/* Reports a misuse or a broken promise that CUDA knows nothing of. */
GpusortCudaStatus fail(GpusortCudaStatus status, const char *call, const char *text, GpusortCudaError *err);

/* Calls CUDA, or one of our own functions by GPUSORT_PASS, and returns what went wrong. */
#define GPUSORT_TRY(call, err)                                                                                         \
	do {                                                                                                               \
		GpusortCudaStatus try_status = ::gpusort::check((call), #call, (err));                                         \
		if (try_status != GPUSORT_CUDA_OK) return try_status;                                                          \
	} while (0)

#define GPUSORT_PASS(call)                                                                                             \
	do {                                                                                                               \
		GpusortCudaStatus pass_status = (call);                                                                        \
		if (pass_status != GPUSORT_CUDA_OK) return pass_status;                                                        \
	} while (0)

/* A launch returns nothing: its error is fetched right after, under the kernel's name. */
#define GPUSORT_LAUNCHED(name, err) GPUSORT_PASS(::gpusort::check(cudaGetLastError(), (name), (err)))

/*
 * A piece of device memory, counted in a budget.  Allocated and freed in the
 * order of a stream, so that freeing needs no wait and the next allocation
 * takes the same bytes again.
 */
class Memory
{
  public:
	Memory() = default;
	Memory(const Memory &) = delete;
	Memory &operator=(const Memory &) = delete;
	~Memory()
	{
		release();
	}

	/* Frees what it held, then takes bytes (0 becomes 1: no sort needs to know). */
	GpusortCudaStatus allocate(Budget *budget, cudaStream_t stream, size_t bytes, GpusortCudaError *err);
	GpusortCudaStatus allocate(Run &run, size_t bytes)
	{
		return allocate(run.budget, run.stream, bytes, run.err);
	}
	void release();
	void swap(Memory &other);

	template <typename T> T *as() const
	{
		return static_cast<T *>(data_);
	}
	size_t bytes() const
	{
		return bytes_;
	}

  private:
	void *data_ = nullptr; /* NULL: nothing held, and the rest means nothing */
	size_t bytes_ = 0;
	Budget *budget_ = nullptr;
	cudaStream_t stream_ = nullptr;
};

/* Notes a launch in the report, which keeps the largest one. */
void note_launch(Run &run, uint64_t blocks, int threads);

/* Queues the rows 0 to count - 1. */
GpusortCudaStatus number_rows(Run &run, uint32_t *rows, uint64_t count);

/*
 * Sorts what keys holds as sort says.  Afterwards keys holds the sorted keys,
 * or, if rows are wanted, rows holds their input positions in sorted order, and
 * keys is undefined unless it is wanted too; of several words, keys then holds
 * the sorted merge keys.  On failure both are undefined.
 * The order has been checked on the device when this returns.
 */
GpusortCudaStatus sort_on_device(Run &run, const GpusortCudaSort &sort, Memory &keys, Memory &rows);

/* Keys alone, by an algorithm that is not AUTO. Afterwards keys holds the sorted keys. */
template <typename K>
GpusortCudaStatus sort_keys(Run &run, GpusortAlgorithm algorithm, Memory &keys, uint64_t count);

/* How a sort of rows went. All but the first leave the keys as they were, for another sort to begin with. */
enum Outcome {
	OUTCOME_SORTED,
	OUTCOME_REFUSED, /* a sort of pairs is faster */
	OUTCOME_DISORDER,
	OUTCOME_LOST /* other keys came out than went in */
};

/* The stable order of keys, which are not touched, by any algorithm but AUTO and CUB; checked (argsort.cu). */
template <typename K>
GpusortCudaStatus argsort(Run &run, GpusortAlgorithm algorithm, const Memory &keys, Memory &rows, uint64_t count,
						  Outcome &outcome);

/*
 * The stable order of keys of several words in rows, by any algorithm but AUTO;
 * checked (wordsort.cu).  The keys are not touched, or if they are wanted, too,
 * replaced by their merge keys, sorted.  sort has been looked at: at least one
 * row, fewer than 2^32, as many keys, and a sound merge_key or none settled.
 */
GpusortCudaStatus sort_words(Run &run, const GpusortCudaSort &sort, Memory &keys, Memory &rows);

/*
 * The algorithms.  keys and spare have room for count keys each; sorted is
 * set to the one that holds the result.  K is uint32_t or uint64_t.
 */
template <typename K> GpusortCudaStatus mppsort(Run &run, K *keys, K *spare, uint64_t count, K **sorted);
template <typename K> GpusortCudaStatus quicksort(Run &run, K *keys, K *spare, uint64_t count, K **sorted);
template <typename K> GpusortCudaStatus mergesort(Run &run, K *keys, K *spare, uint64_t count, K **sorted);
template <typename K> GpusortCudaStatus radixsort(Run &run, K *keys, K *spare, uint64_t count, K **sorted);
template <typename K> GpusortCudaStatus cub_sort(Run &run, K *keys, K *spare, uint64_t count, K **sorted);

/* CUB with rows: stable, so rows that start as 0, 1, 2, ... end as stable input positions. Of the keys, only so many
 * low bits are looked at. */
template <typename K>
GpusortCudaStatus cub_sort_pairs(Run &run, K *keys, K *keys_spare, uint32_t *rows, uint32_t *rows_spare, uint32_t count,
								 K **keys_sorted, uint32_t **rows_sorted, int bits = 8 * sizeof(K));

/* A range of keys that an algorithm gave up on. */
struct Range {
	uint64_t start, size;
	uint64_t in_spare; /* 0: its keys are in keys, else in spare */
};

/*
 * Finishes for an algorithm whose depth ran out: all of keys is sorted but
 * for these ranges, an array in device memory; their keys belong there in
 * order.  A few are sorted one by one, many by sorting everything.
 */
template <typename K>
GpusortCudaStatus cub_finish(Run &run, const Range *ranges, uint64_t range_count, K *keys, K *spare, uint64_t count,
							 K **sorted);

} // namespace gpusort

/* The one device of a process; its fields are what a Run takes from it. */
struct GpusortCudaDevice {
	int ordinal;
	int sm_count;
	int shared_optin;
	gpusort::Budget budget;
	void *mailbox; /* of all runs: sorts are synchronous */
	cudaEvent_t posted;
};

#endif /* GPUSORT_SORT_H */
