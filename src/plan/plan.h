/*-------------------------------------------------------------------------
 *
 * plan.h
 *		The planner hooks of GpuSort, and its cost model.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_PLAN_PLAN_H
#define GPUSORT_PLAN_PLAN_H

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"

#include "key/key.h"
#include "sort/stream.h"

/* Registers GpuSort and sets the planner hooks.  _PG_init calls it once. */
extern void gpusort_plan_init(void);

/*
 * Returns a target list of references to the entries of another one.  varno: OUTER_VAR or
 * INDEX_VAR.
 */
extern List *gpusort_plan_references(int varno, List *targetlist);

/* A sort, for the cost model */
typedef struct GpusortCostInput
{
	double		rows;			/* rows to sort */
	int			width;			/* their average bytes */
	double		fetched;		/* rows that the parent fetches, at most; -1: all */
	bool		ties;			/* it also fetches the rows equal to the last of them */
	double		kept;			/* rows that the groups of a bound keep; 0: all */
	const GpusortKeyPlan *key;	/* no refusal */
	double		compared;		/* columns that a comparison of core's looks at, on average; 0: 1 */
	bool		by_pages;		/* rows are read by pages: gpusort_cost_by_pages() */
} GpusortCostInput;

/* All rows of a child, which is a plan or a path, are sorted and fetched. */
extern GpusortCostInput gpusort_cost_input(double rows, int width, const void *child, const GpusortKeyPlan *key);

/*
 * Will the rows of a plan or of a path be read by pages (src/scan/page.c)?  It takes all tables
 * for heaps.
 */
extern bool gpusort_cost_by_pages(const Node *node);

/*
 * Are there so few rows of this width that GpuSort costs more than core's sort, whatever
 * the types of this many columns are?  comparison: the slowest one that core may use for
 * the first column.  Takes some nanoseconds.
 */
extern bool gpusort_cost_few_rows(double rows, int width, double ncolumns, GpusortComparison comparison);

/* Returns the columns of a Sort of a finished plan in a palloc'ed array of numCols. */
extern GpusortSortColumn *gpusort_cost_columns(const Sort *sort);

/*
 * Might the temporary files of a sort exceed temp_file_limit, if ten times as many rows come as expected?  Then it takes the
 * place of nothing but another sort of these rows, of which core's choice of a plan has files as large.
 */
extern bool gpusort_cost_exceeds_files(double rows, int width);

/* Do this many rows of this width fit in the memory of a GpuSort, or of this many processes? */
extern bool gpusort_cost_fits(double rows, int width, double processes);

/* The estimated cost of a GpuSort without its input, in the planner's cost units. */
extern double gpusort_cost_sort(const GpusortCostInput *input);

/* The same if this many processes share the work of reading the rows and making their keys. */
extern double gpusort_cost_shared(const GpusortCostInput *input, double processes);

/*
 * The estimated cost of core's sort, which is a bounded sort if the parent fetches fewer
 * than half of the rows, without ties.  It is comparable with gpusort_cost_sort() only: core's
 * own estimate of a bounded sort is larger.
 */
extern double gpusort_cost_core_sort(const GpusortCostInput *input);

/* The cost of a GpuSort Aggregate of this many rows, without its child. */
extern Cost gpusort_plan_aggregate_cost(double rows, int columns, int aggregates);

/* Returns the number of distinct values in a column of a plan, by the statistics, or "unknown". */
extern double gpusort_plan_distinct(PlannedStmt *stmt, Plan *plan, AttrNumber attno, double unknown);

/* Returns which part of a column's values in a plan are NULL, by the statistics, or 0. */
extern double gpusort_plan_null_part(PlannedStmt *stmt, const Plan *plan, AttrNumber attno);

/* Do a table's rows lie in the order of this operator on a column, by the statistics?  The plan scans the table. */
extern bool gpusort_plan_lies_in_order(PlannedStmt *stmt, const Plan *plan, AttrNumber attno, Oid operator, Oid collation);

