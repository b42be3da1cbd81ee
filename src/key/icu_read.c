/*-------------------------------------------------------------------------
 *
 * icu_read.c
 *		Reading primary weights and contractions of a collation from ICU.
 *
 * ICU's collation elements contain the primary weights of a string, but without
 * two settings of the collation, which this file applies:
 *
 *	shifted		The collation ignores punctuation: the weights up to the
 *				"variable top".
 *	reordering	Scripts change places, as Cyrillic sorts before Latin for
 *				Russian.  Each script adds its own number to the first byte of
 *				its weights.
 *
 * In a numeric collation, which compares digits as numbers, the weights of digits depend on how many stand together.
 *
 * PostgreSQL has loaded the ICU library, whose version may differ from that of the headers here.  ICU's functions
 * have the version in their names.  So this file references them weakly, and without them refuses all collations.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "key/icu_read.h"

#ifdef GPUSORT_HAVE_ICU

#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <unicode/uset.h>

#define FUNCTIONS(_) \
	_(u_errorName) _(u_getIntPropertyMaxValue) _(u_getIntPropertyValue) \
	_(ucol_closeElements) _(ucol_getAttribute) _(ucol_getContractionsAndExpansions) \
	_(ucol_getLocaleByType) _(ucol_getReorderCodes) _(ucol_getSortKey) _(ucol_getVariableTop) \
	_(ucol_next) _(ucol_openElements) _(ucol_setText) _(uscript_getSampleString) \
	_(uset_close) _(uset_getItem) _(uset_getItemCount) _(uset_openEmpty)

#define WEAK(function)	extern __typeof__(function) function __attribute__((weak));
FUNCTIONS(WEAK)

/* This noncharacter, before any character of a script, has the script's first weight. */
#define SCRIPT_START	0xFDD1

#define LEAD_SEPARATOR	0x02	/* first byte of the weight of U+FFFE, which separates fields */
#define UNASSIGNED		0xFE00	/* upper half of the weight where the scripts' weights end */

static bool
functions_found(void)
{
#define FOUND(function)	&& function != NULL
	return true FUNCTIONS(FOUND);
}

