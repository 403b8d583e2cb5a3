"""Measures tiledbfs against TileDB-Py and against the limit of this machine; prints one table. Called by scripts/bench.sh.

Each figure is the median of several rounds; both sides are measured in turn in each round, and a ratio is the median of the
rounds' ratios. Each round of a cold read has a mount of its own, so that the kernel holds no page of it; the source's own files
are in the page cache for both sides.
"""

import argparse
import os
import pathlib
import platform
import re

import columns
import exports
import growth
import remote
import tables
import views
from bench import CORES, MIB, Bench

ROWS = columns.ROWS | views.ROWS | exports.ROWS | tables.ROWS | remote.ROWS


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())
    load = os.getloadavg()[0]
    return (f"{model[1] if model else platform.machine()}, {CORES} cores, {int(memory[1]) >> 20} GiB, Linux {platform.release()}, "
            f"load {load:.1f} at the start")


def memory(bench):
    """Peak memory of the daemons of all rows."""
    for name, peak in bench.peaks.items():
        allowed = (64 if "cache 64" in name else 256) + 64
        bench.row(f"peak RSS (MiB): {name}", f"{peak / MIB:.0f} MiB", peak / MIB, allowed)


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench.sh", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"which to measure: {' '.join(ROWS)} [default: all]")
    parser.add_argument("--size", type=int, default=256, metavar="MIB", help="size of a column [default: 256]")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds of each measurement [default: 5]")
    parser.add_argument("--filter", action="append", choices=columns.COLUMN_TARGETS, help="only these columns; may be given several times")
    parser.add_argument("--realtime", action="store_true", help="run all with real-time priority, which keeps other programs of the machine out")
    parser.add_argument("--plot", action="store_true", help="draw how times grow with the work into docs/growth.svg, and nothing else")
    parser.add_argument("--arrays", required=True, metavar="DIR", help="where arrays are kept from run to run")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {' '.join(unknown)}")
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    print(machine(), flush=True)
    bench = Bench(options)
    if options.plot:
        return growth.plot(bench, pathlib.Path(__file__).parent.parent / "docs/growth.svg")
    for name, measure in ROWS.items():
        if not options.rows or name in options.rows:
            print(f"{name}: {measure.__doc__}", flush=True)
            measure(bench)
    memory(bench)
    header = ("what", "figures", "measured", "target", "verdict")
    print("\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in bench.rows:
        print("| " + " | ".join(row) + " |")
    print(f"\n{machine()}; medians of {options.rounds} rounds")
    missed = sum(row[-1] == "MISSED" for row in bench.rows)
    judged = sum(bool(row[-1]) for row in bench.rows)
    print(f"{judged - missed} of {judged} targets reached")


if __name__ == "__main__":
    main()
