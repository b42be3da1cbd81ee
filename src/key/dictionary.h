/*-------------------------------------------------------------------------
 *
 * dictionary.h
 *		The distinct strings of a column whose words hold only a prefix.
 *
 * A column of a few long strings, such as names of countries under ICU or a few
 * web addresses, would leave all rows tied, although hardly ever two different
 * strings have the same words.  The dictionary proves that none have: it keeps
 * each distinct string with its words, and compares a new one with those that
 * have the same words.  As long as no two strings are unequal and share words,
 * the words decide.  The dictionary also saves the words of repeated strings from
 * being made again, which for ICU costs more than looking them up.
 *
 * When the dictionary is full or finds two strings that share words, it closes
 * for good: from then on the words of the column are prefixes.  A column of many
 * distinct strings closes it within the first thousands of rows, and then pays
 * nothing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_DICTIONARY_H
#define GPUSORT_KEY_DICTIONARY_H

#include "utils/sortsupport.h"

/* Words of a string's key */
#define GPUSORT_DICTIONARY_WORDS	2

/* A longer string is not kept. */
#define GPUSORT_DICTIONARY_STRING	1024

typedef struct GpusortDictionary GpusortDictionary;

/* A string to be looked up */
typedef struct GpusortDictionaryProbe
{
	const char *bytes;
	Size		length;
	uint32		hash;			/* set by gpusort_dictionary_find() */
} GpusortDictionaryProbe;

/*
 * Makes an empty dictionary in the current memory context.  comparator: the
 * column's, which must take text values; the dictionary keeps the pointer.
 * memory: bytes that it may take.
 */
extern GpusortDictionary *gpusort_dictionary_begin(SortSupport comparator, Size memory);

/* Is it closed?  Then the words of the column's strings are prefixes. */
extern bool gpusort_dictionary_closed(const GpusortDictionary *dictionary);

/* Closes it. */
extern void gpusort_dictionary_close(GpusortDictionary *dictionary);

/*
 * Looks for a string in an open dictionary.  If it is there, sets words, and
 * returns true.
 */
extern bool gpusort_dictionary_find(const GpusortDictionary *dictionary,
									GpusortDictionaryProbe *probe, uint64 *words);

/*
 * Adds a string that gpusort_dictionary_find() has not found to an open
 * dictionary, with its words.  Returns false if the dictionary had to be closed.
 * Raises the errors of the comparator.
 */
extern bool gpusort_dictionary_add(GpusortDictionary *dictionary,
								   const GpusortDictionaryProbe *probe, const uint64 *words);

/* Returns the bytes that the dictionary takes. */
extern Size gpusort_dictionary_bytes(const GpusortDictionary *dictionary);

/*
 * Returns a hash value of bytes, which is fast and good enough for a table in
 * memory.  It depends on the machine's byte order.
 */
extern uint32 gpusort_dictionary_hash(const char *bytes, Size length);

#endif							/* GPUSORT_KEY_DICTIONARY_H */
