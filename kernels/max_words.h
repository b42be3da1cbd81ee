/*
 * max_words.h - the longest key, in words, that any engine sorts.
 *
 * Every engine and every table of words derives its size from this number, so
 * that raising it here is enough. Plain C, for the host and the device.
 */
#ifndef GPUSORT_MAX_WORDS_H
#define GPUSORT_MAX_WORDS_H

/* Words of a key, at most; a word has 8 bytes where a key has several. */
#define GPUSORT_MAX_WORDS 16

#endif /* GPUSORT_MAX_WORDS_H */