/*
 * Returns how many groups rows have by some expressions: the planner's estimate, which knows nothing of most expressions, but of "x % 10"
 * no more than there can be.
 */
extern double gpusort_plan_count_groups(PlannerInfo *root, List *exprs, double rows);

/*
 * Returns how many columns a comparison of core's looks at in a Sort of a finished plan,
 * on average, by the statistics of the columns.
 */
extern double gpusort_plan_compared_columns(PlannedStmt *stmt, Sort *sort);

/*
 * Offers the same sorts as create_ordered_paths(), at GpuSort's cost: of the cheapest paths
 * of input_rel, for ordered_rel.  In paths.c.
 */
extern void gpusort_plan_offer_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *ordered_rel);

/* Plans the key for these pathkeys.  False if gpusort does not support them. */
extern bool gpusort_plan_key(List *pathkeys, GpusortKeyPlan *key);

/*
 * Returns a Sort above a Gather, for a relation with this many rows, which plan/parallel.c will replace by a sort that all
 * processes feed, at that one's cost: no row goes through a queue, the processes share the
 * work of gathering, and the leader returns the rows.  NULL if core's sort costs no more.  kept: as above.  In paths.c.
 */
extern Path *gpusort_plan_parallel_sort(PlannerInfo *root, RelOptInfo *rel, Path *partial, double rows, List *pathkeys,
										const GpusortKeyPlan *key, double kept);

/*
 * Where a path of a table returns rows in the order that the query needs, or by the first columns of it: offers a sort of
 * the cheapest path's rows at GpuSort's cost, unless it costs more than a part of a path in the whole order.  Where a query uses
 * only the first rows of each group: offers a sort in all processes.  In paths.c.
 */
extern void gpusort_plan_offer_order(PlannerInfo *root, RelOptInfo *rel);

/* ---- own_aggregates.c ---- */

/* Will GpuSort Aggregate sort words, not rows, for these aggregates, of groups by these expressions? */
extern bool gpusort_plan_takes_words(List *groups, List *aggrefs);

/* Returns by how many different orders these aggregates sort. */
extern int	gpusort_plan_count_orders(List *aggrefs);

/*
 * Are the rows of these aggregates' orders in memory, if there are several, or do they fit in temporary files?  Core's Agg above a
 * GpuSort by the groups has rows in files once, and its aggregates those of one group.
 */
extern bool gpusort_plan_orders_fit(List *aggrefs, double rows, int width);

/*
 * Returns a GpuSort Aggregate in place of an Agg, of a HashAggregate as gpusort_plan_sort_groups() makes it, and of a Sort below
 * it; NULL if the Agg must stay.
 */
extern Plan *gpusort_plan_own_aggregates(PlannedStmt *stmt, Agg *agg);

/*
 * Returns one of these Aggrefs that sort, if all that do sort by the same columns of the rows, and the others may see the rows in
 * that order; else NULL.  any: the columns may be expressions.  Those with DISTINCT have the same FILTER.  Without groups, none that
 * sorts has one: a sort would have all rows for it.
 */
extern const Aggref *gpusort_plan_common_order(List *aggregates, bool any, bool grouped);

/* ---- aggregate_paths.c ---- */

/*
 * Offers an Agg above a sort for grouped, of the cheapest partial path of input, where GpuSort Aggregate will take its
 * place and all processes will feed the sort, and of the cheapest path.
 */
extern void gpusort_plan_offer_aggregates(PlannerInfo *root, RelOptInfo *input, RelOptInfo *grouped);

/* ---- sorted_groups.c ---- */

/* A plan has fewer nodes, so that the number of an Agg and this give a number for another node in its place. */
#define GPUSORT_NODE_IDS	1000000

/* Returns a GroupAggregate above a Sort that could take the place of a HashAggregate; NULL: none could. */
extern Agg *gpusort_plan_sort_groups(const Agg *agg);

/*
 * Returns a copy of an Agg, whose scan returns only the columns that the Agg needs.  Where rows are not sorted, a scan returns
 * all columns of a table if that saves a projection, and a sort would copy them.
 */
