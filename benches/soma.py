"""anndata.zarr and anndata.h5ad of a SOMA experiment against tiledbsoma's to_anndata: 50,000 cells, 2,000 genes, ten million counts, thirty columns.

    TILEDBFS_BIN=target/release/tiledbfs target/venv-soma/bin/python benches/soma.py [--arrays DIR] [--rounds N] [--cells N]

Both sides run in a fresh Python for each round, with the clock inside, after the imports; each has a mount of its own. The experiment is made at
the first run and kept. The exit code is 1 if a goal was missed.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

from bench import MIB, OWN_PEAK, Bench, median, peak, seconds, stats, timed

GENES, COLUMNS, DENSITY = 2_000, 30, 0.1
# The cache that a mount has here, and what it may need besides.
CACHE, BESIDES = 256 * MIB, 64 * MIB

PRELUDE = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import anndata, tiledbsoma, tiledbsoma.io
from anndata.experimental import read_lazy
import zarr, dask
zarr.config.set({"async.concurrency": 8})
anndata.settings.zarr_write_format = 3
path = sys.argv[1]
start = time.perf_counter()
"""
POSTLUDE = f"""
print(json.dumps([time.perf_counter() - start, {OWN_PEAK}]))
"""
TO_ANNDATA = """
with tiledbsoma.Experiment.open(path) as experiment:
    data = tiledbsoma.io.to_anndata(experiment, "RNA")
"""
WRITE = TO_ANNDATA + "data.write_zarr(sys.argv[2])\n"
READ = "data = anndata.read_zarr(path)\n"
READ_H5AD = "data = anndata.read_h5ad(path)\n"
BACKED = "data = anndata.read_h5ad(path, backed='r')[23_456].X[:]\n"
ROW = "data = read_lazy(path).X[23_456:23_457].compute()\n"


def make(folder, cells):
    """The experiment, made once."""
    import anndata
    import numpy as np
    import pandas as pd
    import scipy.sparse as sp
    import tiledbsoma.io

    path = pathlib.Path(folder) / f"soma-{cells}"
    if (path / "made").exists():
        return path
    subprocess.run(["rm", "-rf", path], check=True)
    chance = np.random.default_rng(25)
    X = sp.random(cells, GENES, DENSITY, format="csr", rng=chance, dtype="f4")
    X.data = chance.geometric(0.4, X.nnz).astype("f4")
    kinds = [lambda: chance.random(cells), lambda: chance.integers(0, 1 << 20, cells), lambda: chance.random(cells) < 0.5,
             lambda: pd.Categorical.from_codes(chance.integers(0, 20, cells), [f"type {i}" for i in range(20)]),
             lambda: [f"sample {i}" for i in chance.integers(0, 1 << 20, cells)]]
    obs = pd.DataFrame({f"column {i}": kinds[i % len(kinds)]() for i in range(COLUMNS)}, index=[f"cell {i}" for i in range(cells)])
    var = pd.DataFrame({"length": chance.integers(0, 9000, GENES)}, index=[f"gene {i}" for i in range(GENES)])
    data = anndata.AnnData(X, obs, var, obsm={"X_pca": chance.random((cells, 50)).astype("f4")})
    tiledbsoma.io.from_anndata(str(path), data, measurement_name="RNA")
    (path / "made").touch()
    return path


