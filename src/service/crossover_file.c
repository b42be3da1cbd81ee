/*-------------------------------------------------------------------------
 *
 * crossover_file.c
 *		The file that keeps the measured crossovers.
 *
 * It is a few lines of text in the data directory, and an administrator may remove
 * it at any time to have the crossovers measured again.  A base backup copies it to
 * other machines; therefore it says to which device, library and processor its
 * numbers belong.  Numbers of others are replaced.
 *
 * The file is only worth the time of a measurement.  So a file that cannot be read
 * or written, or is damaged, is no error.  A file is taken if it is byte for byte
 * the one that would be written with its two numbers, so that a truncated one is
 * refused, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "storage/fd.h"

#include "run/engine.h"
#include "service/crossover_file.h"

#define FILE_NAME		"gpusort.crossover"
#define NEW_FILE_NAME	FILE_NAME ".tmp"

#define HEAD			"# Written by the GPU service of gpusort, which measures again if this file is removed.\n"

/* The longest file: head, key and numbers. */
#define FILE_BYTES		(sizeof(HEAD) + GPUSORT_CROSSOVER_KEY_BYTES + 64)

/* Writes the file's contents to text, and returns their length. */
static Size
format_file(char text[FILE_BYTES], const char *key, const GpusortCrossovers *crossovers)
{
	int			length = snprintf(text, FILE_BYTES, HEAD "%svalues %u\nrows %u\n", key, crossovers->values, crossovers->rows);

	Assert(length > 0 && length < FILE_BYTES);
	return length;
}

static void
log_failure(const char *action, const char *name)
{
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("gpusort service could not %s file \"%s\": %m", action, name)));
}

/* Reads the file, of at most FILE_BYTES.  Returns its length, or -1 if it is longer or cannot be read. */
static ssize_t
read_file(char text[FILE_BYTES])
{
	int			fd = OpenTransientFile(FILE_NAME, O_RDONLY | PG_BINARY);
	ssize_t		length;
	char		more;

	if (fd < 0)
	{
		if (errno != ENOENT)
			log_failure("open", FILE_NAME);
		return -1;
	}
	length = read(fd, text, FILE_BYTES);
	if (length < 0)
		log_failure("read", FILE_NAME);
	else if (length == FILE_BYTES && read(fd, &more, 1) != 0)
		length = -1;
	CloseTransientFile(fd);
	return length;
}

static bool
is_crossover(uint32 rows)
{
	return rows >= GPUSORT_LEAST_CROSSOVER && rows <= PG_INT32_MAX;
}

bool
gpusort_crossover_read(const char *key, GpusortCrossovers *crossovers)
{
	char		text[FILE_BYTES + 1];
	char		expected[FILE_BYTES];
	Size		numbers = strlen(HEAD) + strlen(key);	/* where the numbers begin */
	ssize_t		length = read_file(text);

	if (length <= (ssize_t) numbers)
		return false;
	text[length] = '\0';
	return sscanf(text + numbers, "values %u\nrows %u", &crossovers->values, &crossovers->rows) == 2 &&
		is_crossover(crossovers->values) && is_crossover(crossovers->rows) &&
		length == format_file(expected, key, crossovers) && memcmp(text, expected, length) == 0;
}

/* Writes a new file under another name.  Returns false if that fails. */
static bool
write_new(const char *text, Size length)
{
	int			fd = OpenTransientFile(NEW_FILE_NAME, O_CREAT | O_TRUNC | O_WRONLY | PG_BINARY);
	bool		written;

	if (fd < 0)
	{
		log_failure("create", NEW_FILE_NAME);
		return false;
	}
	errno = 0;
	written = write(fd, text, length) == (ssize_t) length;
	if (!written)
	{
		/* if write() does not say why it wrote less, there was no room */
		if (errno == 0)
			errno = ENOSPC;
		log_failure("write", NEW_FILE_NAME);
	}
	CloseTransientFile(fd);
	return written;
}

void
gpusort_crossover_write(const char *key, const GpusortCrossovers *crossovers)
{
	char		text[FILE_BYTES];
	Size		length = format_file(text, key, crossovers);

	/* durable_rename() flushes the new file to disk before it renames it, and logs its errors */
	if (!write_new(text, length) || durable_rename(NEW_FILE_NAME, FILE_NAME, LOG) != 0)
		(void) unlink(NEW_FILE_NAME);
}
