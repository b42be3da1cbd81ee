/*-------------------------------------------------------------------------
 *
 * column_plan.c
 *		Chooses the columns that gpusort can order by, and the plan for each.
 *
 * The choice depends on the sort operator.  Its btree operator family must be one of PostgreSQL's own, because an
 * extension's family may define any order; of extensions only citext's is known, and those that abbreviate keys
 * (key/support.c).  The operator's input type says how to read the value.  The column's own type may be another one
 * that is binary coercible to it: a domain, varchar, cidr or regclass.
 *
 * Texts compare by their bytes under the C and POSIX collations, other locales of libc that order by bytes, the
 * builtin provider, and in the pattern_ops families.  Others compare by ICU or by libc (key/weights.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/nbtree.h"
#include "access/transam.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_database.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "key/column.h"

/* The encoding of some types.  key/column.h explains the fields and the plans. */
typedef struct RowType
{
	Oid			typids[5];		/* input types of the sort operator */
	GpusortRowKind kind;
	uint8		words;
	uint8		width;			/* plan flag: bits of the value in the first word; else 0 */
	uint8		bits;			/* bits that can vary, in all words */
	uint64		sign;			/* sign bit of a signed integer, else 0 */
	GpusortEncoder encode;		/* NULL: key/rowkey.c's inline */
} RowType;

static const RowType row_types[] = {
	{{BOOLOID}, GPUSORT_ROW_BYTE, 1, 1, 2, 0},
	{{CHAROID}, GPUSORT_ROW_BYTE, 1, 8, 9, 0},
	{{INT2OID}, GPUSORT_ROW_INT2, 1, 16, 17, UINT64_C(0x8000)},
	{{INT4OID, DATEOID}, GPUSORT_ROW_INT4, 1, 32, 33, GPUSORT_SIGN32},
	{{OIDOID}, GPUSORT_ROW_INT4, 1, 32, 33, 0},
	{{FLOAT4OID}, GPUSORT_ROW_FLOAT4, 1, 32, 33, 0},
	{{ANYENUMOID}, GPUSORT_ROW_ENUM, 1, 32, 33, 0, gpusort_rowenum_encode},
	{{MACADDROID}, GPUSORT_ROW_MACADDR, 1, 48, 49, 0},
	{{TIDOID}, GPUSORT_ROW_TID, 1, 48, 49, 0},
	{{FLOAT8OID}, GPUSORT_ROW_FLOAT8, 1, 0, 64, 0},
	{{INT8OID, TIMEOID, TIMESTAMPOID, TIMESTAMPTZOID, CASHOID}, GPUSORT_ROW_INT8, 1, 0, 64, GPUSORT_SIGN64},
	{{XID8OID, PG_LSNOID}, GPUSORT_ROW_INT8, 1, 0, 64, 0},
	{{MACADDR8OID}, GPUSORT_ROW_MACADDR8, 1, 0, 64, 0},
	{{UUIDOID}, GPUSORT_ROW_UUID, 2, 0, 128, 0},
	{{TEXTOID, BYTEAOID, BPCHAROID}, GPUSORT_ROW_TEXT, 2, 0, 128, 0, gpusort_rowstring_encode},
	{{NAMEOID}, GPUSORT_ROW_NAME, 2, 0, 128, 0, gpusort_rowstring_encode},
	{{NUMERICOID}, GPUSORT_ROW_NUMERIC, 2, 63, 128, 0, gpusort_rownumeric_encode},
	{{INTERVALOID}, GPUSORT_ROW_INTERVAL, 2, 37, 75, 0, gpusort_rowinterval_encode},
	{{TIMETZOID}, GPUSORT_ROW_TIMETZ, 2, 53, 86, 0, gpusort_rowtimetz_encode},
	{{INETOID}, GPUSORT_ROW_INET, 2, 63, 128, 0, gpusort_rowinet_encode},
};

/* text and bpchar under ICU: 127 bits of weights */
static const RowType icu_type = {{0}, GPUSORT_ROW_ICU, 2, 63, 128, 0, gpusort_rowstring_encode};

