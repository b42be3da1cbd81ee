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

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "random_values.h"

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
};
