"""Rows on tables: DuckDB on table.parquet of sparse arrays of several kinds, its time and what it decodes."""

import subprocess
import sys

import arrays
from bench import MIB, stats
from views import compare, inside

KINDS = {"one fragment": 0.8, "appended": 0.8, "interleaved": None}
"""How four fragments lie, or one, and the most of TileDB-Py's time; what is merged has no bar."""

# Neither filter leaves out a row group, so that all chunks of the columns are needed.
QUERIES = {
    "a filtered mean": ("avg(price) FROM % WHERE amount < 500", ["amount", "price"]),
    "a group-by": ("side, sum(amount), avg(price) FROM % GROUP BY side", ["amount", "price", "side"]),
}


def decoded(bench, path, command):
    """Chunks that a cold mount decodes for a command, whose arguments `%` stands before are paths in the mount."""
    with bench.mounted(path) as (mountpoint, _):
        before = stats(mountpoint)["chunks_decoded"]
        command = [str(mountpoint / part[1:]) if part.startswith("%") else part for part in command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return stats(mountpoint)["chunks_decoded"] - before


def tables(bench):
    """DuckDB on tables of one fragment, appended and interleaved ones, without and with text, labels, dates and nulls."""
    rows = 4_000_000 * bench.size // (256 * MIB)
    table = "%data/table.parquet"
    for kind, target in KINDS.items():
        for rich in [False, True]:
            name = f"{kind}, {'text, labels, nulls' if rich else 'numbers'}"
            path = arrays.records(bench.folder, rows, kind, rich)
            first = decoded(bench, path, ["stat", table])
            bench.row(f"chunks decoded by stat of table.parquet: {name}", "", first, 0 if target else None)
            for what, (query, fields) in QUERIES.items():
                fetch = f"duckdb.sql(\"SELECT {query}\").fetchall()"
                ours = fetch.replace("%", "'{}'").replace(").fetchall", ".format(path)).fetchall")
                theirs = f"arrow = tiledb.open(path).query(attrs={fields}, dims=[], return_arrow=True).df[:]\n" + fetch.replace("%", "arrow")
                compare(bench, f"DuckDB, {what}: {name}", path,
                        lambda mountpoint: inside("duckdb", ours, mountpoint / "data/table.parquet"),
                        lambda: inside("duckdb, pyarrow, tiledb", theirs, path), target)
                files = [f"%data/columns/{field}/{file}.bin" for field in fields
                         for file in ["data"] + ["validity"] * (rich and field == "amount")]
                needed = decoded(bench, path, ["cat", *files])
                script = f"import duckdb, sys\npath = sys.argv[1]\n{ours}"
                took = decoded(bench, path, [sys.executable, "-c", script, table])
                bench.row(f"chunks decoded for it, of {needed}", str(took), took / needed, 1.1 if target else None)


ROWS = {"tables": tables}
