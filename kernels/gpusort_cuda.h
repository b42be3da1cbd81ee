/*
 * gpusort_cuda.h
 *		The only interface between C and CUDA.
 *
 * The GPU service (src/service/main.c) uses CUDA through these functions only. They are in a library of
 * their own, gpusort_cuda, which no other process loads. They take and return plain C types, never raise
 * an error, never exit, and report CUDA's message in a GpusortCudaError. None of them may be called before
 * fork(): the postmaster must never call them.
 *
 * A process opens one device, once. A lane is the device side of one sort: a stream for its copies and kernels, its
 * buffers in device memory, and events that time each stage. Lanes are independent: the copies of one overlap the
 * kernels of another.
 *
 * Threads: one thread makes all calls. Ownership: host memory belongs to the caller. It must stay valid
 * until the copy that uses it is known to be done, and should be registered (gpusort_cuda_register),
 * which makes copies faster.
 */
#ifndef GPUSORT_CUDA_H
#define GPUSORT_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device_sort.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct GpusortCudaError {
	int code;		/* cudaError_t; 0 when the error is not CUDA's */
	char call[40];	/* the call that failed, such as "cudaMallocAsync" */
	char text[128]; /* cudaGetErrorString(), or our own message */
} GpusortCudaError;

/* The open device. */
typedef struct GpusortCudaInfo {
	int driver_version;	 /* as cudaDriverGetVersion(): 13000 is 13.0; 0: no driver */
	int runtime_version; /* version of the CUDA runtime linked in: 13000 is 13.0 */
	char name[64];
	int number; /* as CUDA shows it to the process */
	int cc_major, cc_minor;
	int sm_count;
	uint64_t total_memory; /* bytes */
} GpusortCudaInfo;

typedef struct GpusortCudaDevice GpusortCudaDevice;
typedef struct GpusortCudaLane GpusortCudaLane;

/* The kinds of data that the host and a lane exchange. */
typedef enum GpusortCudaPart {
	GPUSORT_CUDA_KEYS,	 /* uploaded: the keys */
	GPUSORT_CUDA_ROWS,	 /* uploaded: blocks of rows, and their directories; optional */
	GPUSORT_CUDA_RESULT, /* downloaded: the sorted keys, or the sorted input positions of a sort with rows */
	GPUSORT_CUDA_TIES,	 /* downloaded: a byte for each row, of gpusort_cuda_mark_ties() */
	GPUSORT_CUDA_WINDOW	 /* downloaded: the rows of the window that was gathered last */
} GpusortCudaPart;

/*
 * Makes the context on the usable device with the most memory, of several the first; the caller closes *dev.
 * CUDA_VISIBLE_DEVICES decides which devices there are. On failure *dev is NULL, and info has what is known.
 */
GpusortCudaStatus gpusort_cuda_open(GpusortCudaDevice **dev, GpusortCudaInfo *info, GpusortCudaError *err);
/* Closes the device, after all lanes have been closed. NULL is allowed. The context lives until the process ends. */
void gpusort_cuda_close(GpusortCudaDevice *dev);

/*
 * Sets the bytes of device memory that all lanes together may hold, and returns them. 0, as after opening,
 * means 90 % of the free memory plus the memory that the pool holds.
 */
uint64_t gpusort_cuda_set_memory_limit(GpusortCudaDevice *dev, uint64_t memory_limit);

/* The bytes of device memory that lanes hold now. */
uint64_t gpusort_cuda_memory_used(const GpusortCudaDevice *dev);

/* Gives cached device memory back to the driver. Waits for all kernels. */
void gpusort_cuda_trim(GpusortCudaDevice *dev);

/*
 * Pins host memory (page-aligned) for this process, or undoes that. Copies of the memory may be in
 * flight when it is pinned, but not when that is undone.
 */
GpusortCudaStatus gpusort_cuda_register(void *mem, size_t bytes, GpusortCudaError *err);
GpusortCudaStatus gpusort_cuda_unregister(void *mem, GpusortCudaError *err);

/* Opens a lane, without keys; the caller closes *lane. On failure *lane is NULL. */
GpusortCudaStatus gpusort_cuda_lane_open(GpusortCudaDevice *dev, GpusortCudaLane **lane, GpusortCudaError *err);

/*
 * Waits for the lane's copies and kernels in flight, then frees the lane and its device memory. NULL is
 * allowed.
 */
void gpusort_cuda_lane_close(GpusortCudaLane *lane);

/*
 * Makes room for this many bytes of a part that is uploaded, once for each part, before the sort. NO_MEMORY leaves the
 * lane as it was: without room for rows, it can still sort keys.
 */
GpusortCudaStatus gpusort_cuda_reserve(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t bytes,
									   GpusortCudaError *err);

