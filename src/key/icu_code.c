/*-------------------------------------------------------------------------
 *
 * icu_code.c
 *		The word of a sequence of primary weights.
 *
 * A word is to hold the heads of sequences of numbers of 32 bits, of which few
 * are likely, so that words order as the sequences do wherever they differ.
 * Arithmetic coding does that when the parts of an interval are in the order
 * of the numbers that they stand for (Witten, Neal and Cleary, "Arithmetic
 * Coding for Data Compression", 1987): we begin with the interval of all words,
 * and each number narrows it to its part.  The word is the lower end of what
 * is left in the end, when nothing more fits in.  Likely numbers have wide
 * parts, so that more of them fit: 11 letters of a-z in 63 bits, where the head
 * of ICU's sort key has 7 or 8.
 *
 *	Order.	Let a < b.  While they agree, their intervals do.  Where they first
 *			differ, b's number is the greater, so b's interval is above all of
 *			a's; or a ends there, and b's interval is within a's, so that b's
 *			lower end is not below a's.  Rounding down keeps this: the parts
 *			do not overlap, as floor(x) + floor(y) <= floor(x + y).  How wide a
 *			part is may depend on the numbers before, which are the same for
 *			both; whether the interval is used up, too.
 *
 * There are too many weights for each to have a part.  Neighbours share a
 * cell, and in one of these the weight's second, third and fourth bytes narrow
 * the interval further.
 *
 * First bytes tell scripts apart.  Those of one script (Latin has many) form a
 * group, and a weight of the same group as the last one is the more likely, so
 * a change of script costs some bits, as it does in ICU's sort keys.  Spaces
 * and punctuation form a group that the scripts have in common.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "key/icu_code.h"

/*
 * What groups share of an interval, in 1 / 2^16: the one of the weight before,
 * common signs, digits, the likeliest group, and all others together.
 */
typedef struct GroupShares
{
	uint16		same;
	uint16		common;
	uint16		digits;
	uint16		major;
	uint16		others;
} GroupShares;

static const GroupShares after_nothing = {0, 12000, 12000, 26000, 15000};
static const GroupShares after_digits = {36000, 10000, 0, 14000, 5000};
static const GroupShares after_letters = {48000, 9000, 5000, 1000, 2500};

/* Cells of unlike weights, between frequent ones, share little. */
#define REST_SHARE		1

static int
by_primary(const void *a, const void *b)
{
	const GpusortIcuFrequent *left = a;
	const GpusortIcuFrequent *right = b;

	return left->primary < right->primary ? -1 : left->primary > right->primary;
}

static void
add_cell(GpusortIcuCode *code, uint32 first, uint32 last, int share)
{
	GpusortIcuCell *cell = &code->cells[code->ncells++];

	cell->first = first;
	cell->share = share;
	cell->group = code->group[first >> 24];
	cell->seconds = ((last >> 16) & 0xFF) - ((first >> 16) & 0xFF);
	cell->exact = first == last;
}

void
gpusort_icucode_begin(GpusortIcuCode *code, GpusortIcuFrequent *frequent, int n)
{
	int			at = 0;

	qsort(frequent, n, sizeof(GpusortIcuFrequent), by_primary);
	/* one for each, one in front of each, and the last of each first byte */
	code->cells = MemoryContextAlloc(code->cxt, (2 * n + 256) * sizeof(GpusortIcuCell));
	code->ncells = 0;
	for (uint32 byte = 0; byte < 256; byte++)
	{
		uint32		from = byte << 24;
		uint32		last = from | 0xFFFFFF;
		bool		alone = at == n || frequent[at].primary > last;

		code->first[byte] = code->ncells;
		while (at < n && frequent[at].primary <= last)
		{
			uint32		primary = frequent[at].primary;
			uint32		share = 0;

			for (; at < n && frequent[at].primary == primary; at++)
				share = Max(share, frequent[at].share);
			if (from < primary)
				add_cell(code, from, primary - 1, REST_SHARE);
			add_cell(code, primary, primary, share);
			from = primary + 1;
		}
		/* no weight has all bits set, but it would be in the last cell */
		if (from <= last && from >> 24 == byte)
			add_cell(code, from, last, alone ? code->share[byte] : REST_SHARE);
	}
	code->first[256] = code->ncells;
	memset(code->parts, 0, sizeof(code->parts));
	gpusort_icucode_parts(code, GPUSORT_ICU_COMMON);
}

int
gpusort_icucode_cell(const GpusortIcuCode *code, uint32 primary)
{
	int			low = code->first[primary >> 24];
	int			high = code->first[(primary >> 24) + 1];

	while (high - low > 1)
	{
		int			middle = (low + high) / 2;

		if (code->cells[middle].first <= primary)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* What a group shares after a weight of another; there are so many others. */
static uint32
group_share(const GpusortIcuCode *code, int after, int group, int others)
{
	const GroupShares *shares = after == GPUSORT_ICU_COMMON ? &after_nothing :
		after == GPUSORT_ICU_DIGITS ? &after_digits : &after_letters;

	return group == GPUSORT_ICU_COMMON ? shares->common :
		group == after ? shares->same :
		group == GPUSORT_ICU_DIGITS ? shares->digits :
		group == code->major ? shares->major : shares->others / others;
}

const GpusortIcuPart *
gpusort_icucode_parts(GpusortIcuCode *code, int after)
{
	uint32		shares[256] = {0};	/* of a group's cells, added up */
	uint64		low = 0;
	int			others = 0;
	GpusortIcuPart *parts = MemoryContextAlloc(code->cxt, code->ncells * sizeof(GpusortIcuPart));

	for (int i = 0; i < code->ncells; i++)
	{
		others += shares[code->cells[i].group] == 0;
		shares[code->cells[i].group] += code->cells[i].share;
	}
	for (int i = 0; i < code->ncells; i++)
	{
		const GpusortIcuCell *cell = &code->cells[i];
		uint64		group = group_share(code, after, cell->group, others);

		parts[i].low = low;
		parts[i].width = (group << 16) * cell->share / shares[cell->group];
		low += parts[i].width;
	}
	Assert(low <= UINT64CONST(1) << 32);
	code->parts[after] = parts;
	return parts;
}

/* Narrows by a byte that is zero in so many of 16 cases. */
static void
append_byte(GpusortIcuWord *word, uint32 byte, uint32 zero)
{
	uint32		zeros = zero << 28;
	uint32		step = (PG_UINT32_MAX - zeros) / 255;

	if (byte == 0)
		gpusort_icucode_narrow(word, 0, zeros);
	else
		gpusort_icucode_narrow(word, zeros + (byte - 1) * step, step);
}

void
gpusort_icucode_append_inexact(GpusortIcuCode *code, GpusortIcuWord *word, int cell, uint32 primary)
{
	const GpusortIcuCell *within = &code->cells[cell];
	uint32		step = PG_UINT32_MAX / (within->seconds + 1);

	gpusort_icucode_append(code, word, cell, within->group);
	gpusort_icucode_narrow(word, ((primary >> 16) - (within->first >> 16)) * step, step);
	append_byte(word, (primary >> 8) & 0xFF, code->third[within->group] ? 1 : 14);
	append_byte(word, primary & 0xFF, 15);
}