static void
check_status(UErrorCode status)
{
	if (U_FAILURE(status))
		ereport(ERROR,
				(errcode(status == U_MEMORY_ALLOCATION_ERROR ? ERRCODE_OUT_OF_MEMORY :
						 ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("could not read collation elements: %s", u_errorName(status))));
}

static void
read_element(GpusortIcuReader *reader)
{
	UErrorCode	status = U_ZERO_ERROR;

	reader->ahead = ucol_next(reader->elements, &status);
	check_status(status);
}

void
gpusort_icu_start(GpusortIcuReader *reader, const uint16 *text, int32 n)
{
	UErrorCode	status = U_ZERO_ERROR;

	ucol_setText(reader->elements, text, n, &status);
	check_status(status);
	read_element(reader);
}

/*
 * An element holds the upper half of a weight.  If the lower half is not zero, the next element holds it.  Such a
 * second element has both bits of 0xC0 set, and no other element has.
 */
uint32
gpusort_icu_next(GpusortIcuReader *reader)
{
	while (reader->ahead != UCOL_NULLORDER)
	{
		uint32		primary = (uint32) reader->ahead & 0xFFFF0000;

		read_element(reader);
		if (reader->ahead != UCOL_NULLORDER && (reader->ahead & 0xC0) == 0xC0)
		{
			primary |= (uint32) reader->ahead >> 16;
			read_element(reader);
		}
		if (primary > reader->ignored || primary >> 24 == LEAD_SEPARATOR)
		{
			int			range = reader->nranges - 1;

			while (primary >> 16 < reader->ranges[range].start)
				range--;
			return primary + ((uint32) reader->ranges[range].shift << 24);
		}
	}
	return 0;
}

/*
 * Most weights that list_weights() returns.  The longest in ICU 72 are 18; a character with more than 32 is read by ICU
 * each time.
 */
#define MAX_CHAR_WEIGHTS		32

/*
 * Stores the weights of n UTF-16 units of text.  Returns their number, or MAX_CHAR_WEIGHTS + 1 if they are more, for which
 * the array has room.
 */
static int
list_weights(GpusortIcuReader *reader, const uint16 *text, int32 n, uint32 *weights)
{
	int			count = 0;
	uint32		weight;

	gpusort_icu_start(reader, text, n);
	while (count <= MAX_CHAR_WEIGHTS && (weight = gpusort_icu_next(reader)) != 0)
		weights[count++] = weight;
	return count;
}

/* Returns the first byte of ICU's sort key, in which scripts are reordered. */
static uint8
sort_key_lead(const GpusortIcuReader *reader, const uint16 *text, int32 n)
{
	uint8		key[64] = {0};

	ucol_getSortKey(reader->collator, text, n, key, sizeof(key));
	return key[0];
}

/* Begins a range, unless the last one has the same shift.  False if the array is full. */
static bool
add_range(GpusortIcuReader *reader, uint16 start, uint8 shift)
{
	if (reader->nranges > 0 && reader->ranges[reader->nranges - 1].shift == shift)
		return true;
	if (reader->nranges == GPUSORT_ICU_RANGES)
		return false;
	reader->ranges[reader->nranges++] = (GpusortIcuRange) {start, shift};
	return true;
}

/*
 * Finds out by how much each script moves.  The sort key of a script's first weight begins with the weight's first
 * byte after the move.  Returns false if that does not work for this collation.
 */
static bool
read_reordering(GpusortIcuReader *reader)
{
	int32_t		codes[256];
	UErrorCode	status = U_ZERO_ERROR;
	int32_t		ncodes = ucol_getReorderCodes(reader->collator, codes, lengthof(codes), &status);
	int32_t		scripts = u_getIntPropertyMaxValue(UCHAR_SCRIPT);
	uint32	   *starts;			/* the first two bytes of each script's first
								 * weight << 8, and the first byte of its sort key */
	int			nstarts = 0;

	reader->nranges = 0;
	add_range(reader, 0, 0);
	if (U_FAILURE(status))
		return false;
	if (ncodes == 0)
		return true;
	/* a collation with rules of its own might have weights between the scripts */
	if (ucol_getLocaleByType(reader->collator, ULOC_ACTUAL_LOCALE, &status) == NULL || U_FAILURE(status))
		return false;
	/* groups that are not scripts, such as spaces, stay in front unless named here */
	for (int i = 0; i < ncodes; i++)
	{
		if (codes[i] >= UCOL_REORDER_CODE_FIRST)
			return false;
	}

	starts = palloc((scripts + 1) * sizeof(uint32));
	for (int32_t script = 0; script <= scripts; script++)
	{
		uint16		text[8] = {SCRIPT_START};
		int32		length = uscript_getSampleString(script, text + 1, lengthof(text) - 1, &status);
		uint32		weights[MAX_CHAR_WEIGHTS + 1];
		uint32		start;
		int			place;

		if (U_FAILURE(status) || length == 0 || list_weights(reader, text, length + 1, weights) != 1)
			continue;
		start = (weights[0] >> 16) << 8 | sort_key_lead(reader, text, length + 1);
		for (place = nstarts++; place > 0 && starts[place - 1] > start; place--)
			starts[place] = starts[place - 1];
		starts[place] = start;
	}
	for (int i = 0; i < nstarts; i++)
	{
		uint16		start = starts[i] >> 8;

		if (!add_range(reader, start, start < UNASSIGNED ? starts[i] - (start >> 8) : 0))
			return false;
	}
	pfree(starts);
	if (!add_range(reader, UNASSIGNED, 0))
		return false;

	/* check the ranges with every 97th character */
	for (uint16 character = 0x20; character < 0xD800; character += 97)
	{
		uint32		weights[MAX_CHAR_WEIGHTS + 1];

		if (list_weights(reader, &character, 1, weights) > 0 &&
			weights[0] >> 24 != sort_key_lead(reader, &character, 1))
			return false;
	}
	return true;
}

static bool
attribute_is(const GpusortIcuReader *reader, UColAttribute attribute, UColAttributeValue value)
{
	UErrorCode	status = U_ZERO_ERROR;

	return ucol_getAttribute(reader->collator, attribute, &status) == value && U_SUCCESS(status);
}

static void
close_elements(void *elements)
{
	ucol_closeElements(elements);
}

bool
gpusort_icu_open(GpusortIcuReader *reader)
{
	UErrorCode	status = U_ZERO_ERROR;
	MemoryContextCallback *callback = palloc(sizeof(MemoryContextCallback));

	if (!functions_found())
		return false;

	reader->numeric = attribute_is(reader, UCOL_NUMERIC_COLLATION, UCOL_ON);
	reader->ignored = 0;
	reader->elements = ucol_openElements(reader->collator, NULL, 0, &status);
	if (U_FAILURE(status))
		return false;
	callback->func = close_elements;
	callback->arg = reader->elements;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, callback);

	if (attribute_is(reader, UCOL_ALTERNATE_HANDLING, UCOL_SHIFTED))
		reader->ignored = ucol_getVariableTop(reader->collator, &status);
	return U_SUCCESS(status) && read_reordering(reader);
}

bool
gpusort_icu_interacts(const GpusortIcuReader *reader, uint32 character)
{
	return (reader->numeric &&
			u_getIntPropertyValue(character, UCHAR_GENERAL_CATEGORY) == U_DECIMAL_DIGIT_NUMBER) ||
		(character >= 0xD800 && character < 0xE000) ||
		(character >= 0xFDD0 && character < 0xFDF0) ||
		u_getIntPropertyValue(character, UCHAR_LEAD_CANONICAL_COMBINING_CLASS) != 0;
}

