/*
 * device.cu - the device and its memory budget.
 *
 * Memory comes from a pool of our own (cudaMallocFromPoolAsync), which keeps
 * what is freed: allocating for the next sort then costs microseconds, and
 * gpusort_cuda_trim() gives the rest back.  The limit is ours too, counted in
 * Budget: a sort that does not fit gets NO_MEMORY before it takes memory away
 * from other programs on the device.
 *
 * Errors of CUDA are of two kinds: those that say no (out of memory, no
 * device), after which the context lives on and which are cleared here, and
 * all others, which may have poisoned it: FAULT.
 *
 * Finding out that there is no device must be as dull as finding one, since
 * most servers have none: no driver library, a library without the kernel's
 * half (a container without the device nodes), a driver too old, and a driver
 * without a device it may use are four different answers, because the remedy
 * differs.  None of them makes a context.
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

static const int OLDEST_CC = 75; /* the oldest architecture that the kernels are built for */

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
	/* Also kept as the last error, which the next launch would report as its own; a sticky one comes back. */
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
		/* The pool may hold pieces that others freed and that do not fit: give them back, once. */
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
	/* Fails only if the context is lost, and the memory with it; the next call says so. */
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

/* Fits our kernels, is allowed to be used, and has pools (some virtual GPUs have none). */
static bool usable(int ordinal, const cudaDeviceProp &prop)
{
	int mode = 0, pools = 0;
	if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, ordinal) != cudaSuccess ||
		cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, ordinal) != cudaSuccess) {
		(void)cudaGetLastError();
		return false;
	}
	return 10 * prop.major + prop.minor >= OLDEST_CC && mode != cudaComputeModeProhibited && pools != 0;
}

GpusortCudaStatus gpusort_cuda_probe(GpusortCudaInfo *info, GpusortCudaError *err)
{
	int devices = 0;

	memset(info, 0, sizeof(*info));
	info->ordinal = -1;
	clear_error(err);
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
		/* A library without the kernel's half of the driver, as in a container, says "no device" or "unknown". */
		if (access("/dev/nvidiactl", F_OK) != 0 && access("/dev/dxg", F_OK) != 0) return GPUSORT_CUDA_NO_DRIVER;
		return status;
	}

	for (int i = 0; i < devices; i++) {
		cudaDeviceProp prop;
		GPUSORT_TRY(cudaGetDeviceProperties(&prop, i), err);
		if (!usable(i, prop) || prop.totalGlobalMem <= info->total_memory) continue;
		snprintf(info->name, sizeof(info->name), "%.*s", (int)sizeof(info->name) - 1, prop.name);
		info->ordinal = i;
		info->cc_major = prop.major;
		info->cc_minor = prop.minor;
		info->sm_count = prop.multiProcessorCount;
		info->total_memory = prop.totalGlobalMem;
	}
	if (info->ordinal < 0)
		return fail(GPUSORT_CUDA_NO_DEVICE, "cudaGetDeviceCount",
					devices == 0 ? "no CUDA device was found" : "no CUDA device of compute capability 7.5 or later",
					err);
	return GPUSORT_CUDA_OK;
}

static GpusortCudaStatus open_device(GpusortCudaDevice *dev, uint64_t memory_limit, GpusortCudaInfo *info,
									 GpusortCudaError *err)
{
	size_t free_bytes = 0, total_bytes = 0;
	cudaMemPoolProps props;

	GPUSORT_TRY(cudaSetDevice(info->ordinal), err);
	GPUSORT_TRY(cudaMemGetInfo(&free_bytes, &total_bytes), err);
	info->free_memory = free_bytes;
	GPUSORT_TRY(cudaDeviceGetAttribute(&dev->shared_optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, info->ordinal),
				err);
	dev->ordinal = info->ordinal;
	dev->sm_count = info->sm_count;
	GPUSORT_TRY(cudaHostAlloc(&dev->mailbox, gpusort::MAILBOX_BYTES, cudaHostAllocDefault), err);
	GPUSORT_TRY(cudaEventCreateWithFlags(&dev->posted, cudaEventDisableTiming), err);

	memset(&props, 0, sizeof(props));
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	props.location.id = info->ordinal;
	GPUSORT_TRY(cudaMemPoolCreate(&dev->budget.pool, &props), err);
	uint64_t keep = UINT64_MAX;
	GPUSORT_TRY(cudaMemPoolSetAttribute(dev->budget.pool, cudaMemPoolAttrReleaseThreshold, &keep), err);
	gpusort_cuda_set_memory_limit(dev, memory_limit ? memory_limit : free_bytes / 10 * 9);
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus gpusort_cuda_open(GpusortCudaDevice **dev, uint64_t memory_limit, GpusortCudaInfo *info,
									GpusortCudaError *err)
{
	*dev = nullptr;
	GPUSORT_PASS(gpusort_cuda_probe(info, err));

	GpusortCudaDevice *opened = new (std::nothrow) GpusortCudaDevice();
	if (opened == nullptr) return fail(GPUSORT_CUDA_NO_MEMORY, "gpusort_cuda_open", "out of host memory", err);
	GpusortCudaStatus status = open_device(opened, memory_limit, info, err);
	if (status == GPUSORT_CUDA_OK)
		*dev = opened;
	else
		gpusort_cuda_close(opened);
	return status;
}

/* All lanes must be closed before. The context goes with the process. */
void gpusort_cuda_close(GpusortCudaDevice *dev)
{
	if (dev == nullptr) return;
	if (dev->posted != nullptr) (void)cudaEventDestroy(dev->posted);
	if (dev->mailbox != nullptr) (void)cudaFreeHost(dev->mailbox);
	if (dev->budget.pool != nullptr) (void)cudaMemPoolDestroy(dev->budget.pool);
	delete dev;
}

void gpusort_cuda_set_memory_limit(GpusortCudaDevice *dev, uint64_t memory_limit)
{
	size_t free_bytes = 0, total_bytes = 0;
	uint64_t reserved = 0; /* by the pool: what lanes hold, and what it keeps for them */
	if (memory_limit == 0) {
		if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess ||
			cudaMemPoolGetAttribute(dev->budget.pool, cudaMemPoolAttrReservedMemCurrent, &reserved) != cudaSuccess) {
			(void)cudaGetLastError(); /* a lost context shows in the next call */
			return;
		}
		memory_limit = (free_bytes + reserved) / 10 * 9;
	}
	dev->budget.limit = memory_limit;
}

uint64_t gpusort_cuda_memory_used(const GpusortCudaDevice *dev)
{
	return dev->budget.used;
}

void gpusort_cuda_trim(GpusortCudaDevice *dev)
{
	/* Memory freed in a stream counts as free once the stream got there; a failure shows in the next call. */
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
