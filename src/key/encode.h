/*-------------------------------------------------------------------------
 *
 * encode.h
 *		Encodes arrays of stored values as keys.
 *
 * Plain C without PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_ENCODE_H
#define GPUSORT_KEY_ENCODE_H

#include <stddef.h>

#include "key/keybits.h"

/*
 * Encodes count words as keys.  Words and keys have key_bytes each, 4 or 8; the
 * two arrays must not overlap.  Any thread may call this.
 */
extern void gpusort_encode(const GpusortEncoding *encoding, int key_bytes,
						   const void *words, size_t count, void *keys);

#endif							/* GPUSORT_KEY_ENCODE_H */
