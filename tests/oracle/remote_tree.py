"""The oracle tests with SOURCE in an object store: the local comparisons, with arrays on moto.

    python3 remote_tree.py [--share 1/10] [--matrix FOLDER] [--family FOLDER] [--views FOLDER]

Without a folder the core of the matrix is written first; `run.py --set core --keep FOLDER` leaves one. `--share N/M` takes a fixed part of the arrays. The last line is
`N passed, N failed`.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

from checking import BROKEN, compare_check
from mount import mounted
from run import Oracle
from shares import belongs, share
from stores import Moto
from views import family_array, work


class RemoteOracle(Oracle):
    """The oracle test with its arrays on moto. Groups are uploaded with all their contents."""

    def __init__(self, args, moto):
        super().__init__(args)
        self.moto = moto

    def chosen(self, source, items):
        """A share of the arrays outside groups, and all groups."""
        groups = [path for kind, path, _, _ in items if kind == "group"]
        return [item for item in items
                if item[0] == "group" or any(item[1].startswith(group + "/") for group in groups)
                or belongs(self.args.share, os.path.relpath(item[1], source))]

    def mounted(self, source, items, options):
        """A mount of the chosen arrays, in a bucket."""
        self.there = [path for _, path, _, _ in items]
        done = set()
        for path in sorted(self.there):
            # The contents of a group came with it.
            if not any(path.startswith(one + "/") for one in done):
                self.moto.load("oracle", os.path.relpath(path, source), path)
                done.add(path)
        return mounted("s3://oracle", *options, env=self.moto.env())

    def check(self, source, options):
        """Checks the bucket."""
        broken = [path for path in BROKEN if os.path.join(source, path) in self.there]
        compare_check("s3://oracle", options, broken, self.report, self.moto.env())

    def complete(self, wanted):
        """A share is never complete."""


def compare_views(moto, family, share):
    """All views of a share of the arrays written for views: how many passed, and the failures."""
    family = os.path.realpath(family)
    rows = json.loads(Path(family, "expected/manifest.json").read_text())["arrays"]
    arrays = [row["name"] for row in rows if belongs(share, row["name"])]
    for array in arrays:
        moto.load("views", array, os.path.join(family, "arrays", array))
    passed, failures = 0, []
    with mounted("s3://views", env=moto.env()) as point, multiprocessing.Pool(os.cpu_count()) as pool:
        for _, tally in pool.imap_unordered(work, [(family_array, family, str(point), array, None) for array in arrays]):
            passed += tally.passed
            failures += tally.failures
    for line in failures:
        print("FAIL " + line[:700])
    print(f"{len(arrays)} of {len(rows)} arrays")
    return passed, len(failures)


def main():
    """Runs one test."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--share", type=share)
    parser.add_argument("--matrix")
    parser.add_argument("--family")
    parser.add_argument("--views")
    args = parser.parse_args()
    args.only = args.scratch = args.traceback = args.keep = None
    args.set = "core"
    start = time.time()
    with Moto() as moto:
        if args.views:
            passed, failed = compare_views(moto, args.views, args.share)
            print(f"{passed} passed, {failed} failed")
            sys.exit(1 if failed or not passed else 0)
        oracle = RemoteOracle(args, moto)
        if args.family:
            oracle.family(args.family)
        elif args.matrix:
            oracle.compare_written(args.matrix)
        else:
            with tempfile.TemporaryDirectory(prefix="tiledbfs-matrix-") as folder:
                oracle.write_and_compare("core", folder)
        sys.exit(oracle.summary(start))


if __name__ == "__main__":
    main()
