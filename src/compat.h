/*-------------------------------------------------------------------------
 *
 * compat.h
 *		Differences between the PostgreSQL versions that gpusort supports.
 *
 * No other file uses PG_VERSION_NUM.  Each comment begins with the version that
 * made the change.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_COMPAT_H
#define GPUSORT_COMPAT_H

#if PG_VERSION_NUM < 150000
#error "gpusort needs PostgreSQL 15 or later"
#endif

/* 16: postgres.h does not include the macros of variable-length values any more */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 18: the magic block has the module's name and version */
#if PG_VERSION_NUM >= 180000
#define GPUSORT_MODULE_MAGIC \
	PG_MODULE_MAGIC_EXT(.name = "gpusort", .version = GPUSORT_VERSION)
#else
#define GPUSORT_MODULE_MAGIC	PG_MODULE_MAGIC
#endif

/* 18: pg_noreturn, which precedes a function's declaration as C11's _Noreturn does */
#if PG_VERSION_NUM >= 180000
#define GPUSORT_NORETURN	pg_noreturn
#else
#define GPUSORT_NORETURN	__attribute__((noreturn))
#endif

/* 18: a CompareType replaces the btree strategy, for orderings of any access method */
#if PG_VERSION_NUM >= 180000
#define GPUSORT_ORDERING		CompareType
#define GPUSORT_ORDERING_DESC	COMPARE_GT
#define gpusort_pathkey_operator(pathkey, type) \
	get_opfamily_member_for_cmptype((pathkey)->pk_opfamily, type, type, (pathkey)->pk_cmptype)
#else
#define GPUSORT_ORDERING		int16
#define GPUSORT_ORDERING_DESC	BTGreaterStrategyNumber
#define gpusort_pathkey_operator(pathkey, type) \
	get_opfamily_member((pathkey)->pk_opfamily, type, type, (pathkey)->pk_strategy)
#endif

/* 18: a path counts the disabled nodes below it. */
#if PG_VERSION_NUM >= 180000
#define gpusort_path_inherit_disabled(path, below)	((path)->disabled_nodes = (below)->disabled_nodes)
#else
#define gpusort_path_inherit_disabled(path, below)	((void) 0)
#endif

/* 16: a subquery's path is told whether it needs no projection. */
#if PG_VERSION_NUM >= 160000
#define gpusort_subquery_path(root, rel, path, pathkeys)	create_subqueryscan_path(root, rel, path, false, pathkeys, NULL)
#else
#define gpusort_subquery_path(root, rel, path, pathkeys)	create_subqueryscan_path(root, rel, path, pathkeys, NULL)
#endif

/*
 * 18: cost_sort() has a new argument, and no longer adds disable_cost.  Sets
 * path->total_cost to core's cost of a sort, without disable_cost.
 */
#if PG_VERSION_NUM >= 180000
#define gpusort_cost_core(path, rows, width) \
	cost_sort(path, NULL, NIL, 0, 0.0, rows, width, 0.0, work_mem, -1.0)
#else
#define gpusort_cost_core(path, rows, width) \
	(cost_sort(path, NULL, NIL, 0.0, rows, width, 0.0, work_mem, -1.0), \
	 (path)->total_cost -= enable_sort ? 0.0 : disable_cost)
#endif

/* 18: explain.h was split into several headers */
#if PG_VERSION_NUM >= 180000
#define GPUSORT_EXPLAIN_STATE_H		"commands/explain_state.h"
#define GPUSORT_EXPLAIN_FORMAT_H	"commands/explain_format.h"
#else
#define GPUSORT_EXPLAIN_STATE_H		"commands/explain.h"
#define GPUSORT_EXPLAIN_FORMAT_H	"commands/explain.h"
#endif

/* 18: the range table may end with an entry for GROUP BY, which EXPLAIN does not count */
#if PG_VERSION_NUM >= 180000
#define GPUSORT_EXPLAIN_RELATIONS(es)	((es)->rtable_size)
#else
#define GPUSORT_EXPLAIN_RELATIONS(es)	list_length((es)->rtable)
#endif

/*
 * 18: tuple descriptors have CompactAttributes, which suffice to deform tuples.  gpusort_align()
 * aligns an offset for values of a column.
 */
#if PG_VERSION_NUM >= 180000
#define GPUSORT_ATTRIBUTE(desc, i)			TupleDescCompactAttr(desc, i)
#define gpusort_align(offset, desc, i)		att_nominal_alignby(offset, TupleDescCompactAttr(desc, i)->attalignby)
#else
#define GPUSORT_ATTRIBUTE(desc, i)			TupleDescAttr(desc, i)
#define gpusort_align(offset, desc, i)		att_align_nominal(offset, TupleDescAttr(desc, i)->attalign)
#endif

