/*
 * launch.cu - what every sort launches or notes: row numbers, launch sizes.
 */
#include "grid.cuh"

namespace gpusort
{

__global__ void numberRows(uint32_t *rows, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		rows[i] = (uint32_t)i;
}

void note_launch(Run &run, uint64_t blocks, int threads)
{
	if (blocks <= (uint64_t)run.report->blocks) return;
	run.report->blocks = blocks > INT32_MAX ? INT32_MAX : (int)blocks;
	run.report->threads = threads;
}

GpusortCudaStatus number_rows(Run &run, uint32_t *rows, uint64_t count)
{
	numberRows<<<blocks_for(run, count), THREADS, 0, run.stream>>>(rows, count);
	GPUSORT_LAUNCHED("numberRows", run.err);
	return GPUSORT_CUDA_OK;
}

} // namespace gpusort
