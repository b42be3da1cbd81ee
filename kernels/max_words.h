/*
 * max_words.h
 *		The longest key, in words, that any engine sorts.
 *
 * Every engine and every table of words takes its size from this number, so changing it here is enough.
 * Plain C, for the host and the device.
 */
#ifndef GPUSORT_MAX_WORDS_H
#define GPUSORT_MAX_WORDS_H

/* The most words of a key. A word has 8 bytes in a key of several words. */
#define GPUSORT_MAX_WORDS 16

#endif /* GPUSORT_MAX_WORDS_H */
