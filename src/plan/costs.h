/*-------------------------------------------------------------------------
 *
 * costs.h
 *		What the planner's part of gpusort takes for known: costs and thresholds.
 *
 * docs/performance.md, "Numbers of the planner", has the measurement behind each.  Costs of core's model are made of
 * cpu_operator_cost and the like, whose settings change ours as well.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_PLAN_COSTS_H
#define GPUSORT_PLAN_COSTS_H

/* ---- a GpuSort, in units of cpu_operator_cost (cost.c) ---- */

#define SETUP_OPERATORS			9000.0		/* once per sort */
#define TIE_SETUP_OPERATORS		11000.0		/* once more if keys may tie, */
#define FEW_SETUP_OPERATORS		60000.0		/* and if all columns have few values by nature */
#define BOUND_SETUP_OPERATORS	10000.0		/* for each word but the first, if a LIMIT bounds the sort */
#define READ_OPERATORS			2.0			/* per row, to read it in a slot, */
#define PAGE_READ_OPERATORS		(-2.0)		/* or by pages: it saves what the scan's cost contains for the way of a row through the
											 * executor, cpu_tuple_cost */
#define COPY_OPERATORS			3.0			/* per row that is copied and sorted */
#define FETCH_OPERATORS			3.0			/* per row that is fetched */
#define WORD_OPERATORS			2.0			/* per row and word */
#define TIE_OPERATORS			3.0			/* per row if keys may tie */
#define BYTE_OPERATORS			0.05		/* per byte of a row that core would not keep */
#define HEAP_OPERATORS			3.0			/* per comparison in core's bounded heap */

/* The same if core compares by strcoll() or citext, whose time makes the units longer */
#define LIBC_SETUP_OPERATORS	2200.0
#define LIBC_COPY_OPERATORS		7.0
#define LIBC_COMPARE_OPERATORS	2.0			/* per comparison, with the bound or in the heap */
#define CITEXT_SETUP_OPERATORS	250.0
#define CITEXT_COPY_OPERATORS	3.0
#define STRING_WORDS			2			/* words of a string in a key: the COPY_OPERATORS of libc and citext contain their cost */

#define SPILL_BYTES				16.0		/* bytes of a row in a temporary file, beside its columns */
#define SURPLUS_ROWS			10.0		/* where temporary files are limited: times as many rows may come as expected */
#define FIRST_CUT_ROWS			4096.0		/* rows that are gathered before the first trim, at least: LEAST_ROWS in sort/trim.c */

/* ---- groups ---- */

/* Core's hash table of groups, in units of cpu_operator_cost per row (sorted_groups.c) */
#define HASH_OPERATORS			8.0			/* if the table fits in the processor's cache, */
#define HASH_MISS_OPERATORS		22.0		/* if it does not, */
#define HASH_SPILL_OPERATORS	25.0		/* and more if it does not fit in memory */
#define HASH_GROUP_BYTES		64.0		/* bytes of a group, beside its columns */
#define HASH_CACHE_BYTES		(4.0 * 1024 * 1024)

/* What a GpuSort Aggregate costs for each row, in units of cpu_operator_cost (aggregate_paths.c) */
#define AGGREGATE_OPERATORS		2.0			/* for each column of the groups, and for each aggregate; */
#define ROW_ORDER_OPERATORS		15.0		/* for each order, if it sorts rows; */
#define INNER_SORT_OPERATORS	25.0		/* and in core's Agg for each aggregate that sorts */

/* Rows of one value, on average, from which on it takes less time to drop those that repeat another one than to sort them all (aggregate_paths.c) */
#define LEAST_REPEATS			10.0

/* With more NULLs than this part, a count(DISTINCT) passes over rows faster than a sort below sorts them (own_aggregates.c) */
#define MOST_NULLS				0.5

#define LEAST_WORD_ROWS			300.0		/* from so many rows on, a GpuSort Aggregate of words takes less time than core (own_aggregates.c) */

/* ---- several processes ---- */

#define LEAST_FEED_ROWS			20000.0		/* with fewer rows, a Gather Merge costs less than making memory to share, some 0.3 ms (parallel.c) */
#define LEAST_PAGE_ROWS			1000000.0	/* with fewer rows that are read by pages, in 20 to 50 ns each, one process takes less
											 * time than it takes to start others */
#define LEAST_SHARED_ROWS		100000.0	/* the same for aggregates, of rows read otherwise (aggregate_paths.c) */
#define SHARE_MARGIN			0.9			/* aggregates in all processes pay if they take less than this part of the time of one process */

/* ---- other plans ---- */

/*
 * An index scan's cost contains reads from disk.  If the table is in memory, and in the order of the index, an index scan takes
 * as long as a GpuSort whose cost is this part of its cost (paths.c).
 */
#define INDEX_MARGIN			0.75

/* The least correlation of values and places in a table for which the rows are taken to lie in order (cost.c) */
#define LEAST_CORRELATION		0.9999

#endif							/* GPUSORT_PLAN_COSTS_H */
