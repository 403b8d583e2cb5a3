"""A SOMA experiment like CELLxGENE Census, larger than memory needs to be: listed, opened lazily, and read for a thousand rows at random.

    TILEDBFS_BIN=target/release/tiledbfs target/venv-soma/bin/python benches/census.py [--arrays DIR] [--rounds N] [--rows N] [--density D]

100,000 cells by 20,000 genes with a hundred million counts (a million cells: a thousand millions, which take 4 GB of disk). It is made with
tiledbsoma at the first run, a fragment for each 10,000 cells, and kept. The mount has a cache of 256 MiB; each step has a mount and a Python of its
own. tiledbsoma reads the same rows by `axis_query` in the same run. The exit code is 1 if the bound on memory was missed.
"""

import argparse
import pathlib
import subprocess
import sys

from bench import MIB, OWN_PEAK, Bench, median, peak, seconds, stats, timed

GENES, LAYER, FRAGMENT = 20_000, "raw", 10_000
CACHE, BESIDES = 256 * MIB, 64 * MIB
NAME = f"anndata.{LAYER}.zarr"

PRELUDE = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import anndata, h5py, numpy, tiledbsoma
from anndata.experimental import read_lazy
path, cells = sys.argv[1], int(sys.argv[2])
rows = numpy.sort(numpy.random.default_rng(28).choice(cells, 1000, replace=False))
start = time.perf_counter()
"""
POSTLUDE = f"""
print(json.dumps([time.perf_counter() - start, {OWN_PEAK}, found]))
"""
OPEN = "data = read_lazy(path); found = list(data.shape)\n"
OBS = OPEN + "found = [len(data.obs['cell_type_0'].to_numpy()), len(data.obs['donor_2'].to_numpy())]\n"
SUM = "found = [int(X.nnz), float(X.sum(dtype='f8')), float((X @ numpy.arange(X.shape[1])).sum())]\n"
ROWS = "X = read_lazy(path).X[rows].compute()\n" + SUM
BAND = "X = read_lazy(path).X[50_000:51_000].compute()\n" + SUM
BACKED = "X = anndata.read_h5ad(path, backed='r')[rows].X[:]\n" + SUM
QUERY = """
with tiledbsoma.Experiment.open(path) as experiment:
    with experiment.axis_query("RNA", obs_query=tiledbsoma.AxisQuery(coords=(rows.tolist(),))) as query:
        X = query.to_anndata("raw").X
