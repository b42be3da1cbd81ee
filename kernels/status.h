/*
 * status.h
 *		What a call of gpusort_cuda.h returns. Plain C: tests name statuses where no device is called.
 */
#ifndef GPUSORT_STATUS_H
#define GPUSORT_STATUS_H

typedef enum GpusortCudaStatus {
	GPUSORT_CUDA_OK = 0,
	GPUSORT_CUDA_BUSY,		 /* poll: not done yet */
	GPUSORT_CUDA_NO_DRIVER,	 /* no driver library, or one without a device node */
	GPUSORT_CUDA_OLD_DRIVER, /* the driver is older than the CUDA runtime linked in */
	GPUSORT_CUDA_NO_DEVICE,	 /* the driver works, but there is no usable device */
	GPUSORT_CUDA_NO_MEMORY,	 /* the device memory or the limit is exhausted; the device still works */
	GPUSORT_CUDA_UNSORTED,	 /* the check after the sort failed */
	GPUSORT_CUDA_FAULT		 /* any other error: the context may be lost, end the process */
} GpusortCudaStatus;

#endif
