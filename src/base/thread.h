/*-------------------------------------------------------------------------
 *
 * thread.h
 *		Starts a thread of a backend.  Plain C without PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_THREAD_H
#define GPUSORT_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* These include the libraries' thread-local storage. */
#define GPUSORT_THREAD_STACK_BYTES	(256 * 1024)

/*
 * Starts a thread with all signals blocked, since the backend handles them, and with a small stack.
 * Returns 0 or an error as pthread_create() does.  The caller joins or detaches the thread.
 */
static inline int
gpusort_thread_start(pthread_t *thread, void *(*work) (void *), void *arg)
{
	pthread_attr_t attributes;
	sigset_t	all;
	sigset_t	old;
	int			error = pthread_attr_init(&attributes);

	if (error != 0)
		return error;
	(void) pthread_attr_setstacksize(&attributes, GPUSORT_THREAD_STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = pthread_create(thread, &attributes, work, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return error;
}

#endif							/* GPUSORT_BASE_THREAD_H */
