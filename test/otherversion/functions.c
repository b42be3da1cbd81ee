/*-------------------------------------------------------------------------
 *
 * functions.c
 *		A library gpusort_cuda of another version of gpusort, for tests.
 *
 * It begins as GpusortCudaFunctions (kernels/gpusort_cuda.h) does in every version.  A
 * service that called one of its functions would crash.
 *
 *-------------------------------------------------------------------------
 */
const struct
{
	const char *version;
	void	   *functions[100];
}			gpusort_cuda_functions = {.version = "0.0.9"};
