/*
 * sort.h
 *		The interface that the files of kernels/ share: status, memory, algorithms.
 *
 * Only kernels/ and test/kernels/ include this file. Everyone else uses the plain C interface,
 * gpusort_cuda.h.
 *
 * Every algorithm sorts unsigned integers of 4 or 8 bytes, ascending, and may be unstable. argsort.cu
 * makes stable sorts of row numbers out of these: it packs a key, or as many of its leading bits as fit,
 * and its row number into one unique 8-byte integer. wordsort.cu sorts keys of several words by as few
 * such sorts as possible. A new algorithm is therefore one function with the signature of those at the
 * end of this file. (Merge sort can also sort items of any type by any order: see mergesort.cuh.)
 *
 * A sort gets two buffers, leaves its result in either one, and reports which. It allocates everything
 * else through Memory, which counts every byte against the limit that all lanes of the process share.
 *
 * Errors: every function returns a GpusortCudaStatus and stores the details in context.err. All CUDA
 * calls go through GPUSORT_TRY.
 *
 * Threads: one host thread makes all calls (gpusort_cuda.h).
 */
#ifndef GPUSORT_SORT_H
#define GPUSORT_SORT_H

#include "gpusort_cuda.h"

#include <cuda_runtime.h>

#include <memory>

namespace gpusort
{

static const int WARP = 32;
static const unsigned ALL_LANES = 0xffffffff; /* the mask of all lanes of a warp */

/* The device memory budget of a process. */
struct Budget {
	cudaMemPool_t pool;
	uint64_t limit; /* bytes that all Memory objects together may hold */
	uint64_t used;	/* bytes in live Memory objects; exceeds limit only after the limit was lowered */
};

/* Bytes of the pinned host memory through which an algorithm's kernels report to the host. */
static const size_t MAILBOX_BYTES = 256;

/* Faults that tests inject after the sort, to reach the error paths that no input reaches. */
enum Spoil { SPOIL_NOTHING = 0, SPOIL_ORDER, SPOIL_KEY };

/* The result of one pass over the keys, in device memory (summary.cuh). The caller sets it to zeros first. */
struct KeySummary {
	/* not_lo: the complement of the smallest key, within the key's width */
	unsigned long long not_lo, hi;
	unsigned long long sum; /* sum of the keys' hashes, modulo 2^64 */
	/* about 99.9 % of the keys are in [dense_lo, dense_hi]; dense_lo > dense_hi: unknown */
	unsigned long long dense_lo, dense_hi;
	/* not 0: some key is below (decreases) or above (increases) the key before it */
	unsigned decreases, increases;
};

/*
 * The context of one sort: where it runs, what it may use, where it reports. The caller owns everything
 * it points to.
 */
struct Context {
	cudaStream_t stream;
	Budget *budget;
	GpusortCudaError *err;	   /* never NULL */
	GpusortCudaReport *report; /* never NULL */
	int sm_count;
	int shared_optin;		   /* the most bytes of shared memory that one block may request */
	void *mailbox;			   /* MAILBOX_BYTES of pinned host memory, which kernels may write to */
	cudaEvent_t mailbox_ready; /* recorded when a kernel has written the mailbox */
	/* for tests: damage a result; divide keys into fewer targets, so that few keys need many levels (0: no) */
	Spoil spoil;
	int few_targets;
	/* set by a sort with rows that has sorted the keys, too; otherwise they are as they were */
	bool keys_sorted;

