/*
 * launch.cuh
 *		Launches whose start overlaps the end of the previous kernel.
 *
 * A small sort is a chain of kernels of a few microseconds each, with a gap of one or two microseconds
 * between any two of them. Since compute capability 9.0 a kernel can be launched while the previous one
 * still runs (programmatic dependent launch, CUDA C++ Programming Guide). In after_previous() it waits
 * until the previous kernel has ended and its writes are visible; before that it may read only its
 * parameters. By calling next_may_begin() a kernel allows the next one's blocks to start as soon as all
 * of its own blocks have started and leave room. It may call this at any time.
 *
 * A kernel that waits ends after the one that it waited for, so a chain of such kernels runs in order.
 */
#ifndef GPUSORT_LAUNCH_CUH
#define GPUSORT_LAUNCH_CUH

#include "sort.h"

namespace gpusort
{

/* Every thread calls this before it reads or writes memory. */
__device__ inline void after_previous()
{
#if __CUDA_ARCH__ >= 900
	cudaGridDependencySynchronize();
#endif
}

/* Allows the next kernel's blocks to start as soon as there is room for them. */
__device__ inline void next_may_begin()
{
#if __CUDA_ARCH__ >= 900
	cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Does the kernel, as compiled for this device, wait for the previous one? */
template <auto KERNEL> static bool waits()
{
	cudaFuncAttributes attributes;
	if (cudaFuncGetAttributes(&attributes, (const void *)KERNEL) == cudaSuccess) return attributes.ptxVersion >= 90;
	(void)cudaGetLastError();
	return false;
}

/* Launches a kernel that begins with after_previous(). */
template <auto KERNEL, typename... Arguments>
static GpusortCudaStatus launch_after(Context &context, const char *name, unsigned blocks, int threads, size_t shared,
									  const Arguments &...arguments)
{
	static const bool overlap = waits<KERNEL>();
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};
	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3(blocks);
	config.blockDim = dim3((unsigned)threads);
	config.dynamicSmemBytes = shared;
	config.stream = context.stream;
	config.attrs = &attribute;
	config.numAttrs = overlap ? 1 : 0;
	return check(cudaLaunchKernelEx(&config, KERNEL, arguments...), name, context.err);
}

} // namespace gpusort

#endif /* GPUSORT_LAUNCH_CUH */