static inline void
set_bit(uint8 *bits, uint16 character)
{
	bits[character / 8] |= 1 << character % 8;
}

/*
 * Marks the UTF-16 units of the collation's contractions.  A contraction here is a string that has weights of its
 * own, or a character whose weights depend on the one before, with that one.  Sets the bit of each unit that is first
 * in a contraction, and the bit of each that comes later in one.  A first unit is not marked if
 * gpusort_icu_interacts() is true of it or the second one.
 */
static void
mark_contractions(GpusortIcuReader *reader)
{
	UErrorCode	status = U_ZERO_ERROR;
	USet	   *set = uset_openEmpty();

	ucol_getContractionsAndExpansions(reader->collator, set, NULL, true, &status);
	for (int32_t i = 0; U_SUCCESS(status) && i < uset_getItemCount(set); i++)
	{
		UChar32		start;
		UChar32		end;
		UChar		short_string[64];
		UChar	   *string = short_string;
		int32_t		length = uset_getItem(set, i, &start, &end, string, lengthof(short_string), &status);

		if (status == U_BUFFER_OVERFLOW_ERROR)
		{
			/* length is the string's; uset_getItem() has copied nothing */
			status = U_ZERO_ERROR;
			string = palloc(length * sizeof(UChar));
			uset_getItem(set, i, &start, &end, string, length, &status);
		}
		if (U_SUCCESS(status) && length >= 2)
		{
			/* ICU reads the characters that interact anyway */
			if (!gpusort_icu_interacts(reader, string[0]) && !gpusort_icu_interacts(reader, string[1]))
				set_bit(reader->firsts, string[0]);
			for (int32 unit = 1; unit < length; unit++)
				set_bit(reader->laters, string[unit]);
		}
		if (string != short_string)
			pfree(string);
	}
	uset_close(set);
	check_status(status);
}

#define CHAR_BITS_BYTES	(0x10000 / 8)

/* Asks ICU for the weights of a character of 16 bits. */
static GpusortIcuChar
describe_char(GpusortIcuReader *reader, uint16 character)
{
	GpusortIcuChar result = {0};
	uint32		weights[MAX_CHAR_WEIGHTS + 1];
	int			count;

	if (gpusort_icu_interacts(reader, character) ||
		(reader->jamo_contract && character >= 0xAC00 && character < 0xD7A4) ||
		(count = list_weights(reader, &character, 1, weights)) > MAX_CHAR_WEIGHTS)
	{
		result.flags = GPUSORT_ICU_CONTEXT;
		return result;
	}
	if (count == 1)
		result = gpusort_icu_one_weight(weights[0]);
	else
	{
		if (reader->nexpansions + count > reader->max_expansions)
		{
			/* twice the room is enough: count is less than the first allocation */
			reader->expansions = repalloc(reader->expansions, reader->max_expansions * 2 * sizeof(GpusortIcuChar));
			reader->max_expansions *= 2;
		}
		result.weight = reader->nexpansions;
		result.count = count;
		result.flags = GPUSORT_ICU_SEVERAL;
		for (int i = 0; i < count; i++)
			reader->expansions[reader->nexpansions++] = gpusort_icu_one_weight(weights[i]);
	}
	if (gpusort_icu_has_bit(reader->firsts, character))
		result.flags |= GPUSORT_ICU_FIRST;
	if (gpusort_icu_has_bit(reader->laters, character))
		result.flags |= GPUSORT_ICU_LATER;
	return result;
}

void
gpusort_icu_make_page(GpusortIcuReader *reader, int page)
{
	GpusortIcuChar *chars = MemoryContextAlloc(reader->cxt, GPUSORT_ICU_PAGE_CHARS * sizeof(GpusortIcuChar));

	for (int i = 0; i < GPUSORT_ICU_PAGE_CHARS; i++)
		chars[i] = describe_char(reader, page * GPUSORT_ICU_PAGE_CHARS + i);
	reader->pages[page] = chars;
}

void
gpusort_icu_begin_tables(GpusortIcuReader *reader)
{
	if (reader->firsts == NULL)
	{
		reader->firsts = MemoryContextAllocZero(reader->cxt, CHAR_BITS_BYTES);
		reader->laters = MemoryContextAllocZero(reader->cxt, CHAR_BITS_BYTES);
		reader->max_expansions = 256;
		reader->expansions = MemoryContextAlloc(reader->cxt, reader->max_expansions * sizeof(GpusortIcuChar));
	}
	mark_contractions(reader);
	for (int jamo = 0x1100; jamo < 0x1200; jamo += 8)
		reader->jamo_contract |= reader->firsts[jamo / 8] != 0 || reader->laters[jamo / 8] != 0;
	gpusort_icu_make_page(reader, 0);
	reader->has_tables = true;
}

#endif							/* GPUSORT_HAVE_ICU */
