/*
 * launch.cu
 *		Small parts that every sort uses: row numbers, the report of launch sizes.
 */
#include "grid.cuh"

namespace gpusort
{

__global__ void numberRows(uint32_t *rows, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		rows[i] = (uint32_t)i;
}

void note_launch(Context &context, uint64_t blocks, int threads)
{
	if (blocks <= (uint64_t)context.report->blocks) return;
	context.report->blocks = blocks > INT32_MAX ? INT32_MAX : (int)blocks;
	context.report->threads = threads;
}

GpusortCudaStatus number_rows(Context &context, uint32_t *rows, uint64_t count)
{
	numberRows<<<blocks_for(context, count), THREADS, 0, context.stream>>>(rows, count);
	GPUSORT_LAUNCHED("numberRows", context.err);
	return GPUSORT_CUDA_OK;
}

} // namespace gpusort
