/*-------------------------------------------------------------------------
 *
 * fault.h
 *		Sites at which tests inject faults (test/fault/), in builds for tests.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_FAULT_H
#define GPUSORT_BASE_FAULT_H

/*
 * GPUSORT_FAULT() passes a site; if it is not 0, the call at the site fails.  GPUSORT_FAULT_BREAK()
 * passes a site that breaks a result of *n elements, of width bytes.  The others define
 * the settings, let the service take part, and let a test change a timeout.
 */
#ifdef GPUSORT_FAULTS
#include "fault/fault.h"
#define GPUSORT_FAULT(site)				gpusort_fault_pass(GPUSORT_FAULT_##site)
#define GPUSORT_FAULT_BREAK(site, elements, width, n) \
	gpusort_fault_break(GPUSORT_FAULT_##site, elements, width, n)
#define GPUSORT_FAULT_DEFINE()			gpusort_fault_define()
#define GPUSORT_FAULT_SERVE()			gpusort_fault_serve()
#define GPUSORT_FAULT_PATIENCE(ms)		gpusort_fault_patience(ms)
#else
#define GPUSORT_FAULT(site)				0
#define GPUSORT_FAULT_BREAK(site, elements, width, n)	((void) 0)
#define GPUSORT_FAULT_DEFINE()			((void) 0)
#define GPUSORT_FAULT_SERVE()			((void) 0)
#define GPUSORT_FAULT_PATIENCE(ms)		(ms)
#endif

#endif							/* GPUSORT_BASE_FAULT_H */