extern Agg *gpusort_plan_narrow_input(const Agg *agg);

/* Makes a Sort of an Agg's input by the columns of the groups.  NULL if a type has no order, or another equality. */
extern Sort *gpusort_plan_make_sort(Agg *agg);

/*
 * The estimated cost of the hash table of a HashAggregate, to be compared with that of a GpuSort.  0 if a sort cannot cost less:
 * the table fits in the processor's cache, and there are aggregates, for which all rows would be sorted; or it fits in memory,
 * and the strings that would be sorted do not; or the strings compare by a function of the type, as citext, whose time makes
 * the units of a sort's cost longer.
 */
extern Cost gpusort_plan_hash_cost(PlannedStmt *stmt, const Agg *agg);

/* ---- start_scans.c ---- */

/*
 * Returns a GpuSort Start above a MergeAppend of a finished plan whose children are foreign
 * scans that can be executed asynchronously; NULL if the MergeAppend must stay as it is.
 * bounded: a LIMIT passes the number of rows that it wants through the MergeAppend.
 */
extern Plan *gpusort_plan_start(PlannedStmt *stmt, MergeAppend *merge, bool bounded);

/* ---- bounds.c ---- */

/* The rows of a plan node that its parent uses.  All zeros but rows = -1: all. */
typedef struct GpusortBound
{
	double		rows;			/* expected; -1: all, or the number is that of each group */
	bool		constant;		/* rows is a maximum, not an estimate */
	Node	   *count;			/* with them the executor can find the number, as it is in this list; */
	Node	   *offset;			/* NULL: nowhere, and none */
	bool		below;			/* the number is one less than count */
	bool		ties;			/* WITH TIES: and those equal to the last of them */
	bool		unknown_to_core;	/* core sorts all rows */
	GpusortGroups groups;
} GpusortBound;

extern const GpusortBound gpusort_unbounded;

/*
 * The bound of a LIMIT clause, without the plan node: option is that of the clause,
 * and rows is the estimate if count is not a constant.
 */
extern GpusortBound gpusort_bound_clause(Node *count, Node *offset, LimitOption option, double rows);

/*
 * Returns a SortPath over child at GpuSort's cost, or NULL if core's sort costs no more.  bound: of the query's LIMIT.
 * kept: how many rows are kept where equal ones are dropped, else 0.  In paths.c.
 */
extern Path *gpusort_plan_price_sort(PlannerInfo *root, RelOptInfo *rel, Path *child, List *pathkeys, const GpusortKeyPlan *key,
									 GpusortBound bound, double kept);

/*
 * The bound of a plan node's left child, given the node's own: of a Limit, of a Gather, whose child is executed in other
 * processes, too; of a Unique and of a GroupAggregate without aggregates, one row of each group; of a WindowAgg with a run
 * condition; of a GpuSort Aggregate that needs only distinct rows, one of those that are equal.  A Result passes its own.
 */
extern GpusortBound gpusort_bound_below(const Plan *plan, GpusortBound bound);

/*
 * The rows that the groups of a bound keep of a Sort's child, by the statistics of its columns; 0: the bound has no
 * groups, or the number is not known.
 */
extern double gpusort_bound_kept(PlannedStmt *stmt, Plan *child, const GpusortSortColumn *columns, GpusortBound bound);

/* ---- make.c ---- */

/* Returns the children of an Append or of a MergeAppend; NIL: the plan is another node. */
extern List *gpusort_plan_appended(const Plan *plan);

/* Returns the Aggrefs of an Agg. */
extern List *gpusort_aggregate_list(const Agg *agg);

/* Makes a custom scan node in place of a plan node, which returns these columns of its child. */
extern CustomScan *gpusort_plan_scan(const Plan *plan, Plan *child, List *columns, const CustomScanMethods *methods);

/*
 * Returns the custom_private of a GpuSort, to which its version is added: four lists of its columns' numbers, operators, collations and
 * nulls_first, and numbers: processes, the bound's known to core, ties, below and groups, and the columns of shares, or 0.
 * node/unpack.c reads it.
 */
