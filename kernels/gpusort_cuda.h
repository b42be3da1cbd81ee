/*
 * gpusort_cuda.h - the one door between C and CUDA.
 *
 * The GPU service (src/service/main.c) calls these functions and nothing else of
 * CUDA.  They take and return plain C types, never raise, never exit, and
 * report what CUDA said in a GpusortCudaError.  No function may be called
 * before fork(): the postmaster must never reach this file.
 *
 * A device is opened once by a process.  A lane is the device's side of one
 * sort: a stream for its copies and kernels, its key buffer in device
 * memory, and events that time each stage.  Lanes are independent; copies of
 * one overlap kernels of another.
 *
 * Threads: all calls come from one thread.  Ownership: host memory is the
 * caller's and must stay valid, and registered for speed, until the copy that
 * uses it is known to be done.
 */
#ifndef GPUSORT_CUDA_H
#define GPUSORT_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm.h"
#include "max_words.h"
#include "merge_key.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum GpusortCudaStatus {
	GPUSORT_CUDA_OK = 0,
	GPUSORT_CUDA_BUSY,       /* poll: not done yet */
	GPUSORT_CUDA_NO_DRIVER,  /* no driver library, or one without a device node */
	GPUSORT_CUDA_OLD_DRIVER, /* driver older than the runtime linked in */
	GPUSORT_CUDA_NO_DEVICE,  /* driver works, no usable device */
	GPUSORT_CUDA_NO_MEMORY,  /* device memory exhausted; the device still works */
	GPUSORT_CUDA_UNSORTED,   /* the check after the sort failed, also after a retry with CUB */
	GPUSORT_CUDA_FAULT       /* anything else: the context may be lost, end the process */
} GpusortCudaStatus;

typedef struct GpusortCudaError {
	int code;       /* cudaError_t; 0 when CUDA returned none */
	char call[40];  /* the call that failed, such as "cudaMallocAsync" */
	char text[128]; /* cudaGetErrorString() */
} GpusortCudaError;

typedef struct GpusortCudaInfo {
	char name[64];
	int ordinal;
	int driver_version;  /* as cudaDriverGetVersion(): 13000 is 13.0; 0: no driver */
	int runtime_version; /* of the runtime linked in */
	int cc_major, cc_minor;
	int sm_count;
	uint64_t total_memory; /* bytes */
	uint64_t free_memory;  /* bytes, when opened */
} GpusortCudaInfo;

typedef struct GpusortCudaDevice GpusortCudaDevice;
typedef struct GpusortCudaLane GpusortCudaLane;

/* What to sort: the lane's first rows keys, unsigned and ascending. A key of several words
 * has them side by side, the most significant one first. */
typedef struct GpusortCudaSort {
	uint64_t rows;
	int key_bytes;  /* 4 or 8 */
	bool with_rows; /* instead of the keys, the stable input position (uint32) of each; rows < 2^32 */
	GpusortAlgorithm algorithm;
	int bins;      /* mppsort's h, 2 to 1024; 0: as many as suit the input */
	bool keys_too; /* with_rows: the sorted keys as well, fetched by row, which takes as long as the sort */
	int words;     /* of a key, to GPUSORT_MAX_WORDS; 0 is 1. Several: 8 bytes each, with_rows */
	GpusortMergeKey *merge_key; /* keys_too of several words: what they are made of, 8 bytes each; settled
								 * by the sort if it has no parts, else sound for words */
} GpusortCudaSort;

/* Bytes from one key to the next. */
static inline size_t gpusort_cuda_width(const GpusortCudaSort *sort)
{
	return (size_t)sort->key_bytes * (sort->words > 1 ? sort->words : 1);
}

/* How a sort went, for gpusort_last_sort(). Times are of CUDA events. */
typedef struct GpusortCudaReport {
	GpusortAlgorithm algorithm; /* the one that ran, or CUB if it took over; never AUTO */
	int blocks, threads, bins;      /* of the largest launch; bins 0 unless mppsort */
	double upload_ms;               /* sum over the lane's uploads */
	double kernels_ms;
	double download_ms;             /* sum over the lane's finished downloads */
	bool resorted;                  /* the check found disorder and CUB sorted again */
} GpusortCudaReport;

/* Asks the driver for its version and devices; makes no context. Fills what is known of info. */
GpusortCudaStatus gpusort_cuda_probe(GpusortCudaInfo *info, GpusortCudaError *err);

/* Makes the context on the device with the most memory. memory_limit: bytes of device
 * memory that all lanes together may hold, 0 for nine tenths of what is free. */
GpusortCudaStatus gpusort_cuda_open(GpusortCudaDevice **dev, uint64_t memory_limit, GpusortCudaInfo *info,
                                    GpusortCudaError *err);
void gpusort_cuda_close(GpusortCudaDevice *dev);

void gpusort_cuda_set_memory_limit(GpusortCudaDevice *dev, uint64_t memory_limit);

/* Bytes of device memory held by lanes now. */
uint64_t gpusort_cuda_memory_used(const GpusortCudaDevice *dev);

/* Gives cached device memory back to the driver. */
void gpusort_cuda_trim(GpusortCudaDevice *dev);

/* Pins host memory (page aligned) for this process. */
GpusortCudaStatus gpusort_cuda_register(void *mem, size_t bytes, GpusortCudaError *err);
GpusortCudaStatus gpusort_cuda_unregister(void *mem, GpusortCudaError *err);

GpusortCudaStatus gpusort_cuda_lane_open(GpusortCudaDevice *dev, GpusortCudaLane **lane, GpusortCudaError *err);

/* Waits for what the lane has in flight, then frees its device memory. NULL is allowed. */
void gpusort_cuda_lane_close(GpusortCudaLane *lane);

/* Queues a copy of bytes from host behind the keys uploaded so far; grows the device buffer as needed. */
GpusortCudaStatus gpusort_cuda_upload(GpusortCudaLane *lane, const void *host, size_t bytes, GpusortCudaError *err);

/* OK once all queued uploads have left host memory, else BUSY. */
GpusortCudaStatus gpusort_cuda_uploaded(GpusortCudaLane *lane, GpusortCudaError *err);

/* Sorts what was uploaded; returns when the order has been checked on the device. */
GpusortCudaStatus gpusort_cuda_sort(GpusortCudaLane *lane, const GpusortCudaSort *sort, GpusortCudaReport *report,
                                    GpusortCudaError *err);

/* Queues a copy of bytes, from byte offset of the sorted keys (rows: of the sorted input
 * positions), to host. Downloads finish in the order queued. */
GpusortCudaStatus gpusort_cuda_download(GpusortCudaLane *lane, bool rows, uint64_t offset, void *host, size_t bytes,
                                        GpusortCudaError *err);

/* How many of the downloads queued so far have finished. */
GpusortCudaStatus gpusort_cuda_downloaded(GpusortCudaLane *lane, uint64_t *finished, GpusortCudaError *err);

/* The copies' times, complete once every copy is known to have finished. */
void gpusort_cuda_lane_report(GpusortCudaLane *lane, GpusortCudaReport *report);

#ifdef __cplusplus
}
#endif

#endif /* GPUSORT_CUDA_H */
