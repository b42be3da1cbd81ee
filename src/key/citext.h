/*-------------------------------------------------------------------------
 *
 * citext.h
 *		Case-insensitive text: citext, of PostgreSQL's contrib.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_CITEXT_H
#define GPUSORT_KEY_CITEXT_H

/* Room on the stack for most strings */
#define GPUSORT_CITEXT_ROOM		1024

/*
 * Returns a string in small letters, as citext_cmp() makes them, and sets *lowered to
 * its length, which may differ from length.  The result is in room, of size bytes, if
 * it fits, and else allocated in the current memory context; no zero byte is behind it.
 * The string has whole characters.  Raises the errors of lower().
 */
extern char *gpusort_citext_lower(const char *data, Size length, char *room, Size size, Size *lowered);

/*
 * Returns a table of 256 bytes: the small letter of each ASCII letter, whatever its
 * neighbours are.  It is 0 for 0, for bytes beyond ASCII, and for letters whose small
 * letter is no ASCII letter, as that of I in Turkish.  The table lives until the
 * backend exits.
 */
extern const uint8 *gpusort_citext_ascii(void);

#endif							/* GPUSORT_KEY_CITEXT_H */
