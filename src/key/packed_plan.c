/*-------------------------------------------------------------------------
 *
 * packed_plan.c
 *		Plans how the values of a type are packed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "key/packed.h"

static GpusortPacking *
make_packing(GpusortPackingKind kind, int nfields)
{
	GpusortPacking *packing = palloc0(sizeof(GpusortPacking));

	packing->kind = kind;
	packing->nfields = nfields;
	packing->fields = palloc0(sizeof(GpusortField) * Max(nfields, 1));
	return packing;
}

static void
set_field(GpusortField *field, Oid type, Oid collation)
{
	field->type = type;
	field->collation = collation;
	get_typlenbyvalalign(type, &field->length, &field->by_value, &field->align);
}

static GpusortPacking *
plan_row(TupleDesc desc)
{
	GpusortPacking *packing = make_packing(GPUSORT_PACKING_ROW, desc->natts);

	packing->nfields = 0;
	packing->desc = desc;
	packing->values = palloc(sizeof(Datum) * Max(desc->natts, 1));
	packing->nulls = palloc(sizeof(bool) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		GpusortField *field = &packing->fields[packing->nfields];

		if (attribute->attisdropped)
			continue;
		set_field(field, attribute->atttypid, attribute->attcollation);
		field->attribute = i;
		packing->nfields++;
	}
	return packing;
}

GpusortPacking *
gpusort_packed_plan(Oid compare, Oid type, TupleDesc row)
{
	GpusortPacking *packing = NULL;
	Oid			part;
	TypeCacheEntry *entry;

	type = getBaseType(type);
	switch (compare)
	{
		case F_BTARRAYCMP:
			part = get_element_type(type);
			if (!OidIsValid(part))
				return NULL;	/* anyarray, of which statistics are */
			packing = make_packing(GPUSORT_PACKING_ARRAY, 1);
			set_field(&packing->fields[0], part, InvalidOid);
			break;
		case F_RANGE_CMP:
			entry = lookup_type_cache(type, TYPECACHE_RANGE_INFO);
			if (entry->rngelemtype == NULL)
				return NULL;
			part = entry->rngelemtype->type_id;
			/* a range type may have another order than its subtype */
			if (entry->rng_cmp_proc_finfo.fn_oid != lookup_type_cache(part, TYPECACHE_CMP_PROC)->cmp_proc)
				return NULL;
			packing = make_packing(GPUSORT_PACKING_RANGE, 1);
			set_field(&packing->fields[0], part, entry->rng_collation);
			break;
		case F_BTRECORDCMP:
			if (row == NULL && get_typtype(type) == TYPTYPE_COMPOSITE)
				row = lookup_rowtype_tupdesc_copy(type, -1);
			if (row == NULL)
				return NULL;
			packing = plan_row(row);
			break;
		case F_BITCMP:
		case F_VARBITCMP:
			packing = make_packing(GPUSORT_PACKING_BITS, 0);
			break;
	}
	/* elements and bounds are read from where they are stored; name is too long for that */
	if (packing != NULL && packing->kind != GPUSORT_PACKING_ROW && packing->nfields > 0 &&
		(packing->fields[0].length < 0 || packing->fields[0].length > GPUSORT_PACKED_STORED_BYTES))
		return NULL;
	return packing;
}
