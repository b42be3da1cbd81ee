/*-------------------------------------------------------------------------
 *
 * support.c
 *		Types that gpusort does not know, but whose btree operator class abbreviates keys.
 *
 * The sort support of an operator class may make a Datum of each value, an abbreviated key, whose order is that of the
 * values, except that different values may have the same one (utils/sortsupport.h).  If the comparison of these Datums is
 * core's of unsigned integers, a Datum is a word, and the full comparison breaks ties.  (Core has one of signed integers,
 * too, which nobody abbreviates for.)
 *
 * The comparison of PostGIS's geometries is its own.  It is that of unsigned integers, but that it leaves 0, which empty
 * geometries have, to the full comparison, by which they come first (postgis/lwgeom_btree.c).
 *
 * Text under ICU is encoded so, too, where key/icu.c does not support the collation or the encoding.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/nbtree.h"
#include "catalog/pg_language.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "key/column.h"

struct GpusortSupport
{
	SortSupport abbreviation;
	MemoryContext cxt;			/* where a value is abbreviated */
};

/*
 * Prepares to abbreviate by an operator.  False if there are no abbreviated keys, or their comparison is not that of
 * unsigned integers.
 */
static bool
prepare(const GpusortSortColumn *from, Oid sort_operator, GpusortSupport *support)
{
	SortSupport ssup = palloc0(sizeof(SortSupportData));

	ssup->ssup_cxt = CurrentMemoryContext;
	ssup->ssup_collation = from->collation;
	ssup->ssup_nulls_first = from->nulls_first;
	ssup->ssup_attno = from->attno;
	ssup->abbreviate = true;
	PrepareSortSupportFromOrderingOp(sort_operator, ssup);
	support->abbreviation = ssup;
	return ssup->abbrev_converter != NULL && ssup->comparator == ssup_datum_unsigned_cmp;
}

bool
gpusort_is_c_function(Oid function, const char *library, const char *name)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		found = false;
	bool		isnull;
	Datum		path;

	if (!HeapTupleIsValid(tuple))
		return false;
	path = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_probin, &isnull);
	if (!isnull && ((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId)
		found = strcmp(TextDatumGetCString(path), library) == 0 &&
			strcmp(TextDatumGetCString(SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull)), name) == 0;
	ReleaseSysCache(tuple);
	return found;
}

bool
gpusort_rowsupport_possible(const GpusortSortColumn *from, Oid opfamily, Oid opcintype)
{
	Oid			function = get_opfamily_proc(opfamily, opcintype, opcintype, BTSORTSUPPORT_PROC);
	GpusortSupport support;

	return OidIsValid(function) &&
		(prepare(from, from->sort_operator, &support) ||
		 gpusort_is_c_function(function, "$libdir/postgis-3", "lwgeom_sortsupport"));
}

void
gpusort_rowsupport_begin(GpusortRowColumn *column, const GpusortSortColumn *from)
{
	GpusortSupport *support = palloc(sizeof(GpusortSupport));

	/* citext in small letters is a text */
	if (!prepare(from, column->lowered ? TextLessOperator : from->sort_operator, support) &&
		support->abbreviation->abbrev_converter == NULL)
		elog(ERROR, "operator %u has no abbreviated keys", from->sort_operator);
	support->cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort abbreviation", ALLOCSET_SMALL_SIZES);
	column->support = support;
}

bool
gpusort_rowsupport_encode(GpusortRowColumn *column, Datum value, uint64 *words)
{
	GpusortSupport *support = column->support;
	MemoryContext old = MemoryContextSwitchTo(support->cxt);
	uint64		word;

	if (unlikely(column->lowered))
	{
		struct varlena *datum = PG_DETOAST_DATUM_PACKED(value);
		Size		length = VARSIZE_ANY_EXHDR(datum);
		char	   *lowered = gpusort_citext_lower(VARDATA_ANY(datum), length, palloc(length), length, &length);

		value = PointerGetDatum(cstring_to_text_with_len(lowered, length));
	}
	/* the Datum is the upper bits of the word */
	word = (uint64) support->abbreviation->abbrev_converter(value, support->abbreviation) << (64 - 8 * SIZEOF_DATUM);
	MemoryContextSwitchTo(old);
	MemoryContextReset(support->cxt);
	/* the first bit is left for NULL's flag, so the last bit is lost */
	words[0] = gpusort_column_word(column, word >> 1);
	return false;
}