""" + SUM


def obs_table(chance, first, count):
    """Rows of obs as Census has them: identifiers as text, categories, flags, numbers."""
    import numpy as np
    import pyarrow as pa

    columns = {"soma_joinid": pa.array(np.arange(first, first + count))}
    for i in range(4):
        labels = pa.array([f"{['type', 'tissue', 'disease', 'assay'][i]} {label}" for label in range(50 * (i + 1))])
        for name in ("cell_type", "cell_type_ontology"):
            indices = pa.array(chance.integers(0, len(labels), count), pa.int32())
            columns[f"{name}_{i}"] = pa.DictionaryArray.from_arrays(indices, labels.cast(pa.large_string()))
        columns[f"donor_{i}"] = pa.array([f"donor {donor}" for donor in chance.integers(0, 1 << 20, count)], pa.large_string())
        columns[f"count_{i}"] = pa.array(chance.integers(0, 1 << 40, count))
        columns[f"mean_{i}"] = pa.array(chance.random(count))
        columns[f"primary_{i}"] = pa.array(chance.random(count) < 0.5)
    return pa.table(columns)


def counts(chance, first, count, density):
    """Counts of `count` cells from the cell `first` on, in row-major order."""
    import numpy as np
    import pyarrow as pa

    number = int(count * GENES * density * 1.01) + 1000
    at = np.cumsum(chance.geometric(density, number)) - 1
    at = at[: np.searchsorted(at, count * GENES)]
    data = chance.geometric(0.4, len(at)).astype("f4")
    return pa.table({"soma_dim_0": first + at // GENES, "soma_dim_1": at % GENES, "soma_data": data})


def make(folder, cells, density):
    """The experiment, made once."""
    import numpy as np
    import pyarrow as pa
    import tiledbsoma

    path = pathlib.Path(folder) / f"census-{cells}-{density:g}"
    if (path / "made").exists():
        return path
    subprocess.run(["rm", "-rf", path], check=True)
    chance = np.random.default_rng(25)
    with tiledbsoma.Experiment.create(str(path)) as experiment:
        experiment.add_new_dataframe("obs", schema=obs_table(chance, 0, 1).schema, domain=[(0, cells - 1)])
        measurement = experiment.add_new_collection("ms").add_new_collection("RNA", tiledbsoma.Measurement)
        genes = pa.table({"soma_joinid": np.arange(GENES), "feature_id": pa.array([f"ENSG{i:011}" for i in range(GENES)], pa.large_string()),
                          "length": chance.integers(0, 9000, GENES)})
        measurement.add_new_dataframe("var", schema=genes.schema, domain=[(0, GENES - 1)]).write(genes)
        X = measurement.add_new_collection("X").add_new_sparse_ndarray(LAYER, type=pa.float32(), shape=(cells, GENES))
        for first in range(0, cells, FRAGMENT):
            X.write(counts(chance, first, min(FRAGMENT, cells - first), density))
    # Opened anew, in a later millisecond: labels are added to a schema, and of two of one time libtiledb
    # takes either.
    for first in range(0, cells, FRAGMENT):
        with tiledbsoma.DataFrame.open(f"{path}/obs", "w") as obs:
            obs.write(obs_table(chance, first, min(FRAGMENT, cells - first)))
    (path / "made").touch()
    return path


def listed(folder):
    """Seconds of `find` over all files with their lengths."""
    taken, found = timed(["find", folder, "-type", "f", "-printf", "%s\n"])
    lengths = [int(length) for length in found.split()]
    return [taken, 0, [len(lengths), sum(lengths)]]


class Steps:
    """What each step took in each round, and the greatest peak of its mounts."""

    def __init__(self, bench, path, cells):
        self.bench, self.path, self.cells, self.found, self.peaks, self.decoded = bench, path, cells, {}, {}, {}

    def python(self, code, path):
        """Seconds, peak bytes and findings of a fresh Python with `code` between its clocks."""
        return self.bench.measured(PRELUDE + code + POSTLUDE, path, self.cells)

    def step(self, name, act, of=NAME):
        """Does something with a file of a fresh mount."""
        with self.bench.mounted(self.path, "--cache-size", f"{CACHE // MIB}M") as (mountpoint, process):
            self.found.setdefault(name, []).append(act(mountpoint / "ms/RNA" / of))
            self.decoded[name] = stats(mountpoint)["chunks_decoded"]
            self.peaks[name] = max(self.peaks.get(name, 0), peak(process.pid))

    def once(self):
        """One round of everything."""
        def run(code):
            return lambda path: self.python(code, path)
        self.step("listed: find -printf %s", listed)
        self.step("read_lazy", run(OPEN))
        self.step("two columns of obs", run(OBS))
        self.step("a thousand rows at random: read_lazy", run(ROWS))
        self.step("  of anndata.h5ad, backed", run(BACKED), f"anndata.{LAYER}.h5ad")
        self.step("a thousand rows in succession: read_lazy", run(BAND))
        self.found.setdefault("a thousand rows at random: axis_query", []).append(self.python(QUERY, self.path))

    def report(self):
        """A row for each step."""
        bound = CACHE + BESIDES + 4 * self.cells
        for name, rounds in self.found.items():
            time_taken, python_peak = (median([one[place] for one in rounds]) for place in (0, 1))
            figures = f"{seconds(time_taken)}, Python {python_peak / MIB:.0f} MiB, found {rounds[0][2]}"
            if name not in self.peaks:
                self.bench.row(name, figures)
                continue
            figures += f", {self.decoded[name]} chunks decoded, mount {self.peaks[name] / MIB:.0f} of {bound / MIB:.0f} MiB"
            self.bench.row(name, figures, self.peaks[name] / bound, 1)
        same = {tuple(rounds[0][2]) for name, rounds in self.found.items() if name.startswith("a thousand rows at random")}
        self.bench.row("different answers", "", len(same) - 1, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrays", default="target/bench-arrays")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cells", type=int, default=100_000, help="rows of obs")
    parser.add_argument("--density", type=float, default=0.05, help="share of cells of the matrix that have a count")
    parser.add_argument("--size", type=int, default=256, help=argparse.SUPPRESS)
    options = parser.parse_args()
    pathlib.Path(options.arrays).mkdir(parents=True, exist_ok=True)
    steps = Steps(Bench(options), make(options.arrays, options.cells, options.density), options.cells)
    for _ in range(options.rounds):
        steps.once()
    steps.report()
    sys.exit(any(verdict == "MISSED" for *_, verdict in steps.bench.rows))


if __name__ == "__main__":
    main()
