/*-------------------------------------------------------------------------
 *
 * icu.h
 *		Words of texts under ICU collations, made without ICU's sort keys.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_ICU_H
#define GPUSORT_KEY_ICU_H

typedef struct GpusortIcu GpusortIcu;

/*
 * What is known of a collation in this backend, which keeps it.  NULL if it is
 * not one of ICU's, or one that words cannot be made for here; the same in all
 * backends of a server, as are the words.
 */
extern GpusortIcu *gpusort_icu_find(Oid collation);

/*
 * The word of a string in the server's encoding, below 2^63.  Of two strings
 * of different words, the collation has the one of the lesser word first.
 */
extern uint64 gpusort_icu_word(GpusortIcu *icu, const char *data, Size length);

#endif							/* GPUSORT_KEY_ICU_H */
