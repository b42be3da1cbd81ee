/*
 * device.cu
 *		The device and its memory budget.
 *
 * Memory comes from a pool of our own (cudaMallocFromPoolAsync), which keeps freed memory. Allocating for
 * the next sort then takes microseconds, and gpusort_cuda_trim() gives the memory back to the driver. The
 * limit is also our own, counted in Budget: a sort that does not fit gets NO_MEMORY before it takes
 * memory away from other programs on the device.
 *
 * CUDA errors are of two kinds. After a refusal (out of memory, no device) the CUDA context still works;
 * such errors are cleared here. Any other error may have destroyed the context: FAULT.
 *
 * Most servers have no device, so finding none is a normal result. The four reasons have different
 * remedies and so different statuses: no driver library, a driver library without the kernel module (a
 * container without the device nodes), a driver that is too old, and a driver without a device that it
 * may use. Probing makes no context.
 */
#include "sort.h"

#include <new>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

using gpusort::Budget;
using gpusort::check;
using gpusort::fail;
using gpusort::Memory;

static const int OLDEST_CC = 75; /* compute capability 7.5, the oldest that the kernels are built for */

/* ---- errors ---- */

GpusortCudaStatus gpusort::fail(GpusortCudaStatus status, const char *call, const char *text, GpusortCudaError *err)
{
	err->code = 0;
	snprintf(err->call, sizeof(err->call), "%s", call);
	snprintf(err->text, sizeof(err->text), "%s", text);
	return status;
}

GpusortCudaStatus gpusort::check(cudaError_t code, const char *call, GpusortCudaError *err)
{
	if (code == cudaSuccess) return GPUSORT_CUDA_OK;

	err->code = code;
	snprintf(err->call, sizeof(err->call), "%.*s", (int)strcspn(call, "("), call);
	snprintf(err->text, sizeof(err->text), "%s", cudaGetErrorString(code));
	/*
	 * CUDA also keeps the error as its last error, and the next launch check would report it: clear it.
	 * An error that destroyed the context is reported again by the next call.
	 */
	(void)cudaGetLastError();
	switch (code) {
	case cudaErrorMemoryAllocation:
		return GPUSORT_CUDA_NO_MEMORY;
	case cudaErrorInsufficientDriver:
	case cudaErrorSystemDriverMismatch:
	case cudaErrorCompatNotSupportedOnDevice:
		return GPUSORT_CUDA_OLD_DRIVER;
	case cudaErrorNoDevice:
	case cudaErrorDevicesUnavailable:
		return GPUSORT_CUDA_NO_DEVICE;
	default:
		return GPUSORT_CUDA_FAULT;
	}
}

/* ---- memory ---- */

GpusortCudaStatus Memory::allocate(Budget *budget, cudaStream_t stream, size_t bytes, GpusortCudaError *err)
{
	release();
	if (bytes == 0) bytes = 1;
	if (bytes > budget->limit || budget->used > budget->limit - bytes)
		return fail(GPUSORT_CUDA_NO_MEMORY, "cudaMallocFromPoolAsync", "the device memory limit is reached", err);

	cudaError_t code = cudaMallocFromPoolAsync(&data_, bytes, budget->pool, stream);
	if (code == cudaErrorMemoryAllocation) {
		/* The pool may hold freed memory in blocks that do not fit: give it back to the driver, once. */
		(void)cudaGetLastError();
		GPUSORT_TRY(cudaStreamSynchronize(stream), err);
		GPUSORT_TRY(cudaMemPoolTrimTo(budget->pool, 0), err);
		code = cudaMallocFromPoolAsync(&data_, bytes, budget->pool, stream);
	}
	if (code != cudaSuccess) data_ = nullptr;
	GPUSORT_PASS(check(code, "cudaMallocFromPoolAsync", err));
	bytes_ = bytes;
	budget_ = budget;
	stream_ = stream;
	budget->used += bytes;
	return GPUSORT_CUDA_OK;
}

void Memory::release()
{
	if (data_ == nullptr) return;
	/* Fails only if the context is lost, and its memory with it; the next call reports that. */
	(void)cudaFreeAsync(data_, stream_);
	budget_->used -= bytes_;
	data_ = nullptr;
	bytes_ = 0;
}

void Memory::swap(Memory &other)
{
	auto exchange = [](auto &a, auto &b) {
		auto c = a;
		a = b;
		b = c;
	};
	exchange(data_, other.data_);
	exchange(bytes_, other.bytes_);
	exchange(budget_, other.budget_);
	exchange(stream_, other.stream_);
}

/* ---- device ---- */

static void clear_error(GpusortCudaError *err)
{
	memset(err, 0, sizeof(*err));
}

/* Can the device run our kernels, may this process use it, and has it memory pools? (Some virtual GPUs have none.) */
static bool is_usable(int number, cudaDeviceProp *prop)
{
	int mode = 0, pools = 0;

	if (cudaGetDeviceProperties(prop, number) != cudaSuccess ||
		cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, number) != cudaSuccess ||
		cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, number) != cudaSuccess) {
		(void)cudaGetLastError();
		return false;
	}
	return 10 * prop->major + prop->minor >= OLDEST_CC && mode != cudaComputeModeProhibited && pools != 0;
}

