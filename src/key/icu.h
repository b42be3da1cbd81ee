/*-------------------------------------------------------------------------
 *
 * icu.h
 *		The first primary weights of a text under an ICU collation.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_ICU_H
#define GPUSORT_KEY_ICU_H

/* Bytes of weights that gpusort_icu_head() returns */
#define GPUSORT_ICU_HEAD_BYTES	16

/* One ICU collation, with tables of its characters' weights */
typedef struct GpusortIcu GpusortIcu;

/* The most bytes of weights that heads can skip */
#define GPUSORT_ICU_PREFIX_BYTES	1024

/*
 * Weights that most strings of a column begin with, which their heads skip.
 *
 * To skip them without reading them, the first bytes of a string are compared
 * with those of a string that has these weights.  How many bytes, is found out
 * once the collation has tables.
 */
typedef struct GpusortIcuPrefix
{
	int			nweights;		/* bytes of weights to skip */
	const uint8 *weights;		/* these bytes */
	const char *string;			/* bytes that most strings begin with */
	Size		length;			/* their number */
	Size		cut;			/* compare this many of these; 0: read all strings */
	int			cut_weights;	/* bytes of the weights of the first cut bytes; at most
								 * nweights */
	bool		cut_known;		/* cut and cut_weights are set */
} GpusortIcuPrefix;

/*
 * Returns the tables of a collation, which must be ICU's.  They live until the
 * backend exits, and must not be freed.  Returns NULL if the server's encoding is
 * not UTF-8, or the collation has settings that key/icu_read.c does not support.  All
 * backends of a server get the same answer.
 *
 * Raises an error if the collation does not exist or memory runs out.
 */
extern GpusortIcu *gpusort_icu_find(Oid collation);

/*
 * Can gpusort_icu_find() find anything in this database and build?  False if the
 * database encoding is not UTF-8, or gpusort was built without ICU's headers.
 */
extern bool gpusort_icu_possible(void);

/*
 * Sets head[0] and head[1] to the first 16 bytes of the primary weights of a
 * string, most significant byte first.  Zeros follow if the weights have fewer
 * bytes.  The string has length bytes in the server's encoding, which is UTF-8,
 * and may hold invalid bytes.
 *
 * If prefix is not NULL, the first two bits are 01 if the string has the prefix, and
 * then come the bytes that follow it.  They are 00 or 10 if the string sorts before or
 * after all strings with the prefix, and then come its first bytes.  The last two
 * bits are lost.
 *
 * If the heads of two strings differ, the collation sorts the string with the
 * lesser head first.  If they are equal, the strings may still differ.  All
 * backends of a server make the same heads with the same prefix.
 *
 * Raises ICU's errors.  May be interrupted if the string holds characters that
 * only ICU can read.
 */
extern void gpusort_icu_head(GpusortIcu *icu, GpusortIcuPrefix *prefix,
							 const char *data, Size length, uint64 *head);

/*
 * Sets bytes to the first n bytes of the primary weights of a string, n being at
 * most GPUSORT_ICU_PREFIX_BYTES.  Zeros follow if the weights have fewer bytes.
 * Raises errors as gpusort_icu_head() does.
 */
extern void gpusort_icu_weight_bytes(GpusortIcu *icu, const char *data, Size length,
									 uint8 *bytes, int n);

#endif							/* GPUSORT_KEY_ICU_H */
