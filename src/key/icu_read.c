/*-------------------------------------------------------------------------
 *
 * icu_read.c
 *		What ICU tells of a collation and its strings.
 *
 * ICU's collation elements have a string's primary weights, but as they are
 * before two of the collation's settings are applied, which is done here:
 *
 *	shifted		Punctuation is ignored: weights up to the "variable top".
 *	reordering	Scripts change places, as Cyrillic goes before Latin for
 *				Russian.  The first bytes of their weights change by as much.
 *
 * A collation that compares digits as numbers is not taken: their weights depend
 * on how many there are.
 *
 * The functions are those of the library that the server has loaded, which may
 * be another one than that of the headers.  They have its version in their
 * names, and are referenced weakly: without them, no collation is taken.
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

/* A noncharacter: before a character, it makes the first weight of its script. */
#define SCRIPT_START	0xFDD1

#define LEAD_SEPARATOR	0x02	/* first byte of U+FFFE's weight, which separates fields */
#define UNASSIGNED		0xFE00	/* where the weights of scripts end */

/*
 * Letters, digits and signs that are likely, and how likely beside others of
 * their kind.  What is missing takes a longer part of the word, but no harm is
 * done to the order.
 */
static const struct
{
	uint16		first;
	uint16		last;
	uint8		share;
}			frequent_chars[] =
{
	{' ', ' ', 64}, {'!', '/', 8}, {':', '@', 4}, {'[', '`', 4}, {'{', '~', 4},
	{'0', '9', 16},
	{'a', 'z', 16}, {0xC0, 0x17F, 4},	/* Latin */
	{0x3B1, 0x3C9, 16},			/* Greek */
	{0x430, 0x45F, 16},			/* Cyrillic */
	{0x561, 0x586, 16},			/* Armenian */
	{0x5D0, 0x5EA, 16},			/* Hebrew */
	{0x621, 0x64A, 16}, {0x67E, 0x6CC, 4},	/* Arabic */
	{0x905, 0x94D, 16},			/* Devanagari */
	{0xE01, 0xE45, 16},			/* Thai */
	{0x10D0, 0x10F0, 16},		/* Georgian */
	{0x1100, 0x1112, 16}, {0x1161, 0x1175, 16}, {0x11A8, 0x11C2, 16},	/* Hangul */
	{0x3042, 0x3093, 4},		/* Kana, beside Han's hundreds */
};

#define MAX_FREQUENT	1024

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

/* A weight as it is after reordering. */
static inline uint32
reorder(const GpusortIcuReader *reader, uint32 primary)
{
	int			range = reader->nranges - 1;

	while (primary >> 16 < reader->ranges[range].start)
		range--;
	return primary + ((uint32) reader->ranges[range].shift << 24);
}

/*
 * An element has the upper half of a weight, and may have a continuation, told
 * by bits that no other one has, with the lower half.
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
			return reorder(reader, primary);
	}
	return 0;
}

/* All weights of n units, as gpusort_icu_weights() has them of a character. */
static int
read_weights(GpusortIcuReader *reader, const uint16 *text, int32 n, uint32 *weights)
{
	int			count = 0;
	uint32		weight;

	gpusort_icu_start(reader, text, n);
	while (count <= GPUSORT_ICU_WEIGHTS && (weight = gpusort_icu_next(reader)) != 0)
		weights[count++] = weight;
	return count;
}

/* The first byte of a sort key, to which reordering is applied. */
static uint8
sort_key_lead(const GpusortIcuReader *reader, const uint16 *text, int32 n)
{
	uint8		key[64] = {0};

	ucol_getSortKey(reader->collator, text, n, key, sizeof(key));
	return key[0];
}

int
gpusort_icu_weights(GpusortIcuReader *reader, uint32 character, uint32 *weights)
{
	uint16		text = character;

	return read_weights(reader, &text, 1, weights);
}

/* Begins a range, if its shift is not the last one's.  False if there are too many. */
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
 * Learns where the scripts go, from the sort keys of their first weights, which
 * have been reordered.  False if that cannot be told.
 */
