"""What people do with a SOMA experiment, unchanged on `anndata.zarr/` and `anndata.h5ad` of a mount: scanpy's usual pipeline against the same on
`to_anndata`, and R's rhdf5 from Debian, if it is there.

    python3 soma_readers.py

Runs where requirements-scanpy.txt is installed. The last line is `N passed, N failed, N skipped`.
"""

import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import scanpy
import scipy.sparse as sp
import tiledbsoma
import tiledbsoma.io

from mount import mounted
from plain_tools import Checks

TYPES, CELLS, GENES = ["B", "NK", "T"], 400, 900


def make(uri):
    """Cells of three types, each of which has genes of its own."""
    chance = np.random.default_rng(31)
    kinds = chance.integers(0, len(TYPES), CELLS)
    rates = chance.gamma(0.3, 1.0, (len(TYPES), GENES)).astype("f8")
    counts = sp.csr_matrix(chance.poisson(rates[kinds]).astype("f4"))
    obs = pd.DataFrame({"cell_type": pd.Categorical.from_codes(kinds, TYPES), "total": counts.sum(axis=1).A1}, index=[f"cell {i}" for i in range(CELLS)])
    var = pd.DataFrame({"mt": chance.random(GENES) < 0.02}, index=[f"gene {i}" for i in range(GENES)])
    tiledbsoma.io.from_anndata(uri, anndata.AnnData(counts, obs, var), measurement_name="RNA")


def pipeline(cells):
    """Scanpy's usual one."""
    scanpy.pp.calculate_qc_metrics(cells, qc_vars=["mt"], inplace=True)
    scanpy.pp.filter_cells(cells, min_genes=50)
    scanpy.pp.filter_genes(cells, min_cells=3)
    scanpy.pp.normalize_total(cells)
    scanpy.pp.log1p(cells)
    scanpy.pp.highly_variable_genes(cells, n_top_genes=300)
    scanpy.pp.pca(cells)
    scanpy.pp.neighbors(cells)
    scanpy.tl.umap(cells)
    scanpy.tl.rank_genes_groups(cells, "cell_type", method="t-test")
    return cells


def raw(values):
    """Something that can be compared, of an element of an AnnData."""
    return values.toarray() if sp.issparse(values) else np.asarray(values)


def compare(checks, what, got, want):
    """All that the pipeline makes."""
    checks.equal(f"{what}: shape", got.shape, want.shape)
    checks.equal(f"{what}: X", np.array_equal(raw(got.X), raw(want.X)), True)
    for part in ("obs", "var"):
        own, other = getattr(got, part), getattr(want, part)
        checks.equal(f"{what}: columns of {part}", sorted(own), sorted(other))
        checks.equal(f"{what}: names of {part}", list(own.index), list(other.index))
        different = [name for name in other if list(own[name]) != list(other[name]) and not np.allclose(own[name], other[name], equal_nan=True)]
        checks.equal(f"{what}: {part}", different, [])
    for part in ("obsm", "varm", "obsp"):
        own, other = getattr(got, part), getattr(want, part)
        checks.equal(f"{what}: {part}", (sorted(own), [name for name in other if not np.allclose(raw(own[name]), raw(other[name]), rtol=1e-4, atol=1e-4)]), (sorted(other), []))
    names = [one.uns["rank_genes_groups"]["names"].tolist() for one in (got, want)]
    checks.equal(f"{what}: genes of each type", names[0], names[1])


def in_scanpy(checks, uri, measurement):
    """The pipeline on the mount."""
    with tiledbsoma.Experiment.open(uri) as experiment:
        want = pipeline(tiledbsoma.io.to_anndata(experiment, "RNA"))
    checks.equal("what the pipeline finds", len(set(want.uns["rank_genes_groups"]["names"].tolist()[0])), len(TYPES))
    compare(checks, "anndata.zarr", pipeline(anndata.read_zarr(measurement / "anndata.zarr")), want)
    compare(checks, "anndata.h5ad", pipeline(anndata.read_h5ad(measurement / "anndata.h5ad")), want)


def in_r(checks, file):
    """Every data set by rhdf5 against h5py. Returns how many checks were skipped."""
    asked = ["Rscript", "--vanilla", "-e", "library(rhdf5)"]
    if shutil.which("Rscript") is None or subprocess.run(asked, capture_output=True).returncode:
        print("skip R, rhdf5: r-bioc-rhdf5 is not installed")
        return 1
    script = Path(__file__).with_name("read_hdf5.R")
    said = subprocess.run(["Rscript", "--vanilla", str(script), str(file)], capture_output=True, text=True, check=True, timeout=300).stdout
    got = {}
    for line in said.splitlines():
        word, _, rest = line.partition(" ")
        if word == "data":
            values = got[bytes.fromhex(rest).decode()] = []
        else:
            values.append(line)
    with h5py.File(file) as opened:
        want = {}
        opened.visititems(lambda name, node: want.update({f"/{name}": node}) if isinstance(node, h5py.Dataset) else None)
        checks.equal("R, rhdf5: names", sorted(got), sorted(want))
        for name, node in want.items():
            if h5py.check_string_dtype(node.dtype):
                checks.equal(f"R, rhdf5: {name}", [bytes.fromhex(line[1:]).decode() for line in got[name]], list(node.asstr()[:].ravel()))
            elif node.dtype == bool:
                checks.equal(f"R, rhdf5: {name}", got[name], [str(value).upper() for value in node[:].ravel()])
            else:
                # R has the first axis last.
                checks.equal(f"R, rhdf5: {name}", np.array_equal(np.array(got[name], "f8"), node[:].ravel().astype("f8")), True)
    return 0


def main():
    """Makes an experiment and reads it."""
    checks = Checks()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="tiledbfs-soma-readers-") as folder:
        uri = f"{folder}/experiment"
        make(uri)
        with mounted(uri) as point:
            in_scanpy(checks, uri, point / "ms/RNA")
            skipped = in_r(checks, point / "ms/RNA/anndata.h5ad")
    print(f"{checks.passed} passed, {checks.failed} failed, {skipped} skipped")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
