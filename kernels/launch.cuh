/*
 * launch.cuh - launches whose start overlaps the end of the kernel before.
 *
 * A small sort is a chain of kernels of a few microseconds each, with one or
 * two between any two of them in which nothing runs.  Since compute
 * capability 9.0 a kernel may be launched while the one before is still at
 * work (programmatic dependent launch, CUDA C++ Programming Guide): it waits,
 * in after_previous(), for that one to have ended and for what it wrote; until
 * then it may touch nothing but its parameters.  The one before says by
 * next_may_begin(), as early as it likes, that blocks which have no room of
 * their own any more may be followed by the next kernel's.
 *
 * A kernel that waits ends after the one it waited for, so a chain of such
 * kernels runs in order.
 */
#ifndef GPUSORT_LAUNCH_CUH
#define GPUSORT_LAUNCH_CUH

#include "sort.h"

namespace gpusort
{

/* To be called by every thread, before it reads or writes any memory. */
__device__ inline void after_previous()
{
#if __CUDA_ARCH__ >= 900
	cudaGridDependencySynchronize();
#endif
}

__device__ inline void next_may_begin()
{
#if __CUDA_ARCH__ >= 900
	cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Does the kernel, as it was compiled for this device, wait? */
template <auto KERNEL> static bool waits()
{
	cudaFuncAttributes attributes;
	if (cudaFuncGetAttributes(&attributes, (const void *)KERNEL) == cudaSuccess) return attributes.ptxVersion >= 90;
	(void)cudaGetLastError();
	return false;
}

/* Launches a kernel that begins with after_previous(). */
template <auto KERNEL, typename... Arguments>
static GpusortCudaStatus launch_after(Run &run, const char *name, unsigned blocks, int threads, size_t shared,
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
	config.stream = run.stream;
	config.attrs = &attribute;
	config.numAttrs = overlap ? 1 : 0;
	return check(cudaLaunchKernelEx(&config, KERNEL, arguments...), name, run.err);
}

} // namespace gpusort

#endif /* GPUSORT_LAUNCH_CUH */