/* The first 63 bits of an abbreviated key: of another type, or of text and bpchar under ICU if there are no weights */
static const RowType supported_type = {{0}, GPUSORT_ROW_SUPPORTED, 1, 63, 64, 0, gpusort_rowsupport_encode};

/* text, bpchar and name under libc */
static const RowType libc_type = {{0}, GPUSORT_ROW_LIBC, 2, 63, 128, 0, gpusort_rowstring_encode};

/* Returns the encoding of an input type, or NULL. */
static const RowType *
find_type(Oid typid)
{
	for (int i = 0; i < lengthof(row_types); i++)
	{
		for (int j = 0; j < lengthof(row_types[i].typids); j++)
		{
			if (row_types[i].typids[j] == typid)
				return &row_types[i];
		}
	}
	return NULL;
}

/* How a collation compares texts */
typedef enum Comparer
{
	COMPARER_BYTES,
	COMPARER_ICU,
	COMPARER_LIBC
} Comparer;

/*
 * collprovider and datlocprovider of the builtin provider (PostgreSQL 17 and
 * later), all of whose locales compare by bytes
 */
#define PROVIDER_BUILTIN	'b'

/* Returns a text attribute of a catalog's tuple in a palloc'ed string, or NULL. */
static char *
catalog_string(int cache, HeapTuple tuple, AttrNumber attribute)
{
	bool		isnull;
	Datum		value = SysCacheGetAttr(cache, tuple, attribute, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

/*
 * Reads the provider and the locale from the catalogs, as pg_locale.c does.  pg_locale.h cannot be included: it needs
 * the headers of ICU, which PostgreSQL's development packages do not depend on.
 *
 * Under libc, sets *collate and *ctype to the names of the locale in palloc'ed strings,
 * or to NULL if the catalog has none; else to NULL.
 */
static Comparer
read_collation(Oid collation, char **collate, char **ctype)
{
	bool		is_default = collation == DEFAULT_COLLATION_OID;
	int			cache = is_default ? DATABASEOID : COLLOID;
	Oid			oid = is_default ? MyDatabaseId : collation;
	HeapTuple	tuple = SearchSysCache1(cache, ObjectIdGetDatum(oid));
	char		provider;
	Comparer	comparer = COMPARER_LIBC;

	*collate = *ctype = NULL;
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for the locale of collation %u", collation);
	if (is_default)
		provider = ((Form_pg_database) GETSTRUCT(tuple))->datlocprovider;
	else
		provider = ((Form_pg_collation) GETSTRUCT(tuple))->collprovider;

	if (provider == COLLPROVIDER_ICU)
		comparer = COMPARER_ICU;
	else if (provider == PROVIDER_BUILTIN)
		comparer = COMPARER_BYTES;
	else
	{
		*collate = catalog_string(cache, tuple, is_default ? Anum_pg_database_datcollate :
								  Anum_pg_collation_collcollate);
		*ctype = catalog_string(cache, tuple, is_default ? Anum_pg_database_datctype :
								Anum_pg_collation_collctype);
		if (*collate != NULL && (strcmp(*collate, "C") == 0 || strcmp(*collate, "POSIX") == 0))
			comparer = COMPARER_BYTES;
	}
	ReleaseSysCache(tuple);
	return comparer;
}

GpusortComparison
gpusort_rowkey_slowest(Oid type, Oid collation)
{
	/* the locale of a database never changes */
	static int	default_comparer = -1;
	char	   *collate;
	char	   *ctype;

	if (!OidIsValid(collation))
		return GPUSORT_COMPARISON_FAST;
	/* it may be citext */
	if (type >= FirstNormalObjectId)
		return GPUSORT_COMPARISON_CITEXT;
	if (collation == DEFAULT_COLLATION_OID && default_comparer < 0)
		default_comparer = read_collation(collation, &collate, &ctype);
	if (collation == C_COLLATION_OID || (collation == DEFAULT_COLLATION_OID && default_comparer != COMPARER_LIBC))
		return GPUSORT_COMPARISON_FAST;
	return GPUSORT_COMPARISON_LIBC;
}

Oid
gpusort_rowkey_equality_collation(Oid equals, Oid collation)
{
	RegProcedure function = OidIsValid(collation) ? get_opcode(equals) : InvalidOid;
	bool		strings = function == F_TEXTEQ || function == F_BPCHAREQ || function == F_NAMEEQ;

	return strings && get_collation_isdeterministic(collation) ? C_COLLATION_OID : collation;
}

/*
 * Chooses between bytes, ICU and libc for a text column.  *type is the type's entry for bytes; it becomes icu_type or
 * supported_type under ICU, and libc_type under libc, with *libc set.  Returns NULL, or the reason why gpusort cannot
 * order by the column.
 */
static const char *
resolve_text(const RowType **type, Oid opfamily, Oid collation, int place, GpusortLibc **libc)
{
	char	   *collate;
	char	   *ctype;
	Comparer	comparer;

	/* the pattern_ops families ignore their collations */
	if (opfamily == TEXT_PATTERN_BTREE_FAM_OID || opfamily == BPCHAR_PATTERN_BTREE_FAM_OID)
		return NULL;
	if (!OidIsValid(collation))
		return psprintf("the collation of column %d is not determined", place);
	comparer = read_collation(collation, &collate, &ctype);
	if (comparer == COMPARER_LIBC && collate != NULL && ctype != NULL)
		*libc = gpusort_libc_find(collate, ctype);
	if (comparer == COMPARER_BYTES || (*libc != NULL && (*libc)->by_bytes))
		return NULL;
	if (comparer == COMPARER_ICU)
	{
		/* PostgreSQL has no abbreviated keys for name (varlena.c) */
		if ((*type)->kind == GPUSORT_ROW_NAME)
			return psprintf("column %d of type name compares by ICU", place);
		*type = &icu_type;
		return NULL;
	}
	/* core raises an error about a locale that cannot be opened */
	if (*libc == NULL)
		return psprintf("libc has no locale for collation \"%s\" of column %d",
						get_collation_name(collation), place);
	if ((*libc)->distrusted)
		return psprintf("collation \"%s\" of column %d orders differently from its sort keys",
						get_collation_name(collation), place);
	*type = &libc_type;
	return NULL;
}

/*
 * Does a btree operator family compare values of this type by citext_cmp()?  An extension's operator family may
 * define any order, so its name proves nothing: the code that compares decides, a function in C called citext_cmp in
 * the library $libdir/citext.  Only superusers can create such a function, and PostgreSQL loads contrib's code for
 * it, whatever the type and the family are called.
 */
static bool
compares_as_citext(Oid opfamily, Oid type)
{
	Oid			function = get_opfamily_proc(opfamily, type, type, BTORDER_PROC);

	/*
	 * In other encodings of several bytes, lower() fails where libc does not know a
	 * character.  Core may never compare such a string.
	 */
	return OidIsValid(function) && get_typlen(type) == -1 &&
		gpusort_is_c_function(function, "$libdir/citext", "citext_cmp") &&
		(GetDatabaseEncoding() == PG_UTF8 || pg_database_encoding_max_length() == 1);
}

const char *
gpusort_rowtype_resolve(const GpusortSortColumn *from, int place, GpusortRowColumn *column)
{
	const RowType *type;
	const char *refusal;
	GpusortLibc *libc = NULL;
	bool		lowered = false;
	bool		is_string;
	Oid			opfamily;
	Oid			opcintype;
	GPUSORT_ORDERING ordering;
	uint64		complement;
	int			bits_first;

	if (from->attno <= 0)
		return psprintf("column %d is a system column", place);
	if (!get_ordering_op_properties(from->sort_operator, &opfamily, &opcintype, &ordering))
		return psprintf("operator %u of column %d is not a btree ordering operator",
						from->sort_operator, place);

	type = find_type(opcintype);
	if (type == NULL && compares_as_citext(opfamily, opcintype))
	{
		/* in small letters, it is a text */
		type = find_type(TEXTOID);
		lowered = true;
	}
	/* initdb assigns the OIDs of PostgreSQL's own families, which are below this */
	if (opfamily >= FirstNormalObjectId && !lowered && gpusort_rowsupport_possible(from, opfamily, opcintype))
		type = &supported_type;
	if (type == NULL || !IsBinaryCoercible(getBaseType(from->type), opcintype))
	{
		/* one that is not PostgreSQL's own is in quotation marks, as in other reasons */
		return psprintf(from->type < FirstNormalObjectId ? "type %s is not supported" : "type \"%s\" is not supported",
						format_type_be(from->type));
	}
	if (opfamily >= FirstNormalObjectId && !lowered && type != &supported_type)
		return psprintf("the operator family of column %d is not built in", place);

	/* bytea has no collation */
	is_string = type->kind == GPUSORT_ROW_TEXT;
	if ((is_string && opcintype != BYTEAOID) || type->kind == GPUSORT_ROW_NAME)
	{
		refusal = resolve_text(&type, opfamily, from->collation, place, &libc);
		if (refusal != NULL)
			return refusal;
	}

	memset(column, 0, sizeof(*column));
	if (type->kind == GPUSORT_ROW_LIBC)
		column->weights.libc = libc;
	else if (type->kind == GPUSORT_ROW_ENUM)
		column->labels.type = getBaseType(from->type);
	column->kind = type->kind;
	column->encode = type->encode;
	column->attribute = from->attno - 1;
	column->words = type->words;
	column->bits = type->bits;
	column->width = type->width;
	column->is_string = is_string;
	column->is_name = opcintype == NAMEOID;
	column->blank_padded = opcintype == BPCHAROID;
	column->lowered = lowered;
	column->comparison = lowered ? GPUSORT_COMPARISON_CITEXT :
		libc != NULL ? GPUSORT_COMPARISON_LIBC : GPUSORT_COMPARISON_FAST;
	column->descending = ordering == GPUSORT_ORDERING_DESC;
	column->nulls_first = from->nulls_first;

	bits_first = type->width > 0 ? type->width + 1 : 64;
	column->masks.greatest[0] = PG_UINT64_MAX >> (64 - bits_first);
	if (type->words > 1)
		column->masks.greatest[1] = PG_UINT64_MAX >> (64 - (type->bits - bits_first));

	complement = column->descending ? PG_UINT64_MAX : 0;
	column->masks.flip[1] = complement & column->masks.greatest[1];
	if (type->width > 0)
	{
		uint64		flag = UINT64CONST(1) << type->width;

		column->masks.flip[0] = (complement & (flag - 1)) ^ type->sign;
		column->masks.base = from->nulls_first ? flag : 0;
		column->masks.null[0] = flag ^ column->masks.base;
	}
	else
	{
		column->masks.flip[0] = complement ^ type->sign;
		column->masks.null[0] = column->masks.null[1] = from->nulls_first ? 0 : PG_UINT64_MAX;
	}
	return NULL;
}

void
gpusort_rowtype_begin(const GpusortSortColumn *from, GpusortRowColumn *column)
{
	switch (column->kind)
	{
		case GPUSORT_ROW_ENUM:
			column->labels.ranks = palloc0(sizeof(GpusortEnumRanks));
			break;
		case GPUSORT_ROW_ICU:
			column->weights.icu = gpusort_icu_find != NULL ? gpusort_icu_find(from->collation) : NULL;
			if (column->weights.icu != NULL)
				break;
			column->kind = GPUSORT_ROW_SUPPORTED;
			column->encode = supported_type.encode;
			column->words = supported_type.words;
			column->bits = supported_type.bits;
			gpusort_rowsupport_begin(column, from);
			break;
		case GPUSORT_ROW_SUPPORTED:
			gpusort_rowsupport_begin(column, from);
			break;
		default:
			break;
	}
}