/* Describes the driver and the usable device with the most memory. Makes no context. */
static GpusortCudaStatus find_device(GpusortCudaInfo *info, GpusortCudaError *err)
{
	int devices = 0;

	(void)cudaRuntimeGetVersion(&info->runtime_version);
	cudaError_t code = cudaDriverGetVersion(&info->driver_version);
	if (code != cudaSuccess || info->driver_version == 0) {
		info->driver_version = 0;
		(void)cudaGetLastError();
		return fail(GPUSORT_CUDA_NO_DRIVER, "cudaDriverGetVersion", "no CUDA driver library was found", err);
	}

	code = cudaGetDeviceCount(&devices);
	if (code != cudaSuccess) {
		GpusortCudaStatus status = check(code, "cudaGetDeviceCount", err);
		if (status == GPUSORT_CUDA_OLD_DRIVER) return status;
		/*
		 * A driver library without the kernel module, as in a container, reports "no device" or "unknown
		 * error".
		 */
		if (access("/dev/nvidiactl", F_OK) != 0 && access("/dev/dxg", F_OK) != 0) return GPUSORT_CUDA_NO_DRIVER;
		return status;
	}

	for (int i = 0; i < devices; i++) {
		cudaDeviceProp prop;
		if (!is_usable(i, &prop) || prop.totalGlobalMem <= info->total_memory) continue;
		snprintf(info->name, sizeof(info->name), "%.*s", (int)sizeof(info->name) - 1, prop.name);
		info->number = i;
		info->cc_major = prop.major;
		info->cc_minor = prop.minor;
		info->sm_count = prop.multiProcessorCount;
		info->total_memory = prop.totalGlobalMem;
	}
	if (info->total_memory == 0)
		return fail(GPUSORT_CUDA_NO_DEVICE, "cudaGetDeviceCount",
					devices == 0 ? "no CUDA device was found"
								 : "no usable CUDA device of compute capability 7.5 or later",
					err);
	return GPUSORT_CUDA_OK;
}

static GpusortCudaStatus open_device(GpusortCudaDevice *dev, GpusortCudaInfo *info, GpusortCudaError *err)
{
	cudaMemPoolProps props;

	GPUSORT_PASS(find_device(info, err));
	const int number = info->number;
	GPUSORT_TRY(cudaSetDevice(number), err);
	GPUSORT_TRY(cudaDeviceGetAttribute(&dev->shared_optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, number), err);
	dev->sm_count = info->sm_count;
	GPUSORT_TRY(cudaHostAlloc(&dev->mailbox, gpusort::MAILBOX_BYTES, cudaHostAllocDefault), err);
	GPUSORT_TRY(cudaEventCreateWithFlags(&dev->mailbox_ready, cudaEventDisableTiming), err);

	memset(&props, 0, sizeof(props));
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	props.location.id = number;
	GPUSORT_TRY(cudaMemPoolCreate(&dev->budget.pool, &props), err);
	uint64_t keep = UINT64_MAX;
	GPUSORT_TRY(cudaMemPoolSetAttribute(dev->budget.pool, cudaMemPoolAttrReleaseThreshold, &keep), err);
	(void)gpusort_cuda_set_memory_limit(dev, 0);
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus gpusort_cuda_open(GpusortCudaDevice **dev, GpusortCudaInfo *info, GpusortCudaError *err)
{
	*dev = nullptr;
	memset(info, 0, sizeof(*info));
	clear_error(err);

	GpusortCudaDevice *opened = new (std::nothrow) GpusortCudaDevice();
	if (opened == nullptr) return fail(GPUSORT_CUDA_NO_MEMORY, "gpusort_cuda_open", "out of host memory", err);
	GpusortCudaStatus status = open_device(opened, info, err);
	if (status == GPUSORT_CUDA_OK)
		*dev = opened;
	else
		gpusort_cuda_close(opened);
	return status;
}

/* All lanes must be closed before. The context lives until the process ends. */
void gpusort_cuda_close(GpusortCudaDevice *dev)
{
	if (dev == nullptr) return;
	if (dev->mailbox_ready != nullptr) (void)cudaEventDestroy(dev->mailbox_ready);
	if (dev->mailbox != nullptr) (void)cudaFreeHost(dev->mailbox);
	if (dev->budget.pool != nullptr) (void)cudaMemPoolDestroy(dev->budget.pool);
	delete dev;
}

uint64_t gpusort_cuda_set_memory_limit(GpusortCudaDevice *dev, uint64_t memory_limit)
{
	size_t free_bytes = 0, total_bytes = 0;
	uint64_t reserved = 0; /* bytes that the pool holds: those of the lanes and those it keeps for reuse */
	if (memory_limit == 0) {
		if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess ||
			cudaMemPoolGetAttribute(dev->budget.pool, cudaMemPoolAttrReservedMemCurrent, &reserved) != cudaSuccess) {
			(void)cudaGetLastError(); /* the next call reports a lost context */
			return dev->budget.limit;
		}
		memory_limit = (free_bytes + reserved) / 10 * 9;
	}
	dev->budget.limit = memory_limit;
	return memory_limit;
}

uint64_t gpusort_cuda_memory_used(const GpusortCudaDevice *dev)
{
	return dev->budget.used;
}

void gpusort_cuda_trim(GpusortCudaDevice *dev)
{
	/* Freed memory counts as free once its stream has reached the free; the next call reports a failure. */
	(void)cudaDeviceSynchronize();
	(void)cudaMemPoolTrimTo(dev->budget.pool, 0);
}

GpusortCudaStatus gpusort_cuda_register(void *mem, size_t bytes, GpusortCudaError *err)
{
	clear_error(err);
	GPUSORT_TRY(cudaHostRegister(mem, bytes, cudaHostRegisterDefault), err);
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus gpusort_cuda_unregister(void *mem, GpusortCudaError *err)
{
	clear_error(err);
	GPUSORT_TRY(cudaHostUnregister(mem), err);
	return GPUSORT_CUDA_OK;
}