/*
 * Queues a copy of bytes bytes from host to this offset of a part, for which there is room. Keys may not follow
 * after the sort, nor rows after gpusort_cuda_arrange().
 */
GpusortCudaStatus gpusort_cuda_upload(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t offset, const void *host,
									  size_t bytes, GpusortCudaError *err);

/* OK once all queued uploads have been read from host memory; BUSY before. */
GpusortCudaStatus gpusort_cuda_uploaded(GpusortCudaLane *lane, GpusortCudaError *err);

/*
 * Sorts the uploaded keys, once per lane. Returns when the order has been checked on the device. On failure the
 * keys may be destroyed: the lane can only be closed.
 */
GpusortCudaStatus gpusort_cuda_sort(GpusortCudaLane *lane, const GpusortCudaSort *sort, GpusortCudaReport *report,
									GpusortCudaError *err);

/*
 * After a sort with rows: queues a kernel that writes a byte for each place of the sorted order, to be downloaded
 * as GPUSORT_CUDA_TIES. It is 1 if the keys at this place and the one before are equal, else 0, and 0 at place 0.
 */
GpusortCudaStatus gpusort_cuda_mark_ties(GpusortCudaLane *lane, GpusortCudaError *err);

/*
 * After a sort with rows, whose rows have been uploaded: divides the rows in sorted order into windows of at most
 * window_bytes, and waits for the end. The blocks have all rows, in the order of their numbers. Frees the memory of
 * the keys. UNSORTED if the blocks do not describe the rows of the sort, or a row lies outside of its block; NO_MEMORY
 * also if a row is longer than a quarter of a window. Then the lane can still download the result, and arrange again.
 */
GpusortCudaStatus gpusort_cuda_arrange(GpusortCudaLane *lane, const GpusortCudaRowBlock *blocks, size_t nblocks,
									   uint64_t window_bytes, uint64_t *nwindows, GpusortCudaError *err);

/*
 * Queues a kernel that copies the rows of a window, by its number, to where downloads of GPUSORT_CUDA_WINDOW read
 * them, and says what they are. Any download of the window before has been queued.
 */
GpusortCudaStatus gpusort_cuda_gather(GpusortCudaLane *lane, uint64_t number, GpusortCudaWindow *window,
									  GpusortCudaError *err);

/*
 * Queues a copy to host: bytes bytes, from the given byte offset of a part, within which they must lie. Downloads
 * finish in the order queued.
 */
GpusortCudaStatus gpusort_cuda_download(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t offset, void *host,
										size_t bytes, GpusortCudaError *err);

/* Sets *finished to the number of downloads of this lane that have finished since it was opened. Never BUSY. */
GpusortCudaStatus gpusort_cuda_downloaded(GpusortCudaLane *lane, uint64_t *finished, GpusortCudaError *err);

/*
 * Fills in the report, including the copies' times. These are complete once every copy is known to have
 * finished.
 */
void gpusort_cuda_lane_report(GpusortCudaLane *lane, GpusortCudaReport *report);

/* All functions above. This is what the library gpusort_cuda exports, and nothing else. */
typedef struct GpusortCudaFunctions {
	/* The version of gpusort that the library belongs to. Stays the first member: it says what the others are. */
	const char *version;
	__typeof__(gpusort_cuda_open) *open;
	__typeof__(gpusort_cuda_close) *close;
	__typeof__(gpusort_cuda_set_memory_limit) *set_memory_limit;
	__typeof__(gpusort_cuda_memory_used) *memory_used;
	__typeof__(gpusort_cuda_trim) *trim;
	__typeof__(gpusort_cuda_register) *register_memory;
	__typeof__(gpusort_cuda_unregister) *unregister_memory;
	__typeof__(gpusort_cuda_lane_open) *lane_open;
	__typeof__(gpusort_cuda_lane_close) *lane_close;
	__typeof__(gpusort_cuda_reserve) *reserve;
	__typeof__(gpusort_cuda_upload) *upload;
	__typeof__(gpusort_cuda_uploaded) *uploaded;
	__typeof__(gpusort_cuda_sort) *sort;
	__typeof__(gpusort_cuda_mark_ties) *mark_ties;
	__typeof__(gpusort_cuda_arrange) *arrange;
	__typeof__(gpusort_cuda_gather) *gather;
	__typeof__(gpusort_cuda_download) *download;
	__typeof__(gpusort_cuda_downloaded) *downloaded;
	__typeof__(gpusort_cuda_lane_report) *lane_report;
} GpusortCudaFunctions;

extern const GpusortCudaFunctions gpusort_cuda_functions;

#ifdef __cplusplus
}
#endif

#endif /* GPUSORT_CUDA_H */
