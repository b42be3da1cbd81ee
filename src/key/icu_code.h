/*-------------------------------------------------------------------------
 *
 * icu_code.h
 *		The word of a sequence of primary weights.
 *
 * How it is made, and why words order as sequences do, is told in
 * rowkey_icu_code.c.  What a primary weight is, in rowkey_icu.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_ICU_CODE_H
#define GPUSORT_KEY_ICU_CODE_H

/* The words take so many bits. */
#define GPUSORT_ICU_BITS	63

/* A weight that is expected often: it has a cell of its own. */
typedef struct GpusortIcuFrequent
{
	uint32		primary;
	uint32		share;			/* how often, beside others of its group: 1 to 100 */
} GpusortIcuFrequent;

/* One or more neighbouring primary weights, of one first byte. */
typedef struct GpusortIcuCell
{
	uint32		first;			/* the least of them */
	uint8		share;			/* as above */
	uint8		group;
	uint8		seconds;		/* their second bytes are first's and so many more */
	bool		exact;			/* there is but one */
} GpusortIcuCell;

/* A part of an interval, in 1 / 2^32 of it */
typedef struct GpusortIcuPart
{
	uint32		low;
	uint32		width;
} GpusortIcuPart;

/* Groups are numbered by one of their first bytes, but for these. */
#define GPUSORT_ICU_COMMON	0	/* spaces and signs, which are at home in all scripts */
#define GPUSORT_ICU_DIGITS	1

typedef struct GpusortIcuCode
{
	MemoryContext cxt;			/* of all that hangs on it */
	uint8		group[256];		/* of a first byte */
	uint8		share[256];		/* of a first byte that no frequent weight has */
	uint8		major;			/* the group that is the most likely */
	bool		third[256];		/* whether weights of a group mostly have a third byte */
	int			ncells;
	GpusortIcuCell *cells;		/* ascending; every weight is in one */
	uint16		first[257];		/* of the cells of a first byte */
	GpusortIcuPart *parts[256]; /* of each cell, after a weight of a group; NULL until needed */
} GpusortIcuCode;

/* A word in the making: its value is in low ... low + range - 1. */
typedef struct GpusortIcuWord
{
	uint64		low;
	uint64		range;
	const GpusortIcuPart *parts;	/* of the next weight's cells */
} GpusortIcuWord;

/*
 * Completes a code whose cxt, group, share, major and third are set.  The frequent
 * weights are sorted in place, and may repeat.
 */
extern void gpusort_icucode_begin(GpusortIcuCode *code, GpusortIcuFrequent *frequent, int n);

/* The cell that a weight is in. */
extern int	gpusort_icucode_cell(const GpusortIcuCode *code, uint32 primary);

/* Makes what code->parts[group] lacks. */
extern const GpusortIcuPart *gpusort_icucode_parts(GpusortIcuCode *code, int group);

/* Appends a weight that is not its cell's only one. */
extern void gpusort_icucode_append_inexact(GpusortIcuCode *code, GpusortIcuWord *word,
										   int cell, uint32 primary);

static inline GpusortIcuWord
gpusort_icucode_start(const GpusortIcuCode *code)
{
	return (GpusortIcuWord) {0, UINT64CONST(1) << GPUSORT_ICU_BITS, code->parts[GPUSORT_ICU_COMMON]};
}

/* Whether nothing that is appended can matter. */
static inline bool
gpusort_icucode_full(const GpusortIcuWord *word)
{
	return word->range < 16;
}

/* low and range by a part of the range, rounded down: range is below 2^64. */
static inline void
gpusort_icucode_narrow(GpusortIcuWord *word, uint32 low, uint32 width)
{
	uint64		high = word->range >> 32;
	uint64		rest = word->range & PG_UINT32_MAX;

	word->low += high * low + ((rest * low) >> 32);
	word->range = high * width + ((rest * width) >> 32);
}

/* Appends the only weight of a cell. */
static inline void
gpusort_icucode_append(GpusortIcuCode *code, GpusortIcuWord *word, int cell, int group)
{
	const GpusortIcuPart *part = &word->parts[cell];

	gpusort_icucode_narrow(word, part->low, part->width);
	if (group != GPUSORT_ICU_COMMON)
	{
		word->parts = code->parts[group];
		if (unlikely(word->parts == NULL))
			word->parts = gpusort_icucode_parts(code, group);
	}
}

#endif							/* GPUSORT_KEY_ICU_CODE_H */
