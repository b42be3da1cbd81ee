/*-------------------------------------------------------------------------
 *
 * stat_test.c
 *		SQL functions that test src/base/stat.c.
 *
 * They count reasons that no sort has, in the shared memory of the library's own counters.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../../src/base/stat.c"

PG_FUNCTION_INFO_V1(stat_reason);
PG_FUNCTION_INFO_V1(stat_first_warning);

/* stat_reason(engine text, reason text) returns void */
Datum
stat_reason(PG_FUNCTION_ARGS)
{
	gpusort_stat_reason(GPUSORT_STAT_SORT, text_to_cstring(PG_GETARG_TEXT_PP(0)), text_to_cstring(PG_GETARG_TEXT_PP(1)));
	PG_RETURN_VOID();
}

/* stat_first_warning(reason text) returns boolean */
Datum
stat_first_warning(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(gpusort_stat_first_warning(text_to_cstring(PG_GETARG_TEXT_PP(0))));
}