/* 16: t_counts became counts.  Count scans of a table, and its rows as returned by a scan. */
#if PG_VERSION_NUM >= 160000
#define gpusort_count_scans(relation, scans) \
	((void) (pgstat_should_count_relation(relation) && \
			 ((relation)->pgstat_info->counts.numscans += (scans))))
#define gpusort_count_returned(relation, rows) \
	((void) (pgstat_should_count_relation(relation) && \
			 ((relation)->pgstat_info->counts.tuples_returned += (rows))))
#else
#define gpusort_count_scans(relation, scans) \
	((void) (pgstat_should_count_relation(relation) && \
			 ((relation)->pgstat_info->t_counts.t_numscans += (scans))))
#define gpusort_count_returned(relation, rows) \
	((void) (pgstat_should_count_relation(relation) && \
			 ((relation)->pgstat_info->t_counts.t_tuples_returned += (rows))))
#endif

/* 16: tuplesort_getdatum() has the argument copy */
#if PG_VERSION_NUM >= 160000
#define gpusort_tuplesort_getdatum(state, forward, value, isnull) \
	tuplesort_getdatum(state, forward, false, value, isnull, NULL)
#else
#define gpusort_tuplesort_getdatum(state, forward, value, isnull) \
	tuplesort_getdatum(state, forward, value, isnull, NULL)
#endif

/* 16: the planner may have sorted the input of an aggregate, which then does not sort */
#if PG_VERSION_NUM >= 160000
#define GPUSORT_CORE_PRESORTS	true
#define GPUSORT_AGG_PRESORTED(aggref)	((aggref)->aggpresorted)
#else
#define GPUSORT_CORE_PRESORTS	false
#define GPUSORT_AGG_PRESORTED(aggref)	false
#endif

/* 16: equal aggregates of a query are in a list */
#if PG_VERSION_NUM >= 160000
#define GPUSORT_AGGINFO_AGGREF(info)	linitial_node(Aggref, (info)->aggrefs)
#else
#define GPUSORT_AGGINFO_AGGREF(info)	((info)->representative_aggref)
#endif

/* 16: behind the pathkeys of the groups there may be one of an aggregate */
#if PG_VERSION_NUM >= 160000
#define GPUSORT_GROUP_PATHKEYS(root)	((root)->num_groupby_pathkeys)
#else
#define GPUSORT_GROUP_PATHKEYS(root)	list_length((root)->group_pathkeys)
#endif

/* 17: a window function has its run condition, before its window */
#if PG_VERSION_NUM >= 170000
#define GPUSORT_RUN_CONDITION(function, window)	((function)->runCondition)
#else
#define GPUSORT_RUN_CONDITION(function, window)	((window)->runCondition)
#endif

/* 17: the number of a PGPROC is its index in the array; the field pgprocno is gone */
#if PG_VERSION_NUM >= 170000
#define GPUSORT_PROC_NUMBER(proc)	((uint32) GetNumberFromPGProc(proc))
#else
#define GPUSORT_PROC_NUMBER(proc)	((uint32) (proc)->pgprocno)
#endif

/* 18: an Append has an index into the statement's pruning steps, which is -1 without pruning */
#if PG_VERSION_NUM >= 180000
#define gpusort_append_without_pruning(append)	((append)->part_prune_index = -1)
#else
#define gpusort_append_without_pruning(append)	((append)->part_prune_info = NULL)
#endif

/* 19: planners get the ExplainState of the EXPLAIN that asks for the plan, else NULL */
#if PG_VERSION_NUM >= 190000
#define GPUSORT_PLANNER_PARAMETER	, ExplainState *es
#define GPUSORT_PLANNER_ARGUMENT	, es
#else
#define GPUSORT_PLANNER_PARAMETER
#define GPUSORT_PLANNER_ARGUMENT
#endif

/* 19: slots are made with flags */
#if PG_VERSION_NUM >= 190000
#define gpusort_alloc_slot(table, desc, ops)	ExecAllocTableSlot(table, desc, ops, 0)
#define gpusort_init_scan_slot(estate, scan, desc, ops) \
	ExecInitScanTupleSlot(estate, scan, desc, ops, 0)
