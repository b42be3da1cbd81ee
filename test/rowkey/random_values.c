/*-------------------------------------------------------------------------
 *
 * random_values.c
 *		Makes random values for random_keys.c.
 *
 * Independent random values differ early and test little.  So most values are made from
 * the one before: a string with the same first bytes, a number with one more digit, the
 * same instant in another zone, an address of the same network.  Many others are at the
 * ends of the type's range.  The values are made in the types' internal form or by
 * their input functions, and some are values that users cannot write.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "storage/itemptr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
#include "utils/varbit.h"

#include "random_values.h"
#include "compat.h"

/* Makes maker->string of up to longest bytes, often with the first bytes of the last one. */
static void
next_string(Maker *maker, int longest, const char *alphabet, int letters)
{
	int			length = any(maker, longest + 1);
	int			kept = any(maker, 3) == 0 ? 0 : any(maker, Min(maker->length, length) + 1);

	/* or with all bytes of the last one and at most one more */
	if (any(maker, 4) == 0)
	{
		kept = Min(maker->length, longest);
		length = Min(kept + any(maker, 2), longest);
	}
	for (int i = kept; i < length; i++)
		maker->string[i] = any(maker, 8) == 0 ? (char) any(maker, 256) : alphabet[any(maker, letters)];
	maker->length = length;
}

static Datum
random_bytea(Maker *maker)
{
	next_string(maker, STRING_BYTES, "\0\001\377\376a", 5);
	return PointerGetDatum(cstring_to_text_with_len(maker->string, maker->length));
}

/* Replaces zero bytes, which strings cannot have, by bytes of 1, the next lowest. */
static void
without_zeros(Maker *maker)
{
	for (int i = 0; i < maker->length; i++)
	{
		if (maker->string[i] == '\0')
			maker->string[i] = '\001';
	}
}

static Datum
random_text(Maker *maker)
{
	next_string(maker, STRING_BYTES, "\001 a\177\377", 5);
	without_zeros(maker);
	return PointerGetDatum(cstring_to_text_with_len(maker->string, maker->length));
}

static Datum
random_bpchar(Maker *maker)
{
	next_string(maker, STRING_BYTES, "    \001a", 6);
	without_zeros(maker);
	return PointerGetDatum(cstring_to_text_with_len(maker->string, maker->length));
}

static Datum
random_name(Maker *maker)
{
	Name		name = palloc0(NAMEDATALEN);

	next_string(maker, STRING_BYTES, "\001a\377", 3);
	without_zeros(maker);
	memcpy(NameStr(*name), maker->string, maker->length);
	return NameGetDatum(name);
}

/*
 * A sign, digits before and after the point, and an exponent, so that all weights and
 * scales occur, and also equal values such as 1e3, 1000 and 1000.0.
 */