static bool
read_reordering(GpusortIcuReader *reader)
{
	int32_t		codes[256];
	UErrorCode	status = U_ZERO_ERROR;
	int32_t		ncodes = ucol_getReorderCodes(reader->collator, codes, lengthof(codes), &status);
	int32_t		scripts = u_getIntPropertyMaxValue(UCHAR_SCRIPT);
	uint32	   *starts;			/* two bytes of each script's first weight, and one of its key */
	int			nstarts = 0;

	reader->nranges = 0;
	add_range(reader, 0, 0);
	if (U_FAILURE(status))
		return false;
	if (ncodes == 0)
		return true;
	/* rules might have put weights between the scripts */
	if (ucol_getLocaleByType(reader->collator, ULOC_ACTUAL_LOCALE, &status) == NULL || U_FAILURE(status))
		return false;
	/* spaces and the like, which are no scripts, stay in front unless these name them */
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
		uint32		weights[GPUSORT_ICU_WEIGHTS + 1];
		uint32		start;
		int			place;

		if (U_FAILURE(status) || length == 0 || read_weights(reader, text, length + 1, weights) != 1)
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

	/* believe it if it is true of a sample */
	for (uint32 character = 0x20; character < 0xD800; character += 97)
	{
		uint32		weights[GPUSORT_ICU_WEIGHTS + 1];
		uint16		text = character;

		if (gpusort_icu_weights(reader, character, weights) > 0 &&
			weights[0] >> 24 != sort_key_lead(reader, &text, 1))
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

	if (!functions_found() || !attribute_is(reader, UCOL_NUMERIC_COLLATION, UCOL_OFF))
		return false;

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

/* The first byte of a character's weight */
static uint8
lead_of(GpusortIcuReader *reader, uint32 character)
{
	uint32		weights[GPUSORT_ICU_WEIGHTS + 1] = {0};

	gpusort_icu_weights(reader, character, weights);
	return weights[0] >> 24;
}

/* Makes a group of the first bytes from one to another, of which it has the name. */
static void
make_group(GpusortIcuCode *code, uint8 group, int from, int to)
{
	for (int byte = from; byte <= to; byte++)
		code->group[byte] = group;
}

void
gpusort_icu_divide(GpusortIcuReader *reader, GpusortIcuCode *code)
{
	GpusortIcuFrequent frequent[MAX_FREQUENT];
	int			n = 0;
	uint32		weights[GPUSORT_ICU_WEIGHTS + 1];
	uint8		latin = lead_of(reader, 'a');
	uint8		kana = lead_of(reader, 0x3042);

	code->cxt = CurrentMemoryContext;
	for (int byte = 0; byte < 256; byte++)
	{
		code->group[byte] = byte;
		code->share[byte] = 1;
	}
	make_group(code, GPUSORT_ICU_COMMON, 0, lead_of(reader, '0'));
	make_group(code, GPUSORT_ICU_DIGITS, lead_of(reader, '0'), lead_of(reader, '9'));
	/* a letter of Latin has a first byte of its own */
	make_group(code, latin, latin, lead_of(reader, 'z'));
	code->major = latin;
	/* Han has some or dozens, unevenly, and weights of two bytes or three; it goes with kana */
	for (uint32 character = 0x4E00; character < 0xA000; character += 100)
	{
		if (gpusort_icu_weights(reader, character, weights) == 1)
		{
			int			byte = weights[0] >> 24;

			code->group[byte] = kana;
			code->share[byte] = Min(code->share[byte] + 2, 255);
			code->third[kana] = (weights[0] & 0xFF00) != 0;
		}
	}

	for (int range = 0; range < lengthof(frequent_chars); range++)
	{
		for (uint32 character = frequent_chars[range].first; character <= frequent_chars[range].last; character++)
		{
			if (gpusort_icu_weights(reader, character, weights) == 1)
			{
				Assert(n < MAX_FREQUENT);
				frequent[n++] = (GpusortIcuFrequent) {weights[0], frequent_chars[range].share};
			}
		}
	}
	gpusort_icucode_begin(code, frequent, n);
}

bool
gpusort_icu_interacts(uint32 character)
{
	return (character >= 0xD800 && character < 0xE000) ||
		(character >= 0xFDD0 && character < 0xFDF0) ||
		u_getIntPropertyValue(character, UCHAR_LEAD_CANONICAL_COMBINING_CLASS) != 0;
}

static inline void
set_bit(uint8 *bits, uint16 character)
{
	bits[character / 8] |= 1 << character % 8;
}

void
gpusort_icu_contractions(const GpusortIcuReader *reader, uint8 *firsts, uint8 *others)
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
			/* nothing was copied */
			status = U_ZERO_ERROR;
			string = palloc(length * sizeof(UChar));
			uset_getItem(set, i, &start, &end, string, length, &status);
		}
		if (U_SUCCESS(status) && length >= 2)
		{
			/* else ICU is asked for them in any case */
			if (!gpusort_icu_interacts(string[0]) && !gpusort_icu_interacts(string[1]))
				set_bit(firsts, string[0]);
			for (int32 unit = 1; unit < length; unit++)
				set_bit(others, string[unit]);
		}
		if (string != short_string)
			pfree(string);
	}
	uset_close(set);
	check_status(status);
}

#endif							/* GPUSORT_HAVE_ICU */