#else
#define gpusort_alloc_slot(table, desc, ops)	ExecAllocTableSlot(table, desc, ops)
#define gpusort_init_scan_slot(estate, scan, desc, ops) \
	ExecInitScanTupleSlot(estate, scan, desc, ops)
#endif

/* 19: a plan node's counters of time are within its instrument, in instr_time */
#if PG_VERSION_NUM >= 190000
#define GPUSORT_INSTRUMENT_TIMED(instrument)	((instrument)->instr.need_timer)
#define GPUSORT_INSTRUMENT_MS(instrument)		INSTR_TIME_GET_MILLISEC((instrument)->instr.total)
#else
#define GPUSORT_INSTRUMENT_TIMED(instrument)	((instrument)->need_timer)
#define GPUSORT_INSTRUMENT_MS(instrument)		((instrument)->total * 1000.0)
#endif

/* 19: the collator of an ICU locale has moved, and a locale does not tell its provider */
#if PG_VERSION_NUM >= 190000
#define GPUSORT_LOCALE_COLLATOR(locale)	((locale)->icu.ucol)
#else
#define GPUSORT_LOCALE_COLLATOR(locale)	((locale)->info.icu.ucol)
#endif

/* 19: a tuple descriptor must be finished before it is used */
#if PG_VERSION_NUM >= 190000
#define gpusort_finish_descriptor(desc)	TupleDescFinalize(desc)
#else
#define gpusort_finish_descriptor(desc)	((void) 0)
#endif

/* 16: a heap scan without pages' visibility has the offset of its last tuple in a field of its own */
#if PG_VERSION_NUM >= 160000
#define gpusort_scan_set_offset(scan, offset)	((scan)->rs_coffset = (offset))
#else
#define gpusort_scan_set_offset(scan, offset)	ItemPointerSetOffsetNumber(&(scan)->rs_ctup.t_self, offset)
#endif

/*
 * 17: wait events of extensions have names.  Returns the event with this name, which id, a static
 * variable that is 0 at first, keeps.
 */
#if PG_VERSION_NUM >= 170000
#define gpusort_wait_event(id, name)	((id) != 0 ? (id) : ((id) = WaitEventExtensionNew(name)))
#else
#define gpusort_wait_event(id, name)	((id) = PG_WAIT_EXTENSION)
#endif

/* 17: smgr_bulk_write() writes the pages of a new relation.  Before: index/bulk.h */
#if PG_VERSION_NUM >= 170000
#define GPUSORT_HAS_BULK_WRITE
#endif

/* 16: a relation's files have a RelFileLocator */
#if PG_VERSION_NUM >= 160000
#define gpusort_rel_files(relation)		(&(relation)->rd_locator)
#else
#define gpusort_rel_files(relation)		(&(relation)->rd_node)
#endif

/* 18: the size of a btree's tuple depends on no page */
#if PG_VERSION_NUM >= 180000
#define GPUSORT_MAX_BTREE_TUPLE(page)	BTMaxItemSize
#else
#define GPUSORT_MAX_BTREE_TUPLE(page)	BTMaxItemSize(page)
#endif

/*
 * 19: the functions of an access method are constant, and the planner's hook for a table has
 * other arguments.  GPUSORT_REL_HOOK defines a hook that calls the previous one, and then visit
 * with the planner's root and the OID of a table whose partitions or children count.
 */
#if PG_VERSION_NUM >= 190000
typedef const struct IndexAmRoutine GpusortIndexAm;
#define GPUSORT_REL_HOOK_H		"optimizer/pathnode.h"
#define gpusort_rel_hook		build_simple_rel_hook
#define gpusort_rel_hook_type	build_simple_rel_hook_type
#define GPUSORT_REL_HOOK(name, previous, visit) \
static void \
name(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte) \
{ \
	if (previous) \
		previous(root, rel, rte); \
	if (rte->rtekind == RTE_RELATION && rte->inh) \
		visit(root, rte->relid); \
}
#else
typedef struct IndexAmRoutine GpusortIndexAm;
#define GPUSORT_REL_HOOK_H		"optimizer/plancat.h"
#define gpusort_rel_hook		get_relation_info_hook
#define gpusort_rel_hook_type	get_relation_info_hook_type
#define GPUSORT_REL_HOOK(name, previous, visit) \
static void \
name(PlannerInfo *root, Oid table, bool inherits, RelOptInfo *rel) \
{ \
	if (previous) \
		previous(root, table, inherits, rel); \
	if (inherits) \
		visit(root, table); \
}
#endif

#endif							/* GPUSORT_COMPAT_H */