extern List *gpusort_plan_private(const GpusortSortColumn *columns, int n, GpusortBound bound, int processes, int share_columns);

/* Is it a GpuSort that returns shares? */
extern bool gpusort_plan_is_shares(const Plan *plan);

/*
 * Makes a custom scan node with the columns and the order of a Sort, and its place in the
 * plan tree.  targetlist refers to the child's columns.  processes: those that sort, or execute
 * the node, together.  custom_exprs is the bound's count and offset, or NIL.
 */
extern CustomScan *gpusort_plan_make(const Sort *sort, List *targetlist, GpusortBound bound, int processes,
									 const CustomScanMethods *methods);

/*
 * Does a plan scan a table, and return nothing but columns of it?  Then its target list may be changed.  Those of other nodes
 * may have volatile functions, or the node may refer to them by number, as a WindowAgg does.
 */
extern bool gpusort_plan_returns_columns(const Plan *plan);

/*
 * If a node hands on the columns of child as they are, returns its target list, each entry
 * of which is the child's column of the same number, else NIL.  child may be the node's
 * grandchild, if the node between them hands on its columns as they are.
 */
extern List *gpusort_plan_handed_on(const Plan *plan, const Plan *child);

/* Returns the first column of a Result that is this column of its child; 0: there is none. */
extern AttrNumber gpusort_plan_projected(const Plan *result, AttrNumber attno);

/*
 * Returns the Sort in place of a Result that only chooses columns of its rows, if the Sort's child can choose them.  Bounds
 * are those of the Sort's parent, and rows are copied once less: row_number() over 6 million rows takes 0.85 to 0.9 of the time,
 * and of the first row of each group 0.7.
 */
extern Plan *gpusort_plan_lower_projection(Plan *plan);

/* Has a window function a run condition?  Looks at windows with PARTITION BY, or at those without.  In paths.c. */
extern bool gpusort_plan_has_run_condition(const Query *query, bool partitioned);

/* ---- shared_plans.c ---- */

/*
 * Offers plans for windows in which all processes compute them, each for shares of a sorted stream: partial paths of
 * window_rel, and a Gather of them.
 */
extern void gpusort_plan_offer_windows(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *window_rel);

/*
 * In a finished plan: has a GpuSort that returns shares return the columns of its child by their numbers.  setrefs.c finds them by
 * their expressions, of which two may be equal, and leaves constants as they are.
 */
extern void gpusort_plan_settle_shares(Plan *plan);

/*
 * The same for an Agg of groups, of which one process has the plan "serial": of a partial path's rows, sorted by these pathkeys, of
 * which the first are those of the groups.  equal: of so many only equality counts; inner: what the aggregates cost beside the
 * planner's estimate; most: what one process takes.  Is it better than that?
 */
extern bool gpusort_plan_share_groups(PlannerInfo *root, RelOptInfo *grouped, const AggPath *serial, Path *partial, List *pathkeys,
									  int equal, Cost inner, Cost most);

/*
 * Offers the partial paths of a subquery, of which the planner makes nothing if there is an OFFSET 0: it looks at that before it
 * knows the constant.
 */
extern void gpusort_plan_offer_subquery(PlannerInfo *root, RelOptInfo *rel, const RangeTblEntry *rte);

/* ---- parallel.c ---- */

/*
 * If a plan is a Gather Merge above a Sort, or a Sort above a Gather, which GpuSort can
 * do in one sort that all processes feed, and if that is expected to pay, returns a
 * GpuSort above a Gather above a GpuSort Feed above the same partial plan, which
 * *partial then points to.  Returns NULL otherwise.  bound: no LIMIT's, but it may have groups.
 */
extern Plan *gpusort_plan_parallel(PlannedStmt *stmt, Plan *plan, GpusortBound bound, Plan ***partial);

/* Is it worth while to let workers feed one sort of this many rows? */
extern bool gpusort_plan_feed_pays(double rows);

#endif							/* GPUSORT_PLAN_PLAN_H */
