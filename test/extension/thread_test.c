/*-------------------------------------------------------------------------
 *
 * thread_test.c
 *		Writes to the log which thread of the GPU service runs shmem_exit(), for test/t/016_standin_hangs.pl.
 *
 * Other modules expect that PostgreSQL calls them in the first thread of a process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "fmgr.h"
#include "postmaster/bgworker.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static emit_log_hook_type prev_emit_log_hook = NULL;

/* shmem_exit() reports its calls of callbacks by debug3 messages. */
static void
report_thread(ErrorData *edata)
{
	const char *line = syscall(SYS_gettid) == getpid() ? "LOG:  shmem_exit() runs in the service's first thread\n" :
		"LOG:  shmem_exit() runs in another thread of the service\n";

	if (prev_emit_log_hook)
		prev_emit_log_hook(edata);
	if (MyBgworkerEntry != NULL && strncmp(MyBgworkerEntry->bgw_name, "gpusort", 7) == 0 && edata->message != NULL &&
		strstr(edata->message, "before_shmem_exit") != NULL && write(STDERR_FILENO, line, strlen(line)) < 0)
		return;
}

void
_PG_init(void)
{
	prev_emit_log_hook = emit_log_hook;
	emit_log_hook = report_thread;
}