static Datum
random_numeric(Maker *maker)
{
	static const char *const specials[] = {"NaN", "Infinity", "-Infinity", "0", "-0.000"};
	StringInfoData literal;
	int			point;

	if (any(maker, 16) == 0)
		return DirectFunctionCall3(numeric_in, CStringGetDatum(specials[any(maker, lengthof(specials))]),
								   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	next_string(maker, STRING_BYTES, "0000999915", 10);
	/* turn each byte into a digit */
	for (int i = 0; i < maker->length; i++)
	{
		if (maker->string[i] < '0' || maker->string[i] > '9')
			maker->string[i] = '0' + (unsigned char) maker->string[i] % 10;
	}
	switch (any(maker, 32))
	{
		case 0:
			maker->exponent = any(maker, 147000) - 16000;
			break;
		case 1:
			/* around the largest exponents of numerics with short headers */
			maker->exponent = (any(maker, 2) ? 252 : -252) + any(maker, 24) - 12;
			break;
		case 2:
		case 3:
		case 4:
			maker->exponent = any(maker, 24) - 12;
			break;
		case 5:
		case 6:
		case 7:
			maker->point = any(maker, STRING_BYTES + 1);
			break;
	}
	point = Min(maker->point, maker->length);
	initStringInfo(&literal);
	appendStringInfo(&literal, "%s0%.*s.%.*se%d", any(maker, 3) == 0 ? "-" : "", point, maker->string,
					 maker->length - point, maker->string + point, maker->exponent);
	return DirectFunctionCall3(numeric_in, CStringGetDatum(literal.data), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
}

/* A random number, an end of a range, the last number, or a neighbour of that. */
static uint64
next_word(Maker *maker)
{
	static const uint64 ends[] = {0, 1, PG_UINT64_MAX, (uint64) PG_INT64_MAX, (uint64) PG_INT64_MIN};

	switch (any(maker, 4))
	{
		case 0:
			maker->word = pg_prng_uint64(&maker->random) >> any(maker, 64);
			break;
		case 1:
			maker->word = ends[any(maker, lengthof(ends))];
			break;
		default:
			maker->word += any(maker, 3) - 1;
			break;
	}
	return maker->word;
}

static Datum
random_int8(Maker *maker)
{
	return Int64GetDatum((int64) next_word(maker));
}

static Datum
random_float8(Maker *maker)
{
	uint64		word = next_word(maker);
	double		number;

	memcpy(&number, &word, sizeof(number));
	if (any(maker, 8) == 0)
		number = (any(maker, 2) ? 1 : -1) * (any(maker, 2) ? INFINITY : 0.0);
	return Float8GetDatum(number);
}

/* The last interval in other units, a slightly different one, or a random one. */
static Datum
random_interval(Maker *maker)
{
	Interval   *last = &maker->interval;
	Interval   *interval = palloc(sizeof(Interval));

	switch (any(maker, 6))
	{
		case 0:
			last->month = (int32) next_word(maker);
			last->day = (int32) next_word(maker);
			last->time = (int64) next_word(maker);
			break;
		case 1:
			last->month = any(maker, 5) - 2;
			last->day = any(maker, 61) - 30;
			last->time = (any(maker, 3) - 1) * any(maker, 3) * USECS_PER_DAY;
			break;
		case 2:
			if (last->month > PG_INT32_MIN && last->day < PG_INT32_MAX - DAYS_PER_MONTH)
			{
				last->month--;
				last->day += DAYS_PER_MONTH;
			}
			break;
		case 3:
			if (last->day > PG_INT32_MIN && last->time < PG_INT64_MAX - USECS_PER_DAY)
			{
				last->day--;
				last->time += USECS_PER_DAY;
			}
			break;
		case 4:
			if (last->time < PG_INT64_MAX)
				last->time++;
			break;
		default:
			if (last->day > PG_INT32_MIN)
				last->day--;
			break;
	}
	*interval = *last;
	return IntervalPGetDatum(interval);
}

/* The last instant in another zone, the next microsecond, or a random time. */
static Datum
random_timetz(Maker *maker)
{
	TimeTzADT  *last = &maker->time;
	TimeTzADT  *time = palloc(sizeof(TimeTzADT));
	int			zone = (any(maker, 2 * 16) - 16) * SECS_PER_HOUR + any(maker, 2) * any(maker, SECS_PER_HOUR);
	int64		same = last->time + (int64) (last->zone - zone) * USECS_PER_SEC;

	switch (any(maker, 4))
	{
		case 0:
			last->time = (int64) pg_prng_uint64_range(&maker->random, 0, USECS_PER_DAY);
			last->zone = zone;
			break;
		case 1:
			last->time = Min(last->time + 1, USECS_PER_DAY);
			break;
		default:
			if (same >= 0 && same <= USECS_PER_DAY)
			{
				last->time = same;
				last->zone = zone;
			}
			break;
	}
	*time = *last;
	return TimeTzADTPGetDatum(time);
}

/* Random bytes, the last address, or the last address with one bit flipped. */
static void
next_address(Maker *maker)
{
	if (any(maker, 4) == 0)
	{
		for (int i = 0; i < 16; i++)
			maker->address[i] = any(maker, 2) ? any(maker, 256) : any(maker, 2) ? 0xFF : 0;
	}
	else if (any(maker, 4) > 0)
		maker->address[any(maker, 16)] ^= 1 << any(maker, 8);
}

static Datum
random_uuid(Maker *maker)
{
	pg_uuid_t  *uuid = palloc(UUID_LEN);

	next_address(maker);
	memcpy(uuid->data, maker->address, UUID_LEN);
	return UUIDPGetDatum(uuid);
}

/* Addresses of both families, with netmasks of all lengths and bits behind the netmask. */
static Datum
random_inet(Maker *maker)
{
	const unsigned char *address = maker->address;
	StringInfoData literal;

	next_address(maker);
	initStringInfo(&literal);
	if (any(maker, 2) == 0)
		appendStringInfo(&literal, "%d.%d.%d.%d/%d", address[0], address[1], address[2], address[3],
						 any(maker, 3) == 0 ? 32 : any(maker, 33));
	else
	{
		for (int i = 0; i < 16; i += 2)
			appendStringInfo(&literal, "%s%x", i > 0 ? ":" : "", address[i] << 8 | address[i + 1]);
		appendStringInfo(&literal, "/%d", any(maker, 3) == 0 ? 128 : any(maker, 129));
	}
	return DirectFunctionCall1(inet_in, CStringGetDatum(literal.data));
}

/* Bit strings of up to 320 bits, often with the first ones of the last. */
static Datum
random_varbit(Maker *maker)
{
	VarBit	   *string;
	int			bits;

	next_string(maker, STRING_BYTES, "\0\001\200\377", 4);
	bits = Max(8 * maker->length - any(maker, 8), 0);
	string = palloc0(VARBITTOTALLEN(bits));
	SET_VARSIZE(string, VARBITTOTALLEN(bits));
	VARBITLEN(string) = bits;
	memcpy(VARBITS(string), maker->string, VARBITBYTES(string));
	if (bits % 8 > 0)
		VARBITS(string)[bits / 8] &= 0xFF << (8 - bits % 8);
	return VarBitPGetDatum(string);
}

/* An element of an array, of one of the types below */
static Datum
make_item(Maker *maker, Oid type, uint64 number)
{
	static const uint64 ends[] = {0, 1, PG_UINT64_MAX, (uint64) PG_INT64_MAX, (uint64) PG_INT64_MIN};
	Interval   *interval;

	if (number % 4 == 0)
		number = ends[number / 4 % lengthof(ends)];
	switch (type)
	{
		case BOOLOID:
			return BoolGetDatum(number & 1);
		case INT2OID:
			return Int16GetDatum((int16) number);
		case INT4OID:
			return Int32GetDatum((int32) number);
		case INT8OID:
			return Int64GetDatum((int64) number);
		case FLOAT8OID:
			return Float8GetDatum(number % 5 == 0 ? NAN : number % 5 == 1 ? -0.0 : (double) (number % 100));
		case TIDOID:
			{
				ItemPointer tid = palloc(sizeof(ItemPointerData));

				ItemPointerSet(tid, (BlockNumber) (number >> 20), (OffsetNumber) number);
				return PointerGetDatum(tid);
			}
		default:
			interval = palloc0(sizeof(Interval));
			interval->day = number % 3;
			interval->month = number % 5;
			return IntervalPGetDatum(interval);
	}
}

/*
 * The last array with one element more, less or changed, in one dimension that begins at 1
 * or elsewhere, or in two.
 */
static Datum
random_array(Maker *maker, Oid type)
{
	int16		length;
	bool		by_value;
	char		align;
	Datum		items[MAX_ITEMS];
	int			dims[2];
	int			lower[2] = {1, 1};
	int			change = any(maker, MAX_ITEMS);

	if (any(maker, 3) == 0)
		maker->nitems = any(maker, MAX_ITEMS + 1);
	else if (any(maker, 2) == 0)
		maker->nitems = Min(maker->nitems + 1, MAX_ITEMS);
	maker->items[change] = pg_prng_uint64(&maker->random) >> any(maker, 64);
	maker->nulls[change] = any(maker, 8) == 0;
	for (int i = 0; i < maker->nitems; i++)
		items[i] = make_item(maker, type, maker->items[i]);
	get_typlenbyvalalign(type, &length, &by_value, &align);
	dims[0] = maker->nitems;
	dims[1] = 1;
	if (any(maker, 8) == 0)
		lower[0] = any(maker, 5) - 2;
	if (any(maker, 4) == 0 && maker->nitems % 2 == 0)
	{
		dims[0] /= 2;
		dims[1] = 2;
	}
	return PointerGetDatum(construct_md_array(items, maker->nulls, dims[1] == 2 || any(maker, 8) == 0 ? 2 : 1, dims, lower,
											  type, length, by_value, align));
}

static Datum
random_bools(Maker *maker)
{
	return random_array(maker, BOOLOID);
}

static Datum
random_int4s(Maker *maker)
{
	return random_array(maker, INT4OID);
}

static Datum
random_int8s(Maker *maker)
{
	return random_array(maker, INT8OID);
}

static Datum
random_float8s(Maker *maker)
{
	return random_array(maker, FLOAT8OID);
}

static Datum
random_tids(Maker *maker)
{
	return random_array(maker, TIDOID);
}

static Datum
random_intervals(Maker *maker)
{
	return random_array(maker, INTERVALOID);
}

/* The last range with another bound, or with the same ones, infinite, inclusive or not; or an empty one. */
static Datum
random_tstzrange(Maker *maker)
{
	StringInfoData literal;

	for (int i = 0; i < 2; i++)
	{
		if (any(maker, 4) == 0)
			maker->bounds[i] = any(maker, 4) == 0 ? (any(maker, 2) ? DT_NOBEGIN : DT_NOEND) : any(maker, 1000);
	}
	if (maker->bounds[0] > maker->bounds[1])
	{
		TimestampTz bound = maker->bounds[0];

		maker->bounds[0] = maker->bounds[1];
		maker->bounds[1] = bound;
	}
	initStringInfo(&literal);
	if (any(maker, 16) == 0)
		appendStringInfoString(&literal, "empty");
	else
	{
		appendStringInfoString(&literal, any(maker, 2) ? "[" : "(");
		if (any(maker, 8) > 0)
			appendStringInfo(&literal, "\"%s\"", DatumGetCString(DirectFunctionCall1(timestamptz_out, TimestampTzGetDatum(maker->bounds[0]))));
		appendStringInfoString(&literal, ",");
		if (any(maker, 8) > 0)
			appendStringInfo(&literal, "\"%s\"", DatumGetCString(DirectFunctionCall1(timestamptz_out, TimestampTzGetDatum(maker->bounds[1]))));
		appendStringInfoString(&literal, any(maker, 2) ? "]" : ")");
	}
	return OidInputFunctionCall(F_RANGE_IN, literal.data, TSTZRANGEOID, -1);
}

TupleDesc
random_row_type(void)
{
	TupleDesc	desc = CreateTemplateTupleDesc(3);

	TupleDescInitEntry(desc, 1, "a", INT2OID, -1, 0);
	TupleDescInitEntry(desc, 2, "b", TEXTOID, -1, 0);
	TupleDescInitEntryCollation(desc, 2, C_COLLATION_OID);
	TupleDescInitEntry(desc, 3, "c", INTERVALOID, -1, 0);
	gpusort_finish_descriptor(desc);
	return BlessTupleDesc(desc);
}

static Datum
random_row(Maker *maker)
{
	Datum		values[3] = {Int16GetDatum((int16) any(maker, 3)), random_text(maker), random_interval(maker)};
	bool		nulls[3] = {any(maker, 8) == 0, any(maker, 8) == 0, any(maker, 8) == 0};

	return HeapTupleGetDatum(heap_form_tuple(random_row_type(), values, nulls));
}

const RandomKind random_kinds[RANDOM_KINDS] = {
	{"text", TEXTOID, C_COLLATION_OID, random_text},
	{"bpchar", BPCHAROID, C_COLLATION_OID, random_bpchar},
	{"name", NAMEOID, C_COLLATION_OID, random_name},
	{"bytea", BYTEAOID, InvalidOid, random_bytea},
	{"numeric", NUMERICOID, InvalidOid, random_numeric},
	{"int8", INT8OID, InvalidOid, random_int8},
	{"float8", FLOAT8OID, InvalidOid, random_float8},
	{"interval", INTERVALOID, InvalidOid, random_interval},
	{"timetz", TIMETZOID, InvalidOid, random_timetz},
	{"uuid", UUIDOID, InvalidOid, random_uuid},
	{"inet", INETOID, InvalidOid, random_inet},
	{"varbit", VARBITOID, InvalidOid, random_varbit},
	{"bool[]", BOOLARRAYOID, InvalidOid, random_bools},
	{"int4[]", INT4ARRAYOID, InvalidOid, random_int4s},
	{"int8[]", INT8ARRAYOID, InvalidOid, random_int8s},
	{"float8[]", FLOAT8ARRAYOID, InvalidOid, random_float8s},
	{"tid[]", TIDARRAYOID, InvalidOid, random_tids},
	{"interval[]", INTERVALARRAYOID, InvalidOid, random_intervals},
	{"tstzrange", TSTZRANGEOID, InvalidOid, random_tstzrange},
	{"row", RECORDOID, InvalidOid, random_row},
};