	/*
	 * The rest belongs to one sort of keys. The functions that check a result give it a copy of
	 * the context with these fields of its own.
	 */
	KeySummary *summary; /* in device memory: summary of the keys to be sorted; NULL: not wanted */
	/* summary is filled in; if it is not, mppSort fills it in while it counts, with the sum of the keys only */
	bool summarized;
	/* an algorithm that suits the keys badly may leave them untouched and set declined */
	bool may_decline;
	/* also decline if most keys are in a few crowded bins, which costs mppSort one more level */
	bool decline_crowds;
	bool declined;
};

/* Converts a cudaError_t into a status and fills *err unless it is cudaSuccess. Clears CUDA's last error. */
GpusortCudaStatus check(cudaError_t code, const char *call, GpusortCudaError *err);

/* Fills *err for an error that CUDA did not report, and returns status. The texts are copied. */
GpusortCudaStatus fail(GpusortCudaStatus status, const char *call, const char *text, GpusortCudaError *err);

/* GPUSORT_TRY calls CUDA, GPUSORT_PASS one of our own functions; both return from the caller on an error. */
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

/* A kernel launch returns no status: this fetches its error right after, under the kernel's name. */
#define GPUSORT_LAUNCHED(name, err) GPUSORT_PASS(::gpusort::check(cudaGetLastError(), (name), (err)))

/*
 * A buffer of device memory, counted in a budget. It is allocated and freed in the order of a stream:
 * freeing does not wait, and the next allocation in that stream can reuse the same bytes. The stream must
 * outlive the object.
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

	/*
	 * Frees the present buffer, then allocates bytes bytes (1 if bytes is 0, so that callers need no
	 * special case). The contents are undefined. Errors: NO_MEMORY if the budget or the device is
	 * exhausted.
	 */
	GpusortCudaStatus allocate(Budget *budget, cudaStream_t stream, size_t bytes, GpusortCudaError *err);
	GpusortCudaStatus allocate(Context &context, size_t bytes)
	{
		return allocate(context.budget, context.stream, bytes, context.err);
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
	void *data_ = nullptr; /* NULL: no buffer, and the other members are undefined */
	size_t bytes_ = 0;
	Budget *budget_ = nullptr;
	cudaStream_t stream_ = nullptr;
};

/* Records a launch in the report, which keeps the one with the most blocks. */
void note_launch(Context &context, uint64_t blocks, int threads);

/* Queues a kernel that fills rows, in device memory, with 0 to count - 1. */
GpusortCudaStatus number_rows(Context &context, uint32_t *rows, uint64_t count);

/*
 * Sorts the keys that sort describes. Afterwards keys holds the sorted keys. If rows are wanted, rows
 * holds their input positions in sorted order instead, and context.keys_sorted says what keys holds. On
 * failure both are undefined. When this returns OK, the order has been checked on the device.
 */
GpusortCudaStatus sort_on_device(Context &context, const GpusortCudaSort &sort, Memory &keys, Memory &rows);

/* Sorts keys without rows by an algorithm other than AUTO. Afterwards keys holds the sorted keys. */
template <typename K>
GpusortCudaStatus sort_keys(Context &context, GpusortAlgorithm algorithm, Memory &keys, uint64_t count);

/*
 * Writes the stable order of the keys to rows, by any algorithm except AUTO and CUB, and checks it
 * (argsort.cu). The keys are not changed. declined: a sort of (key, row) pairs is faster, and rows is
 * undefined.
 */
template <typename K>
GpusortCudaStatus argsort(Context &context, GpusortAlgorithm algorithm, const Memory &keys, Memory &rows,
						  uint64_t count, bool &declined);

/*
 * Writes the stable order of keys of several words to rows, by any algorithm except AUTO, and checks it
 * (wordsort.cu). The keys are unchanged. The caller has validated sort: 1 to 2^32 - 1 rows, and keys holds
 * that many keys.
 */
GpusortCudaStatus sort_words(Context &context, const GpusortCudaSort &sort, const Memory &keys, Memory &rows);

/*
 * Queues a kernel that fills ties for gpusort_cuda_mark_ties(). order has the sorted rows; it is NULL if the
 * keys are sorted themselves.
 */
GpusortCudaStatus mark_ties(Context &context, const GpusortCudaSort &sort, const Memory &keys, const uint32_t *order,
							Memory &ties);

/* The begin of a window. */
struct WindowBegin {
	uint64_t place;	 /* of its first row in the sorted order */
	uint64_t offset; /* of this row, in words of 8 bytes from the begin of the sorted rows */
};

/* The windows of rows in sorted order (rows.cu). The caller sets order and rows, and the other members to zeros. */
struct Arrangement {
	const uint32_t *order; /* the sorted row numbers, in device memory */
	uint32_t rows;		   /* number of rows; no other member is used if it is 0 */
	uint64_t windows;
	const char *data; /* the uploaded rows */
	Memory blocks;	  /* GpusortCudaRowBlock[nblocks] */
	uint32_t nblocks;
	Memory staging; /* the window that was gathered last */
	/* rows of the same length: */
	uint32_t stride;	 /* bytes of each row; 0: lengths differ */
	bool aligned;		 /* rows begin and end at multiples of 16 bytes */
	uint64_t per_window; /* rows of each window except the last */
	/* rows of different lengths: */
	Memory offsets;						   /* uint64_t[rows + 1], in sorted order, as WindowBegin.offset */
	std::unique_ptr<WindowBegin[]> begins; /* of each window, and the end of the last one */
	uint64_t longest;					   /* words of the longest row */
	int group;							   /* threads that copy a row: 4, 8, 16 or 32 */
};

/*
 * Divides the rows in data into windows, as gpusort_cuda_arrange() does, and waits for the device. On failure made
 * can only be destroyed.
 */
GpusortCudaStatus arrange_rows(Context &context, const Memory &data, const GpusortCudaRowBlock *blocks, size_t nblocks,
							   uint64_t window_bytes, Arrangement &made);

/* Queues a kernel that copies the rows of a window to made.staging, and fills in *window. */
GpusortCudaStatus gather_rows(Context &context, const Arrangement &made, uint64_t number, GpusortCudaWindow *window);

/*
 * The algorithms. K is uint32_t or uint64_t; keys and spare, in device memory, have room for count keys
 * each. *sorted is set to the one that holds the result.
 */
template <typename K> GpusortCudaStatus mppsort(Context &context, K *keys, K *spare, uint64_t count, K **sorted);
template <typename K> GpusortCudaStatus quicksort(Context &context, K *keys, K *spare, uint64_t count, K **sorted);
template <typename K> GpusortCudaStatus mergesort(Context &context, K *keys, K *spare, uint64_t count, K **sorted);
template <typename K> GpusortCudaStatus radixsort(Context &context, K *keys, K *spare, uint64_t count, K **sorted);
template <typename K> GpusortCudaStatus cub_sort(Context &context, K *keys, K *spare, uint64_t count, K **sorted);

/*
 * CUB's stable sort of pairs: rows that start as 0, 1, 2, ... end as stable input positions. Compares
 * only the low bits bits of the keys.
 */
template <typename K>
GpusortCudaStatus cub_sort_pairs(Context &context, K *keys, K *keys_spare, uint32_t *rows, uint32_t *rows_spare,
								 uint32_t count, K **keys_sorted, uint32_t **rows_sorted, int bits = 8 * sizeof(K));

/* A range of keys that an algorithm did not finish. */
struct Range {
	uint64_t start, size;
	uint64_t in_spare; /* 0: its keys are in keys; else in spare */
};

/*
 * Finishes the sort of an algorithm that reached its depth limit. All of keys is sorted except these
 * ranges, an array in device memory; the sorted keys of each range belong at its own place in keys. A few
 * ranges are sorted one by one; if there are many, everything is sorted again.
 */
template <typename K>
GpusortCudaStatus cub_finish(Context &context, const Range *ranges, uint64_t range_count, K *keys, K *spare,
							 uint64_t count, K **sorted);

} // namespace gpusort

/* The one device of a process. Each sort's Context takes its fields from here. */
struct GpusortCudaDevice {
	int sm_count;
	int shared_optin;
	gpusort::Budget budget;
	void *mailbox; /* shared by all sorts, which are synchronous */
	cudaEvent_t mailbox_ready;
};

#endif /* GPUSORT_SORT_H */
