"""Runs statements in one DuckDB, in memory, for bench/peers.sh.

Each line of the standard input is a number of threads and a statement.  The answer is a
line with the milliseconds from the statement until its rows are fetched.  A SELECT must
return one row.
"""

import sys
import time

import duckdb

connection = duckdb.connect()
for line in sys.stdin:
    threads, statement = line.rstrip("\n").split(" ", 1)
    connection.execute(f"SET threads = {int(threads)}")
    begun = time.perf_counter()
    rows = connection.execute(statement).fetchall()
    ms = 1000 * (time.perf_counter() - begun)
    if statement.startswith("SELECT") and len(rows) != 1:
        sys.exit(f"DuckDB returned {len(rows)} rows instead of 1: {statement}")
    print(f"{ms:.3f}", flush=True)
