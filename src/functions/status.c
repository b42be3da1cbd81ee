/*-------------------------------------------------------------------------
 *
 * status.c
 *		gpusort_status() shows the engines, gpusort_last_sort() the last sort.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/varlena.h"

#include "base/stat.h"
#include "cpu/cpu.h"
#include "gpu/gpu.h"
#include "run/cpu_options.h"

#define STATUS_COLUMNS		10

PG_FUNCTION_INFO_V1(gpusort_status);
PG_FUNCTION_INFO_V1(gpusort_last_sort);

/* The CPU engine's row of gpusort_status() */
static void
describe_cpu(Datum *values, bool *nulls)
{
	GpusortStatUse *use = gpusort_stat_use();
	char	   *detail;

	if (use != NULL)
		detail = psprintf("VQSort (%s), %ld processors, %u of %d extra threads in use",
						  gpusort_cpu_target(), sysconf(_SC_NPROCESSORS_ONLN), pg_atomic_read_u32(&use->threads),
						  gpusort_cpu_threads_allowed());
	else
		detail = psprintf("VQSort (%s), no extra threads: %s", gpusort_cpu_target(), gpusort_stat_refusal());
	values[0] = CStringGetTextDatum("cpu");
	values[1] = BoolGetDatum(true);
	values[2] = CStringGetTextDatum(detail);
	values[7] = Int64GetDatum(0);
	nulls[3] = nulls[4] = nulls[5] = nulls[6] = nulls[8] = true;
}

/* A version as CUDA has it: 13000 is 13.0 */
static Datum
cuda_version(int version)
{
	return CStringGetTextDatum(psprintf("CUDA %d.%d", version / 1000, version % 1000 / 10));
}

/* The row of the GPU, whose service this may start, and wait until it is ready */
static void
describe_gpu(Datum *values, bool *nulls)
{
	const char *reason = gpusort_client_missing();
	const GpusortControl none = {0};
	const GpusortControl *control = &none;
	int			pid = 0;

	if (reason == NULL && gpusort_control_attach(&reason))
		reason = gpusort_service_wait();
	if (gpusort_control != NULL)
	{
		control = gpusort_control;
		pid = (int) pg_atomic_read_u32(&gpusort_control->service_pid);
	}
	values[0] = CStringGetTextDatum(GPUSORT_CLIENT_ENGINE);
	values[1] = BoolGetDatum(reason == NULL);
	if (reason == NULL && control->failed_at != 0)
		reason = psprintf("GPU service ready; the last failure was at %s: %s",
						  timestamptz_to_str(control->failed_at), control->failure);
	values[2] = CStringGetTextDatum(reason != NULL ? reason : "GPU service ready");
	nulls[3] = control->device[0] == '\0';
	values[3] = CStringGetTextDatum(control->device);
	nulls[4] = control->device_memory == 0;
	values[4] = Int64GetDatum((int64) control->device_memory);
	nulls[5] = control->driver_version == 0;
	values[5] = cuda_version(control->driver_version);
	nulls[6] = control->runtime_version == 0;
	values[6] = cuda_version(control->runtime_version);
	values[7] = Int64GetDatum((int64) control->mapped_bytes);
	nulls[8] = pid == 0;
	values[8] = Int32GetDatum(pid);
}

/* Does a list of libraries name this one, as "gpusort", with a folder, or with the suffix of libraries? */
static bool
names_library(const char *list)
{
	List	   *names;
	ListCell   *lc;

	if (list == NULL || !SplitDirectoriesString(pstrdup(list), ',', &names))
		return false;
	foreach(lc, names)
	{
		const char *slash = last_dir_separator(lfirst(lc));
		const char *name = slash != NULL ? slash + 1 : lfirst(lc);

		if (strcmp(name, "gpusort") == 0 || strcmp(name, "gpusort" DLSUFFIX) == 0)
			return true;
	}
	return false;
}

/*
 * Adds the setting of a row of pg_db_role_setting to the places, if it loads the library.  Returns whether it sets
 * session_preload_libraries for this session.
 */
static bool
add_setting(Form_pg_db_role_setting row, const char *entry, List **places)
{
	const char *setting = "session_preload_libraries";
	const char *value = strchr(entry, '=');
	StringInfoData place;

	if (value == NULL || strncmp(entry, setting, value - entry) != 0 || (Size) (value - entry) != strlen(setting))
		return false;
	if (names_library(value + 1))
	{
		const char *role = GetUserNameFromId(row->setrole, true);
		const char *database = get_database_name(row->setdatabase);

		initStringInfo(&place);
		appendStringInfoString(&place, setting);
		if (role != NULL)
			appendStringInfo(&place, " of role %s", quote_identifier(role));
		if (database != NULL)
			appendStringInfo(&place, " of database %s", quote_identifier(database));
		if (!OidIsValid(row->setrole) && !OidIsValid(row->setdatabase))
			appendStringInfoString(&place, " of all roles");
		*places = lappend(*places, place.data);
	}
	return (row->setrole == InvalidOid || row->setrole == GetSessionUserId()) &&
		(row->setdatabase == InvalidOid || row->setdatabase == MyDatabaseId);
}

