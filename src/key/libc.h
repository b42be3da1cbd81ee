/*-------------------------------------------------------------------------
 *
 * libc.h
 *		Collations of libc: their locales, and weights that propose an order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_LIBC_H
#define GPUSORT_KEY_LIBC_H

#include <locale.h>

/* The most bytes of a prefix that words can skip */
#define GPUSORT_LIBC_PREFIX_BYTES	256

/* The most bytes of a string that gpusort_libc_weights() reads */
#define GPUSORT_LIBC_STRING_BYTES	512

/* The most bytes of weights that gpusort_libc_weights() returns */
#define GPUSORT_LIBC_WEIGHT_BYTES	1024

/* glibc's separator of two levels of weights */
#define GPUSORT_LIBC_SEPARATOR		1

/* Bytes of weights behind a prefix that suffice for the words */
#define GPUSORT_LIBC_SUFFIX_BYTES	64

/* A locale of libc, kept until the backend exits */
typedef struct GpusortLibc
{
	struct GpusortLibc *next;
	char	   *collate;		/* names of the locale's LC_COLLATE and LC_CTYPE */
	char	   *ctype;
	locale_t	locale;
	bool		by_bytes;		/* strings order by their bytes */
	struct GpusortLibcLetters *letters; /* key/libc_alphabet.c's; NULL: none yet */
	bool		distrusted;		/* weights have proposed a wrong order too often */
} GpusortLibc;

/* Bytes that most strings of a column begin with, which words skip */
typedef struct GpusortLibcPrefix
{
	int			length;
	char	   *string;			/* these bytes, whole characters */
	int			nweights;
	uint8	   *weights;		/* their weights of the first level */
} GpusortLibcPrefix;

/*
 * Returns the locale with these names of LC_COLLATE and LC_CTYPE.  It lives until
 * the backend exits.  Returns NULL if the system has no such locale.  The first
 * call for a locale takes up to a millisecond.
 */
extern GpusortLibc *gpusort_libc_find(const char *collate, const char *ctype);

/*
 * Sets bytes to the first n bytes of the weights of a string, n being at most
 * GPUSORT_LIBC_WEIGHT_BYTES.  Zeros follow if there are fewer weights.  Returns the
 * number of bytes of weights.
 *
 * Reads no more of the string than fills n bytes, and at most GPUSORT_LIBC_STRING_BYTES.
 * Equal strings get equal weights; only the order of the weights is not certain to be
 * the collation's.
 */
extern int gpusort_libc_weights(const GpusortLibc *libc, const char *data, Size length,
								uint8 *bytes, int n);

/*
 * The same for all of a string, which has at most GPUSORT_LIBC_STRING_BYTES.  first_level: only for its weights of the first level,
 * which may be fewer.
 */
extern int gpusort_libc_key(const GpusortLibc *libc, const char *data, int length, bool first_level, uint8 *bytes, int n);

/*
 * Returns the number of bytes, at most limit, of the whole characters at the
 * beginning of a string in the server's encoding.
 */
extern int gpusort_libc_clip(const char *data, Size length, int limit);

/* ---- libc_alphabet.c ---- */

/* Short codes for the weights that occur in a column; see libc_alphabet.c */
typedef struct GpusortLibcAlphabet GpusortLibcAlphabet;

/* Makes an empty alphabet in the current memory context. */
extern GpusortLibcAlphabet *gpusort_libc_alphabet_begin(GpusortLibc *libc);

/* Adds the weights of a string's first bytes. */
extern void gpusort_libc_alphabet_add(GpusortLibcAlphabet *alphabet, const char *data, Size length);

/* Completes an alphabet.  Returns false if it has too many weights and cannot be used. */
extern bool gpusort_libc_alphabet_end(GpusortLibcAlphabet *alphabet);

/* Returns the bits of a code, 2 to 8. */
extern int	gpusort_libc_alphabet_bits(const GpusortLibcAlphabet *alphabet);

/*
 * Sets the first room bits of head, which are 0, to the codes of a string's first
 * letters.  Equal strings get equal codes.  Returns false if a weight that the alphabet
 * lacks has ended them.
 */
extern bool gpusort_libc_alphabet_encode(GpusortLibcAlphabet *alphabet, const char *data, Size length,
										 uint64 *head, int room);

/* The same for n bytes of weights that gpusort_libc_weights() has made. */
extern bool gpusort_libc_alphabet_weights(const GpusortLibcAlphabet *alphabet, const uint8 *weights, int n,
										  uint64 *head, int room);

#endif							/* GPUSORT_KEY_LIBC_H */
