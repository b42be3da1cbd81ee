/*
 * device_sort.h
 *		What a sort on the device is: the keys, the rows that travel with them, and how it went.
 *
 * Plain C, without a call of CUDA's: a backend puts these structs into its request, and the GPU service hands them to
 * the functions of gpusort_cuda.h.
 */
#ifndef GPUSORT_DEVICE_SORT_H
#define GPUSORT_DEVICE_SORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm.h"
#include "max_words.h"

/*
 * The sort requested of a lane: its first rows keys, as unsigned integers, ascending. The words of a key are
 * side by side, the most significant one first.
 */
typedef struct GpusortCudaSort {
	uint64_t rows;
	int key_bytes; /* bytes of one word: 4 or 8 */
	/* return the stable input position (uint32) of each key instead of the keys; rows < 2^32 */
	bool with_rows;
	GpusortAlgorithm algorithm;
	/* words of a key, at most GPUSORT_MAX_WORDS; 0 means 1. Several words have 8 bytes each and need with_rows */
	int words;
} GpusortCudaSort;

/* The bytes from one key to the next. */
static inline size_t gpusort_cuda_width(const GpusortCudaSort *sort)
{
	return (size_t)sort->key_bytes * (sort->words > 1 ? sort->words : 1);
}

/* How a sort went, for gpusort_last_sort(). Times are measured by CUDA events. */
typedef struct GpusortCudaReport {
	GpusortAlgorithm algorithm; /* the one that ran, or CUB if that took over; never AUTO */
	int blocks, threads, bins;	/* sizes of the largest launch; bins is 0 unless mppSort ran */
	double upload_ms;			/* sum over the lane's uploads */
	double kernels_ms;
	double arrange_ms;	/* of gpusort_cuda_arrange() */
	double download_ms; /* sum over the lane's finished downloads */
} GpusortCudaReport;

/*
 * A block of rows that lie side by side in GPUSORT_CUDA_ROWS, in the order of their numbers. Rows begin at
 * multiples of 8 bytes. If stride is 0, the block has a directory of uint32, one for each row, which grows
 * downward: where the row begins, in units of 8 bytes from the begin of the block. Offsets count from the begin of
 * GPUSORT_CUDA_ROWS, in bytes.
 */
typedef struct GpusortCudaRowBlock {
	uint64_t offset;	/* of the first row; a multiple of 8 */
	uint64_t bytes;		/* of all its rows; a multiple of 8 */
	uint64_t directory; /* of the end of the directory; a multiple of 4 */
	uint32_t first;		/* number of its first row; the next block's first row follows its last one */
	uint32_t stride;	/* bytes from a row to the next, a multiple of 8; 0: there is a directory */
} GpusortCudaRowBlock;

/* Rows in sorted order, side by side. */
typedef struct GpusortCudaWindow {
	uint64_t first; /* the place of its first row in the sorted order */
	uint64_t count;
	uint64_t bytes;
} GpusortCudaWindow;

#endif /* GPUSORT_DEVICE_SORT_H */
