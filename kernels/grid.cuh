/*
 * grid.cuh
 *		Grid-stride loops and their launch size.
 *
 * Such a kernel processes any number of items with as many blocks as keep the device busy: a thread
 * begins at its number in the grid and advances by the size of the grid, so no count exceeds the limits
 * of a grid.
 */
#ifndef GPUSORT_GRID_CUH
#define GPUSORT_GRID_CUH

#include "sort.h"

namespace gpusort
{

static const int THREADS = 256;
static const int BLOCKS_PER_SM = 16;

__device__ inline uint64_t grid_first()
{
	return blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
}

__device__ inline uint64_t grid_step()
{
	return gridDim.x * (uint64_t)blockDim.x;
}

/* The sum over all lanes of a warp; valid in lane 0. */
__device__ inline unsigned long long warp_sum(unsigned long long own)
{
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		own += __shfl_down_sync(ALL_LANES, own, lanes);
	return own;
}

/* The number of blocks of THREADS threads for count items; count is at least 1. */
static inline unsigned blocks_for(const Context &context, uint64_t count)
{
	uint64_t blocks = (count + THREADS - 1) / THREADS;
	uint64_t most = (uint64_t)context.sm_count * BLOCKS_PER_SM;
	return (unsigned)(blocks < most ? blocks : most);
}

} // namespace gpusort

#endif /* GPUSORT_GRID_CUH */
