/*
 * grid.cuh - kernels of one thread an item: whose turn it is, and how many blocks.
 *
 * Such a kernel goes over any number of items with as many blocks as keep the
 * device busy: a thread begins at its number in the grid and steps on by the
 * grid's size, so that no count is beyond the grid's limits.
 */
#ifndef GPUSORT_GRID_CUH
#define GPUSORT_GRID_CUH

#include "sort.h"

namespace gpusort
{

static const int THREADS = 256;
static const int WARP = 32;
static const int BLOCKS_PER_SM = 16;

__device__ inline uint64_t grid_first()
{
	return blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
}

__device__ inline uint64_t grid_step()
{
	return gridDim.x * (uint64_t)blockDim.x;
}

/* The sum of what all lanes have, in lane 0. */
__device__ inline unsigned long long warp_sum(unsigned long long own)
{
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		own += __shfl_down_sync(0xffffffff, own, lanes);
	return own;
}

/* Blocks of THREADS for count items, one or more. */
static inline unsigned blocks_for(const Run &run, uint64_t count)
{
	uint64_t blocks = (count + THREADS - 1) / THREADS;
	uint64_t most = (uint64_t)run.sm_count * BLOCKS_PER_SM;
	return (unsigned)(blocks < most ? blocks : most);
}

} // namespace gpusort

#endif /* GPUSORT_GRID_CUH */
