/*
 * functions.c
 *		The table of functions that the library gpusort_cuda exports.
 */
#include "gpusort_cuda.h"

__attribute__((visibility("default"))) const GpusortCudaFunctions gpusort_cuda_functions = {
	.version = GPUSORT_VERSION,
	.open = gpusort_cuda_open,
	.close = gpusort_cuda_close,
	.set_memory_limit = gpusort_cuda_set_memory_limit,
	.memory_used = gpusort_cuda_memory_used,
	.trim = gpusort_cuda_trim,
	.register_memory = gpusort_cuda_register,
	.unregister_memory = gpusort_cuda_unregister,
	.lane_open = gpusort_cuda_lane_open,
	.lane_close = gpusort_cuda_lane_close,
	.reserve = gpusort_cuda_reserve,
	.upload = gpusort_cuda_upload,
	.uploaded = gpusort_cuda_uploaded,
	.sort = gpusort_cuda_sort,
	.mark_ties = gpusort_cuda_mark_ties,
	.arrange = gpusort_cuda_arrange,
	.gather = gpusort_cuda_gather,
	.download = gpusort_cuda_download,
	.downloaded = gpusort_cuda_downloaded,
	.lane_report = gpusort_cuda_lane_report,
};