/* Adds the settings of databases and roles that load the library.  Returns whether there is one for this session. */
static bool
add_settings(List **places)
{
	Relation	settings = table_open(DbRoleSettingRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(settings, InvalidOid, false, NULL, 0, NULL);
	bool		is_set = false;
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		Datum		config = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig, RelationGetDescr(settings), &isnull);
		Datum	   *entries;
		int			count = 0;

		if (!isnull)
			deconstruct_array(DatumGetArrayTypeP(config), TEXTOID, -1, false, TYPALIGN_INT, &entries, NULL, &count);
		for (int i = 0; i < count; i++)
			is_set |= add_setting((Form_pg_db_role_setting) GETSTRUCT(tuple), TextDatumGetCString(entries[i]), places);
	}
	systable_endscan(scan);
	table_close(settings, AccessShareLock);
	return is_set;
}

static int
compare_places(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}

/*
 * Returns the settings that load the library, or NULL if there is none.  That of the server is hidden from users who may
 * not read it, and by one of a database or a role that this session has.
 */
static char *
preload_places(void)
{
	List	   *places = NIL;
	bool		is_set = add_settings(&places);
	StringInfoData list;
	ListCell   *lc;

	if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_SETTINGS))
	{
		if (!is_set && names_library(session_preload_libraries_string))
			places = lappend(places, "session_preload_libraries");
		if (names_library(shared_preload_libraries_string))
			places = lappend(places, "shared_preload_libraries");
	}
	if (places == NIL)
		return NULL;
	list_sort(places, compare_places);
	initStringInfo(&list);
	foreach(lc, places)
		appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "", (char *) lfirst(lc));
	return list.data;
}

/* gpusort_status() returns setof record: a row for each engine */
Datum
gpusort_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[STATUS_COLUMNS] = {0};
	bool		nulls[STATUS_COLUMNS] = {0};
	char	   *places = preload_places();

	InitMaterializedSRF(fcinfo, 0);
	nulls[9] = places == NULL;
	values[9] = CStringGetTextDatum(places != NULL ? places : "");
	describe_cpu(values, nulls);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	describe_gpu(values, nulls);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

/*
 * gpusort_last_sort() returns record: NULL before the session's first sort, or if
 * that sort was done for a user whose activity the current user may not see
 */
Datum
gpusort_last_sort(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc;
	Datum		values[18];
	bool		nulls[18] = {0};
	Oid			user;
	const GpusortReport *last = gpusort_report_last(&user);
	bool		device = last->copy_in_bytes > 0;
	int			i = 0;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (last->engine == NULL || !gpusort_activity_is_visible(user))
		PG_RETURN_NULL();

	values[i++] = Int64GetDatum((int64) last->rows);
	values[i++] = CStringGetTextDatum(last->key_type);
	values[i++] = CStringGetTextDatum(last->engine);
	nulls[i] = last->algorithm == NULL;
	values[i++] = CStringGetTextDatum(last->algorithm ? last->algorithm : "");
	values[i++] = Float8GetDatum(last->gather_ms);
	values[i++] = Int64GetDatum((int64) last->gather_bytes);
	nulls[i] = !device;
	values[i++] = Float8GetDatum(last->copy_in_ms);
	nulls[i] = !device;
	values[i++] = Int64GetDatum((int64) last->copy_in_bytes);
	values[i++] = Float8GetDatum(last->kernels_ms);
	nulls[i] = !device;
	values[i++] = Float8GetDatum(last->copy_out_ms);
	nulls[i] = !device;
	values[i++] = Int64GetDatum((int64) last->copy_out_bytes);
	values[i++] = Float8GetDatum(last->return_ms);
	values[i++] = BoolGetDatum(last->pinned);
	nulls[i] = last->blocks == 0;
	values[i++] = Int32GetDatum(last->blocks);
	nulls[i] = last->threads == 0;
	values[i++] = Int32GetDatum(last->threads);
	nulls[i] = last->bins == 0;
	values[i++] = Int32GetDatum(last->bins);
	values[i++] = Float8GetDatum(last->total_ms);
	nulls[i] = last->reason == NULL;
	values[i++] = CStringGetTextDatum(last->reason ? last->reason : "");
	Assert(i == lengthof(values));

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}