class Rounds:
    """What each round measured, by name."""

    def __init__(self, bench, path, cells):
        self.bench, self.path, self.cells, self.found = bench, path, cells, {}

    def note(self, name, value):
        self.found.setdefault(name, []).append(value)

    def python(self, code, *arguments):
        """Seconds and peak bytes of a fresh Python with `code` between its clocks."""
        return self.bench.measured(PRELUDE + code + POSTLUDE, *arguments)

    def mounted(self, what, act):
        """Does something with anndata.zarr of a fresh mount, whose peak is noted."""
        with self.bench.mounted(self.path, "--cache-size", f"{CACHE // MIB}M") as (mountpoint, process):
            result = act(mountpoint / "ms/RNA/anndata.zarr", mountpoint)
            self.note("mount", peak(process.pid))
        return result

    def once(self):
        """One round of everything."""
        with tempfile.TemporaryDirectory(prefix="tiledbfs-bench-", dir=self.bench.folder) as out:
            self.note("to_anndata", self.python(TO_ANNDATA, self.path))
            self.note("write", self.python(WRITE, self.path, f"{out}/theirs.zarr"))
            self.note("cp", self.mounted("cp -r", lambda tree, _: timed(["cp", "-r", tree, f"{out}/ours.zarr"])[0]))
            # What the readers themselves take: files in the page cache.
            self.note("read copy", self.python(READ, f"{out}/ours.zarr"))
            self.note("row of copy", self.python(ROW, f"{out}/ours.zarr"))
            self.note("cp h5ad", self.mounted("cp h5ad", lambda tree, _: timed(["cp", tree.with_suffix(".h5ad"), f"{out}/ours.h5ad"])[0]))
        self.note("read", self.mounted("read_zarr", lambda tree, _: self.python(READ, tree)))
        self.note("row", self.mounted("a row", lambda tree, _: self.python(ROW, tree)))
        self.note("read h5ad", self.mounted("read_h5ad", lambda tree, _: self.python(READ_H5AD, tree.with_suffix(".h5ad"))))
        self.note("backed", self.mounted("a row, backed", lambda tree, _: self.python(BACKED, tree.with_suffix(".h5ad"))))

        def sizes(tree, mountpoint):
            return timed(["find", tree, "-printf", "%s\n"], subprocess.DEVNULL)[0], stats(mountpoint)["chunks_decoded"]
        self.note("find", self.mounted("find", sizes))

    def ratio(self, ours, theirs, place):
        """The median of the ratios of the rounds."""
        return median([one[place] / other[place] for one, other in zip(self.found[ours], self.found[theirs])])

    def report(self):
        """The rows of the table."""
        row, found = self.bench.row, self.found
        mib = lambda value: f"{value / MIB:.0f} MiB"
        of = lambda name, place: median([one[place] for one in found[name]])
        row("to_anndata", f"{seconds(of('to_anndata', 0))}, {mib(of('to_anndata', 1))}")
        copies = median([ours / theirs[0] for ours, theirs in zip(found["cp"], found["write"])])
        row("cp -r of anndata.zarr, against to_anndata and write_zarr", f"{seconds(median(found['cp']))} / {seconds(of('write', 0))}", copies, 0.5)
        row("read_zarr, against to_anndata: time", f"{seconds(of('read', 0))} / {seconds(of('to_anndata', 0))}", self.ratio("read", "to_anndata", 0), 0.7)
        row("  peak", f"{mib(of('read', 1))} / {mib(of('to_anndata', 1))}", self.ratio("read", "to_anndata", 1), 0.7)
        row("  read_zarr of a copy on the disk", seconds(of("read copy", 0)), self.ratio("read copy", "to_anndata", 0))
        row("a row of read_lazy, against to_anndata", f"{seconds(of('row', 0))} / {seconds(of('to_anndata', 0))}", self.ratio("row", "to_anndata", 0), 0.1)
        row("  a row of a copy on the disk", seconds(of("row of copy", 0)), self.ratio("row of copy", "to_anndata", 0))
        row("cp of anndata.h5ad", seconds(median(found["cp h5ad"])))
        row("read_h5ad: time, peak", f"{seconds(of('read h5ad', 0))}, {mib(of('read h5ad', 1))}")
        row("a row of read_h5ad, backed", seconds(of("backed", 0)))
        row("find -printf %s", seconds(of("find", 0)), of("find", 0), 1)
        row("  chunks decoded", "", of("find", 1))
        bound = CACHE + BESIDES + 4 * self.cells
        row("peak of the mount, of cache + 64 MiB + row counts", f"{mib(max(found['mount']))} / {mib(bound)}", max(found["mount"]) / bound, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrays", default="target/bench-arrays")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cells", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=256, help=argparse.SUPPRESS)
    options = parser.parse_args()
    pathlib.Path(options.arrays).mkdir(parents=True, exist_ok=True)
    bench = Bench(options)
    rounds = Rounds(bench, make(options.arrays, options.cells), options.cells)
    for _ in range(options.rounds):
        rounds.once()
    rounds.report()
    sys.exit(any(verdict == "MISSED" for *_, verdict in bench.rows))


if __name__ == "__main__":
    main()
