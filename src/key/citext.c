/*-------------------------------------------------------------------------
 *
 * citext.c
 *		Case-insensitive text: citext, of PostgreSQL's contrib.
 *
 * citext_cmp() makes small letters of both strings, by the rules of the database's default collation, and compares
 * the results as text compares under the collation of the sort.  So it makes a string small log2(n) times in a sort,
 * which takes several times as long as comparing.  Here that is done once for each string, and then the string gets
 * the words of a text.
 *
 * lower() of PostgreSQL decodes the string, allocates memory three times, and asks libc or ICU about each letter: 0.2
 * to 0.6 us for a string of 32 bytes.  Most strings have only ASCII letters, whose small letters are asked for once.
 * They do not depend on neighbours that are ASCII, too: Unicode's rules about neighbours are for Greek letters and
 * combining marks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "utils/formatting.h"

#include "key/key.h"

#define ASCII		0x80

static uint8 small[256];
static bool small_known;

const uint8 *
gpusort_citext_ascii(void)
{
	if (small_known)
		return small;
	for (int c = 1; c < ASCII; c++)
	{
		char		letter = c;
		char	   *lowered = str_tolower(&letter, 1, DEFAULT_COLLATION_OID);

		if ((uint8) lowered[0] < ASCII && lowered[0] != '\0' && lowered[1] == '\0')
			small[c] = lowered[0];
		pfree(lowered);
	}
	small_known = true;
	return small;
}

char *
gpusort_citext_lower(const char *data, Size length, char *room, Size size, Size *lowered)
{
	const uint8 *table = gpusort_citext_ascii();
	char	   *result;

	if (length <= size)
	{
		Size		i = 0;

		while (i < length && (room[i] = table[(uint8) data[i]]) != 0)
			i++;
		if (i == length)
		{
			*lowered = length;
			return room;
		}
	}
	result = str_tolower(data, length, DEFAULT_COLLATION_OID);
	*lowered = strlen(result);
	if (*lowered > size)
		return result;
	/* str_tolower() allocates four times the memory that its result needs */
	memcpy(room, result, *lowered);
	pfree(result);
	return room;
}
