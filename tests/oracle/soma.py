"""`anndata.zarr/` and `anndata.h5ad` of experiments that tiledbsoma wrote, through a mount: every file against a plain model of what tiledbsoma
reads, every reader against the model and against `to_anndata`.

    python3 soma.py [--seed N] [--count N]

Runs where requirements-soma.txt is installed. The last line is `N passed, N failed`.
"""

import argparse
import contextlib
import doctest
import errno
import hashlib
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest.mock
import warnings
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse as sp
import tiledb
import tiledbsoma
import tiledbsoma.io
import zarr
from anndata.experimental import read_lazy

from documented import described
from meanwhile import meanwhile, unless_stale
from mount import ROOT, binary, errors, mounted
from plain_tools import Checks
from proxy import Proxy
from soma_lives import CREATED, INGESTED, Life, quietly
from soma_model import Model, document, files, in_hdf5
from stores import Rclone, clean_environment

NAME, H5AD = "anndata.zarr", "anndata.h5ad"


@contextlib.contextmanager
def tried(checks, what):
    """One check more: that nothing in the block fails altogether."""
    error = None
    try:
        yield
    except Exception as raised:  # of any reader
        error = repr(raised)
    checks.equal(f"{what}: runs", error, None)


# --- files

def walk(root):
    """The paths of all files below a directory. A directory that cannot be read is an error."""
    def fail(error):
        raise error
    return {os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root, onerror=fail) for name in names}


def pieces(path, data, chance):
    """Whether a file has these bytes and this length, read in whole and in pieces at random."""
    if path.stat().st_size != len(data) or path.read_bytes() != data:
        return False
    with open(path, "rb", buffering=0) as file:
        for _ in range(2):
            at, length = int(chance.integers(len(data) + 2)), int(chance.integers(1, 200))
            if os.pread(file.fileno(), length, at) != data[at : at + length]:
                return False
    return True


def wrong_files(root, path, node, chance):
    """What is wrong with the files of one node, and the names that it has."""
    try:
        got = json.loads((root / path / "zarr.json").read_text())
        want = document(node)
        chunk = ()
        if node.values is not None:
            for codec in got["codecs"]:
                if codec.get("configuration") == {}:
                    del codec["configuration"]
            chunk = tuple(got["chunk_grid"]["configuration"]["chunk_shape"])
            free = len(chunk) == node.values.ndim and all(1 <= side <= max(1, length) for side, length in zip(chunk, node.values.shape))
            if node.chunk is None and free:
                want["chunk_grid"] = got["chunk_grid"]
    except (OSError, ValueError, KeyError) as error:
        return [f"zarr.json: {error!r}"], []
    if got != want:
        return [f"zarr.json: got {part(got, want)}, expected {part(want, got)}"], []
    if node.values is None:
        return [], ["zarr.json"]
    wrong, names = [], ["zarr.json"]
    for name, data in files(node, chunk):
        names.append(name)
        try:
            if not pieces(root / path / name, data, chance):
                wrong.append(f"{name}: got {(root / path / name).read_bytes()[:40]}, expected {data[:40]} ({len(data)} bytes)")
        except OSError as error:
            wrong.append(f"{name}: {error!r}")
    return wrong, names


def part(one, other):
    """What one document has and another has not."""
    return {key: value for key, value in one.items() if other.get(key, key) != value}


def compare_files(checks, what, root, model, chance):
    """Every file of the tree, and no others."""
    wanted = set()
    for path, node in model.nodes.items():
        wrong, names = wrong_files(root, path, node, chance)
        checks.equal(f"{what}: {path or '/'}", wrong, [])
        wanted |= {os.path.join(path, name) for name in names}
    checks.equal(f"{what}: names", sorted(walk(root) ^ wanted), [])


def compare_h5ad(checks, what, path, model, chance):
    """Every group and data set of the file, and no others; its bytes in pieces at random."""
    # Before all of it, after which the kernel has every page.
    size, ranges = path.stat().st_size, []
    with open(path, "rb", buffering=0) as file:
        for length in chance.integers(1, 20_000, 12):
            at = int(chance.integers(size))
            ranges.append((at, int(length), os.pread(file.fileno(), int(length), at)))
    whole = path.read_bytes()
    checks.equal(f"{what}: length", size, len(whole))
    checks.equal(f"{what}: ranges", [(at, length) for at, length, data in ranges if data != whole[at : at + length]], [])
    with h5py.File(path) as file:
        names = set()
        file.visit(names.add)
        checks.equal(f"{what}: names", sorted(names ^ {name for name in model.nodes if name}), [])
        for name, node in model.nodes.items():
            checks.equal(f"{what}: {name or '/'}", wrong_object(file.get(name or "/"), node, whole), None)


def wrong_object(got, node, whole):
    """What is wrong with a group or a data set of HDF5; None if nothing is."""
    if got is None:
        return "missing"
    told = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in got.attrs.items()}
    if told != node.attributes:
        return f"attributes: got {part(told, node.attributes)}, expected {part(node.attributes, told)}"
    if len(got.attrs) != len(told):
        return f"{len(got.attrs)} attributes are counted, of {len(told)}"
    if node.values is None or isinstance(got, h5py.Group):
        return None if node.values is None and isinstance(got, h5py.Group) else f"it is {got}"
    if got.chunks is not None or got.shape != node.values.shape:
        return f"chunks {got.chunks}, shape {got.shape}, expected {node.values.shape}"
    want = node.values
    if want.dtype == object:
        texts = [text.encode() for text in want.ravel()]
        want = np.array(texts, f"S{max(1, *map(len, texts), 1)}")
    kind = h5py.check_string_dtype(got.dtype)
    if (got.dtype, kind and kind.encoding) != (want.dtype, "utf-8" if want.dtype.kind == "S" else None):
        return f"type {got.dtype}, {kind}, expected {want.dtype}"
    at = got.id.get_offset()
    stored = whole[at : at + want.nbytes] if at is not None else b""
    read = got.asstr()[()] if kind else got[()]
    if stored != want.tobytes() or raw(np.asarray(read, node.values.dtype)) != raw(node.values):
        return f"values: {stored[:40]} read as {str(read)[:40]}, expected {want.tobytes()[:40]}"
    return None


# --- readers

def plain(values):
    """A column as a list, with None for what is null."""
    return [None if pd.isna(value) else value for value in pd.Series(values).astype(object)]


def column_of(model, path):
    """A column of the model as a list."""
    node = model.nodes[path]
    if node.values is not None:
        return plain(node.values)
    if node.attributes["encoding-type"] == "categorical":
        labels = model.nodes[f"{path}/categories"].values.tolist()
        return plain(pd.Series([None if code < 0 else labels[code] for code in model.nodes[f"{path}/codes"].values], dtype=object))
    values = model.nodes[f"{path}/values"].values.astype(object)
    values[model.nodes[f"{path}/mask"].values] = None
    return plain(values)


def compare_frame(checks, what, frame, model, path, lazy=False):
    """Index and columns of a frame. read_lazy leaves out labels that no row has."""
    told = model.nodes[path].attributes
    key, names = told["_index"], told["column-order"]
    checks.equal(f"{what}: {path} has columns and index", (list(frame.columns), frame.index.name), (names, None if key == "_index" else key))
    checks.equal(f"{what}: index of {path}", plain(frame.index), column_of(model, f"{path}/{key}"))
    for name in names:
        at = f"{path}/{name}"
        checks.equal(f"{what}: {at}", plain(frame[name]), column_of(model, at))
        node = model.nodes[at]
        if node.attributes["encoding-type"] == "categorical" and not lazy:
            got, labels = frame[name].cat, model.nodes[f"{at}/categories"].values.tolist()
            checks.equal(f"{what}: categories of {at}", (got.categories.tolist(), got.ordered), (labels, node.attributes["ordered"]))


def compressed(model, path):
    """A matrix of the model as scipy has it."""
    data, indices, indptr = (model.nodes[f"{path}/{name}"].values for name in ("data", "indices", "indptr"))
    return sp.csr_matrix((data, indices, indptr), shape=model.nodes[path].attributes["shape"])


def raw(matrix):
    """What two equal matrices have the same: bytes, since some are NaN."""
    if sp.issparse(matrix):
        matrix = matrix.tocsr()
        return matrix.shape, matrix.dtype.str, matrix.indptr.tolist(), matrix.indices.tolist(), matrix.data.tobytes()
    matrix = np.asarray(matrix)
    return matrix.shape, matrix.dtype.str, matrix.tolist() if matrix.dtype.hasobject else matrix.tobytes()


def matrix_of(model, path):
    node = model.nodes[path]
    return compressed(model, path) if node.values is None else node.values


def parts(model, under):
    """The names right below a node."""
    return [path[len(under) + 1 :] for path in model.nodes if path.startswith(f"{under}/") and "/" not in path[len(under) + 1 :]]


def compare_anndata(checks, what, got, model, lazy=False):
    """What a reader of AnnData has of a tree, element by element."""
    compare_frame(checks, what, got.obs, model, "obs", lazy)
    compare_frame(checks, what, got.var, model, "var", lazy)
    checks.equal(f"{what}: X", None if got.X is None else raw(got.X), raw(matrix_of(model, "X")) if "X" in model.nodes else None)
    for name in ("layers", "obsm", "varm", "obsp", "varp"):
        held = getattr(got, name)
        want = {key: raw(matrix_of(model, f"{name}/{key}")) for key in parts(model, name)}
        checks.equal(f"{what}: {name}", {key: raw(value) for key, value in held.items()}, want)
    compare_uns(checks, what, got.uns, model, "uns", lazy)


def compare_uns(checks, what, got, model, path, lazy):
    checks.equal(f"{what}: names in {path}", sorted(got), sorted(parts(model, path)))
    for key, value in got.items():
        at = f"{path}/{key}"
        node = model.nodes.get(at)
        if node is None:
            continue
        kind = node.attributes["encoding-type"]
        if kind == "dict":
            compare_uns(checks, what, value, model, at, lazy)
        elif kind == "dataframe":
            compare_frame(checks, what, value, model, at, lazy)
        elif kind in ("string", "numeric-scalar"):
            checks.equal(f"{what}: {at}", (type(value) is str, value), (kind == "string", node.values.item()))
        else:
            checks.equal(f"{what}: {at}", np.asarray(value, node.values.dtype).tolist(), node.values.tolist())


def readers(checks, what, root, model, chance):
    """zarr, read_zarr and read_lazy."""
    group = zarr.open_group(root, mode="r")
    for path, node in model.nodes.items():
        if node.values is not None:
            array = group[path]
            checks.equal(f"{what}: zarr: {path}", (array.shape, raw(np.asarray(array[...], node.values.dtype))), (node.values.shape, raw(node.values)))
    compare_anndata(checks, f"{what}: read_zarr", anndata.read_zarr(root), model)
    lazy = read_lazy(root)
    compare_anndata(checks, f"{what}: read_lazy", lazy.to_memory(), model, lazy=True)
    if "X" in model.nodes and len(model.rows):
        rows = np.unique(chance.integers(0, len(model.rows), 3))
        checks.equal(f"{what}: rows of read_lazy", raw(lazy.X[rows].compute()), raw(matrix_of(model, "X")[rows]))


def readers_of_h5ad(checks, what, path, model, chance):
    """read_h5ad, in memory and backed, and read_lazy."""
    compare_anndata(checks, f"{what}: read_h5ad", anndata.read_h5ad(path), model)
    rows = np.unique(chance.integers(0, len(model.rows), 3)) if len(model.rows) else None
    if "X" in model.nodes:
        backed = anndata.read_h5ad(path, backed="r")
        if rows is not None:
            checks.equal(f"{what}: rows of backed", raw(backed[rows].X), raw(matrix_of(model, "X")[rows]))
        compare_anndata(checks, f"{what}: backed", backed.to_memory(), model)
        backed.file.close()
    # With a path anndata makes it backed, which needs X.
    with h5py.File(path) as file:
        lazy = read_lazy(path if "X" in model.nodes else file)
        if "X" in model.nodes and rows is not None:
            checks.equal(f"{what}: rows of read_lazy", raw(lazy.X[rows].compute()), raw(matrix_of(model, "X")[rows]))
        compare_anndata(checks, f"{what}: read_lazy", lazy.to_memory(), model, lazy=True)
        lazy.file.close()


def against_to_anndata(checks, what, root, experiment, name):
    """What tiledbsoma makes of a measurement whose joinids are 0, 1, ..."""
    layers = list(experiment.ms[name].X)
    want = tiledbsoma.io.to_anndata(experiment, name, extra_X_layer_names=[layer for layer in layers if layer != "data"] if "data" in layers else None)
    got = anndata.read_zarr(root)
    checks.equal(f"{what}: to_anndata: X", raw(got.X), raw(want.X))
    for part_of in ("layers", "obsm", "varm", "obsp", "varp"):
        one, other = getattr(got, part_of), getattr(want, part_of)
        checks.equal(f"{what}: to_anndata: names in {part_of}", sorted(one), sorted(other))
        for key in other:
            # Zeros that to_anndata fills in make 0.0 of -0.0.
            exact = np.array_equal(one[key], other[key], equal_nan=True) if part_of in ("obsm", "varm") else raw(one[key]) == raw(other[key])
            checks.equal(f"{what}: to_anndata: {part_of}/{key}", exact, True)
    for axis in ("obs", "var"):
        one, other = getattr(got, axis), getattr(want, axis)
        named = lambda frame: (list(frame.columns), frame.index.name, frame.index.tolist())
        checks.equal(f"{what}: to_anndata: {axis}", named(one), named(other))
        for key in one.columns:
            checks.equal(f"{what}: to_anndata: {axis}/{key}", plain(one[key]), plain(other[key]))


# --- experiments

def compare_experiment(checks, what, point, uri, chance, when=None, read=True):
    """All measurements of an experiment at a time."""
    with tiledbsoma.Experiment.open(uri, tiledb_timestamp=when) as experiment:
        for name in experiment.ms:
            model, of = Model(experiment, name), f"{what}, {name}"
            root = point / "ms" / name / NAME
            with tried(checks, of):
                compare_tree(checks, of, root, model, chance, read)
                if model.to_anndata_is_right and "uns" in experiment.ms[name] and "number" in experiment.ms[name]["uns"].metadata:
                    against_to_anndata(checks, of, root, experiment, name)


def compare_tree(checks, of, root, model, chance, read):
    """The files of one measurement, what is told of them, and what readers make of them."""
    compare_files(checks, of, root, model, chance)
    file, path = in_hdf5(model), root.parent / H5AD
    compare_h5ad(checks, f"{of}: h5ad", path, file, chance)
    for name, own in ((NAME, model), (H5AD, file)):
        told = json.loads((root.parent / "group.json").read_text())["exports"][name]
        checks.equal(f"{of}: {name} exists", (told["exists"], told["reason"]), (True, None))
        checks.equal(f"{of}: {name}: left out", sorted(one["element"] for one in told["left_out"]), sorted(own.left_out))
        checks.equal(f"{of}: {name}: reasons", [one for one in told["left_out"] if len(one["reason"]) < 5], [])
    if read:
        readers(checks, of, root, model, chance)
        readers_of_h5ad(checks, f"{of}: h5ad", path, file, chance)


def live(checks, folder, seed, count):
    """Random lives: at the end, and at one time before. Gives one of those that were ingested, with a sparse X."""
    chance = np.random.default_rng(seed)
    lives = [Life(folder, f"life {i}", seed).live((INGESTED, CREATED)[i % 2], (4, 2)[i % 2]) for i in range(count)]
    with mounted(folder) as point:
        for life in lives:
            compare_experiment(checks, f"{life.name} ({', '.join(life.done)})", point / life.name, life.uri, chance)
        checks.equal("errors of the mount", errors(point), [])
    for life in lives:
        number = int(chance.integers(len(life.times) - 1))
        with mounted(life.uri, "--at", str(life.times[number])) as point:
            compare_experiment(checks, f"{life.name} after {life.done[number]}", point, life.uri, chance, life.times[number], read=False)
            checks.equal(f"errors of {life.name} then", errors(point), [])
    return next(life for life in lives[::2] if life.X != "dense")


def bands(checks, folder):
    """A matrix of several bands, tiles and chunks, in overlapping fragments, and rows of it at random."""
    uri, chance, (n, m) = f"{folder}/bands", np.random.default_rng(6), (6_000, 3_000)
    X = sp.random(n, m, 0.07, format="csr", rng=chance, dtype="f4")
    names = lambda of, count: pd.DataFrame(index=[f"{of} {i}" for i in range(count)])
    tiledbsoma.io.from_anndata(uri, anndata.AnnData(X, names("cell", n), names("gene", m)), measurement_name="RNA")
    at = np.unique(chance.integers(0, (n, m), (30_000, 2)), axis=0)
    with tiledbsoma.SparseNDArray.open(f"{uri}/ms/RNA/X/data", "w") as array:
        array.write(pa.table({"soma_dim_0": at[:, 0], "soma_dim_1": at[:, 1], "soma_data": chance.random(len(at)).astype("f4")}))
    with mounted(uri) as point, tiledbsoma.Experiment.open(uri) as experiment:
        root, model = point / "ms/RNA" / NAME, Model(experiment, "RNA")
        lazy = read_lazy(root)
        for _ in range(5):
            rows = np.unique(chance.integers(0, n, 20))
            checks.equal("rows of several bands", raw(lazy.X[rows].compute()), raw(compressed(model, "X")[rows]))
        compare_files(checks, "several bands", root, model, chance)
        compare_h5ad(checks, "several bands: h5ad", root.parent / H5AD, in_hdf5(model), chance)
    with tiledbsoma.SparseNDArray.open(f"{uri}/ms/RNA/X/data", "d") as array:
        array.delete_cells((slice(2_000, 2_100), slice(5, 2_900)))
    with mounted(uri) as point, tiledbsoma.Experiment.open(uri) as experiment:
        compare_files(checks, "several bands, of which cells are deleted", point / "ms/RNA" / NAME, Model(experiment, "RNA"), chance)


@contextlib.contextmanager
def without_privileges(folder):
    """Lets mounts be of a program that may not read what its user may not, as root's may."""
    program, before = Path(folder, "unprivileged"), os.environ.get("TILEDBFS_BIN")
    program.write_text(f'#!/bin/sh\nexec setpriv --bounding-set=-dac_override,-dac_read_search {binary()} "$@"\n')
    program.chmod(0o755)
    os.environ["TILEDBFS_BIN"] = str(program)
    try:
        yield
    finally:
        os.environ.pop("TILEDBFS_BIN")
        os.environ.update({} if before is None else {"TILEDBFS_BIN": before})


def unreadable(checks, life, folder):
    """What may be anything, because it cannot be looked into, and what is damaged: it is shown and cannot be read. Nothing is left out."""
    with mounted(life.uri) as point:
        whole = outcomes(point / "ms/RNA" / NAME)
    cases = {"ms/RNA/X/data": "X/", "ms/RNA/X": "", "obs": "", "ms/RNA/var": "", "ms/RNA/X/data/__fragments": "X/", "obs/__commits": ""}
    # No state tells that files may be read again.
    metadata = next(path for path in Path(life.uri, "ms/RNA/X/data/__meta").iterdir() if path.suffix != ".vac")
    cases[str(metadata.relative_to(life.uri))] = "X/"
    for directory, under in cases.items():
        copy = Path(folder, "unreadable")
        shutil.copytree(life.uri, copy)
        (copy / directory).chmod(0)
        with without_privileges(folder) if os.geteuid() == 0 else contextlib.nullcontext(), mounted(copy) as point:
            measurement = point / "ms/RNA"
            got = {path: outcome(measurement / NAME / path) for path in whole}
            checks.equal(f"{directory} cannot be read: its files", sorted({got[path] for path in whole if path.startswith(under)} - {"EACCES"}, key=str), [])
            checks.equal(f"{directory} cannot be read: other files", [path for path in whole if not path.startswith(under) and got[path] != whole[path]], [])
            checks.equal(f"{directory} cannot be read: h5ad", outcome(measurement / H5AD), "EACCES")
            checks.equal(f"{directory} cannot be read: is listed", NAME in os.listdir(measurement), True)
            (copy / directory).chmod(0o755)
            time.sleep(1)
            again = {path: outcome(measurement / NAME / path) for path in whole}
            checks.equal(f"{directory} can be read again: what is not as it was", [path for path in whole if again[path] != whole[path]], [])
        shutil.rmtree(copy)


def undecided(checks, life, folder):
    """What decides whether there is an AnnData is damaged, or something else is in its place: it is an error, and not absent."""
    def empty(directory):
        for path in directory.rglob("*"):
            if path.is_file():
                path.write_bytes(b"")

    def replace(directory):
        shutil.rmtree(directory)
        directory.write_bytes(b"")

    for directory in ("__group", "ms/__group", "ms/RNA/__group", "obs/__schema", "ms/RNA/var/__schema"):
        for do in (empty, replace, shutil.rmtree) if directory.endswith("__schema") else (empty, replace):
            copy = Path(folder, "undecided")
            shutil.copytree(life.uri, copy / "life")
            do(copy / "life" / directory)
            with mounted(copy) as above:
                point = above / "life"
                names = [point / "ms/RNA" / name for name in (f"{NAME}/zarr.json", H5AD)]
                checks.equal(f"{directory}, {do.__name__}: AnnData", [outcome(name) for name in names], ["EIO"] * 2)
                there = "ms" if directory.startswith("obs") else "obs"
                checks.equal(f"{directory}, {do.__name__}: listed", directory == "__group" or there in os.listdir(point), True)
            shutil.rmtree(copy)


def private(checks, life, folder):
    """With `allow_other`, group.json is for those who may read all that it tells of."""
    copy = Path(folder, "private")
    shutil.copytree(life.uri, copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    Path(folder).chmod(0o755)
    for member, mode in ((None, 0o444), ("obs/__fragments", 0o400), ("ms/RNA/X/data/__schema", 0o400), ("ms/RNA/__meta", 0o400)):
        if member:
            (copy / member).chmod(0o700)
        with mounted(copy, "-o", "allow_other") as point:
            checks.equal(f"{member} is private: group.json", oct((point / "ms/RNA/group.json").stat().st_mode & 0o777), oct(mode))
            checks.equal(f"{member} is private: of the experiment", oct((point / "group.json").stat().st_mode & 0o777), oct(0o444))
        if member:
            (copy / member).chmod(0o755)
    shutil.rmtree(copy)


def another_layer(checks, folder, life):
    """Other layers as X, by name."""
    with mounted(folder) as point, tiledbsoma.Experiment.open(life.uri) as experiment:
        measurement = point / life.name / "ms/RNA"
        model, chance = Model(experiment, "RNA", "spliced"), np.random.default_rng(1)
        compare_files(checks, "spliced as X", measurement / "anndata.spliced.zarr", model, chance)
        compare_h5ad(checks, "spliced as X: h5ad", measurement / "anndata.spliced.h5ad", in_hdf5(model), chance)
        checks.equal("what is listed: anndata", [name for name in os.listdir(measurement) if name.startswith("anndata")], [NAME])
        checks.equal("a layer that is none", [(measurement / f"anndata.none.{of}").exists() for of in ("zarr", "h5ad")], [False, False])
    with mounted(f"{life.uri}/ms/RNA") as point:
        checks.equal("without the experiment", [(point / name).exists() for name in (NAME, H5AD)], [False, False])
        told = json.loads((point / "group.json").read_text())["exports"]
        checks.equal("without the experiment: group.json", [told[name]["exists"] for name in (NAME, H5AD)], [False, False])


def copied(checks, life, folder):
    """`tiledbfs cp` without a mount."""
    out = Path(folder, "out.zarr")
    subprocess.run([binary(), "cp", "-r", f"{life.uri}/ms/RNA/{NAME}", out], check=True, capture_output=True, timeout=60)
    file, of = Path(folder, "out.h5ad"), f"{life.uri}/ms/RNA/{H5AD}"
    subprocess.run([binary(), "cp", of, file], check=True, capture_output=True, timeout=60)
    seen = subprocess.run([binary(), "cat", of], check=True, capture_output=True, timeout=60).stdout
    checks.equal("cp and cat of the h5ad", file.read_bytes() == seen, True)
    with tiledbsoma.Experiment.open(life.uri) as experiment:
        model, chance = Model(experiment, "RNA"), np.random.default_rng(2)
        compare_files(checks, "cp", out, model, chance)
        compare_h5ad(checks, "cp: h5ad", file, in_hdf5(model), chance)


def copy(of, to, *options, largest=None):
    """The exit code of `tiledbfs cp`, and what it said. A signal ends it where a file would be larger than `largest` bytes."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    command = [binary(), "cp", *options, of, to]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=None if largest is None else limit)
    return done.returncode, done.stdout + done.stderr


def interrupted(checks, life, folder):
    """A copy that is ended in the middle of a file has whole files alone; the next has all of them, and of a directory those of the first too."""
    measurement = f"{life.uri}/ms/RNA"
    out, whole = Path(folder, "interrupted.zarr"), Path(folder, "whole.zarr")
    checks.equal("cp -r", copy(f"{measurement}/{NAME}", whole, "-r")[0], 0)
    lengths = {path: (whole / path).stat().st_size for path in walk(whole)}
    # What was written less than a second before a copy is copied again.
    time.sleep(1)
    code, _ = copy(f"{measurement}/{NAME}", out, "-r", largest=max(lengths.values()) - 1)
    first = {path: (out / path).stat() for path in walk(out) & lengths.keys()}
    checks.equal("cp -r, interrupted: by the signal, with some files", (code, 0 < len(first) < len(lengths)), (-signal.SIGXFSZ, True))
    checks.equal("cp -r, interrupted: files that are not whole", [path for path, own in first.items() if own.st_size != lengths[path]], [])
    code, said = copy(f"{measurement}/{NAME}", out, "-r", "--skip-existing")
    checks.equal("cp -r, continued", (code, f" {len(first)} skipped" in said), (0, True))
    checks.equal("cp -r, continued: files of before", [path for path, own in first.items() if (out / path).stat().st_ino != own.st_ino], [])
    checks.equal("cp -r, continued: all files", outcomes(out) == outcomes(whole), True)
    file, want = Path(folder, "interrupted.h5ad"), Path(folder, "whole.h5ad")
    checks.equal("cp of the h5ad", copy(f"{measurement}/{H5AD}", want)[0], 0)
    checks.equal("cp of the h5ad, interrupted", (copy(f"{measurement}/{H5AD}", file, largest=want.stat().st_size // 2)[0], file.exists()), (-signal.SIGXFSZ, False))
    checks.equal("cp of the h5ad again", (copy(f"{measurement}/{H5AD}", file)[0], file.read_bytes() == want.read_bytes()), (0, True))
    checks.equal("what interrupted copies leave", [name for name in os.listdir(folder) if name.startswith(".tiledbfs")], [])


def stopped(source, file, by):
    """Starts `tiledbfs cp` of the h5ad, and ends it with a signal when it can be continued. Its exit code, and how many bytes it has."""
    saved = file.with_name(".tiledbfs-part-saved")
    with subprocess.Popen([binary(), "cp", source, f"ms/RNA/{H5AD}", file], env=clean_environment(), stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 60
        while not saved.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(by)
    return process.returncode, int(saved.read_text().split()[1])


def continued(checks, folder):
    """A copy of the h5ad of a store that was killed, and one that was interrupted, goes on where it was; if the source has changed, it begins anew."""
    uri, file, (n, m) = f"{folder}/slow/experiment", Path(folder, "continued/out.h5ad"), (4_000, 1_000)
    file.parent.mkdir(), Path(uri).parent.mkdir()
    names = lambda of, count: pd.DataFrame(index=[f"{of} {i}" for i in range(count)])
    data = anndata.AnnData(obs=names("cell", n), var=names("gene", 3), obsm={"long": np.random.default_rng(9).random((n, m))})
    tiles = {"tiledb": {"create": {"dims": {"soma_dim_0": {"tile": 100}}}}}
    tiledbsoma.io.from_anndata(uri, data, measurement_name="RNA", platform_config=tiles)

    def seen():
        return subprocess.run([binary(), "cat", f"{uri}/ms/RNA/{H5AD}"], check=True, capture_output=True, timeout=60).stdout

    with Rclone(Path(uri).parent) as store, Proxy(store.host) as proxy:
        source = f"http://{proxy.host}/experiment"

        def finish():
            """Copies what is left. How many bytes the store sent for it."""
            proxy.total_rate, before = None, proxy.snapshot()
            done = subprocess.run([binary(), "cp", source, f"ms/RNA/{H5AD}", file], env=clean_environment(), capture_output=True, timeout=60)
            checks.equal("cp of the h5ad, continued", (done.returncode, os.listdir(file.parent), file.read_bytes() == seen()), (0, [file.name], True))
            file.unlink()
            return (proxy.snapshot() - before).bytes

        whole, size = finish(), len(seen())
        checks.equal("cp of the h5ad: bytes of the store", whole > 0.7 * size, True)
        for by, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
            proxy.total_rate = 6 << 20
            got, there = stopped(source, file, by)
            checks.equal(f"cp of the h5ad, ended by {by.name}", (got, there > 0, file.exists()), (code, True, False))
            # The beginning, the text and the tiles at the place are read again.
            left = whole * (1 - there / size) + (3 << 20)
            checks.equal(f"cp of the h5ad, continued after {by.name}: bytes of the store", finish() < left, True)
        proxy.total_rate = 6 << 20
        stopped(source, file, signal.SIGKILL)
        with tiledbsoma.DataFrame.open(f"{uri}/obs") as frame:
            row = frame.read().concat().slice(0, 1)
        with tiledbsoma.DataFrame.open(f"{uri}/obs", "w") as frame:
            frame.write(row.set_column(row.schema.get_field_index("obs_id"), "obs_id", pa.array(["another"], pa.large_string())))
        checks.equal("cp of the h5ad, which has changed: bytes of the store", finish() >= whole, True)


def in_a_store(checks, life):
    """The same from WebDAV."""
    with Rclone(Path(life.uri).parent) as store, mounted(f"http://{store.host}/", env=clean_environment()) as point:
        compare_experiment(checks, "in a store", point / life.name, life.uri, np.random.default_rng(3), read=False)


def of_zarrita(node):
    """What zarrita.mjs says of a node of the model."""
    values, said = node.values, {"attributes": node.attributes}
    if values is None:
        return said
    if values.dtype == object:
        said |= {"type": "string", "shape": list(values.shape)}
        return said | ({"values": values.ravel().tolist()} if values.ndim else {"value": values.item()})
    said |= {"type": values.dtype.name, "shape": list(values.shape)}
    if values.ndim == 0:
        return said | {"value": str(values).lower()}
    return said | {"sha256": hashlib.sha256(np.ascontiguousarray(values)).hexdigest()}


def in_zarrita(checks, life):
    """Zarrita in Node, by which viewers in browsers read. It has no dates, and takes names for parts of URLs."""
    modules = os.environ.get("TILEDBFS_ZARRITA")
    if not modules:
        print("zarrita: not run, TILEDBFS_ZARRITA is not set")
        return
    with mounted(life.uri) as point, tiledbsoma.Experiment.open(life.uri) as experiment:
        nodes = Model(experiment, "RNA").nodes
        nodes = {path: node for path, node in nodes.items() if not set("%?#") & set(path) and (node.values is None or node.values.dtype.kind != "M")}
        script = Path(__file__).with_name("zarrita.mjs")
        done = subprocess.run(["node", script, modules, point / "ms/RNA" / NAME, *nodes], capture_output=True, text=True, timeout=60)
    checks.equal("zarrita", (done.returncode, done.stderr, len(nodes) > 20), (0, "", True))
    for (path, node), got in zip(nodes.items(), json.loads(done.stdout), strict=True):
        checks.equal(f"zarrita: {path or '/'}", got, of_zarrita(node))


def outcome(path):
    """The bytes of a file, or the error."""
    try:
        return path.read_bytes()
    except OSError as error:
        return errno.errorcode[error.errno]


def outcomes(root):
    """{path: outcome} of all files of a tree."""
    return {path: outcome(root / path) for path in walk(root)}


def damage(checks, life, folder):
    """A flipped byte in a file: what needs it is EIO, all else as it was."""
    # Columns may have been dropped.
    column = next(name for name in ("number", "small", "flag", "100%", ".hidden") if name in life.obs)
    cases = {"ms/RNA/X/data": ("soma_data", "X/", "X/data/c/0"), "obs": (column, f"obs/{column}/", f"obs/{column}/c/0")}
    with mounted(life.uri) as point:
        whole, h5ad = outcomes(point / "ms/RNA" / NAME), (point / "ms/RNA" / H5AD).read_bytes()
        with h5py.File(point / "ms/RNA" / H5AD) as opened:
            places = {name: (opened[name].id.get_offset(), opened[name].nbytes) for name in ("X/data", "X/indices", f"obs/{column}")}
    for array, (file, under, needs) in cases.items():
        copy = Path(folder, "damaged")
        shutil.copytree(life.uri, copy)
        with tiledb.open(str(copy / array)) as opened:
            names = [opened.schema.attr(i).name for i in range(opened.schema.nattr)]
        for fragment in (copy / array / "__fragments").iterdir():
            path = fragment / f"a{names.index(file)}.tdb"
            data = bytearray(path.read_bytes())
            data[8 : len(data)] = bytes(255 - byte for byte in data[8:])
            path.write_bytes(data)
        with mounted(copy) as point:
            checks.equal(f"damage of {array}: is listed", NAME in os.listdir(point / "ms/RNA"), True)
            got = outcomes(point / "ms/RNA" / NAME)
            checks.equal(f"damage of {array}: {needs}", got.get(needs), "EIO")
            checks.equal(f"damage of {array}: all else", sorted(path for path in whole if not path.startswith(under) and got.get(path) != whole[path]), [])
            near = [path for path in whole if path.startswith(under) and got.get(path) not in (whole[path], "EIO")]
            checks.equal(f"damage of {array}: nothing else in place of it", sorted(near), [])
            damaged = ("X/data", "X/indices") if under == "X/" else (f"obs/{column}",)
            checks.equal(f"damage of {array}: h5ad", torn(point / "ms/RNA" / H5AD, h5ad, [places[name] for name in damaged]), (True, []))
        shutil.rmtree(copy)


def torn(path, whole, places):
    """Whether a file has errors at the first of some places, and the pages that are wrong: with other bytes, or errors elsewhere."""
    got = []
    with open(path, "rb", buffering=0) as file:
        for at in range(0, len(whole), 4096):
            try:
                got.append(os.pread(file.fileno(), 4096, at))
            except OSError as error:
                got.append(errno.errorcode[error.errno])
    near = {page for at, length in places for page in range(at // 4096, (at + length - 1) // 4096 + 1)}
    right = lambda page, data: data == whole[4096 * page : 4096 * page + 4096] or page in near and data == "EIO"
    return got[places[0][0] // 4096] == "EIO", [page for page, data in enumerate(got) if not right(page, data)]


def odd_members(checks, folder):
    """Members that are no SOMA objects, that lie elsewhere, and that contain themselves; collections that are no members, or not any more."""
    inside, outside = Path(folder, "source"), Path(folder, "outside")
    inside.mkdir(), outside.mkdir()
    life = Life(inside, "odd", 8)
    with tiledbsoma.Experiment.create(life.uri) as experiment:
        schema = pa.schema([("soma_joinid", pa.int64()), ("n", pa.int32())])
        ids = {"soma_joinid": list(range(4)), "n": [5, 6, 7, 8]}
        experiment.add_new_dataframe("obs", schema=schema, domain=[(0, 3)]).write(pa.table(ids, schema=schema))
        measurement = experiment.add_new_collection("ms").add_new_collection("RNA", tiledbsoma.Measurement)
        measurement.add_new_dataframe("var", schema=schema, domain=[(0, 3)]).write(pa.table(ids, schema=schema))
        measurement.add_new_collection("X").add_new_sparse_ndarray("data", type=pa.int8(), shape=(4, 4))
        uns = measurement.add_new_collection("uns")
        uns.metadata["n"] = 1
        for name in ("gone", "replaced"):
            uns.add_new_collection(name).metadata["n"] = 2
    measurement = f"{life.uri}/ms/RNA"
    for name in ("stray", "another"):
        with tiledbsoma.Collection.create(f"{measurement}/uns/{name}") as collection:
            collection.metadata["n"] = 3
    with tiledbsoma.Collection.open(f"{measurement}/uns", "w") as uns:
        del uns["gone"], uns["replaced"]
    with tiledbsoma.Collection.open(f"{measurement}/uns", "w") as uns, tiledbsoma.Collection.open(f"{measurement}/uns/another") as another:
        uns.set("replaced", another, use_relative_uri=True)
    with tiledbsoma.Experiment.open(life.uri) as experiment:
        model = Model(experiment, "RNA")
    flat = tiledb.ArraySchema(tiledb.Domain(tiledb.Dim("x", domain=(0, 3), tile=4, dtype=np.int64)), [tiledb.Attr("v", dtype=np.int8)], sparse=True)
    tiledb.Array.create(f"{measurement}/X/plain", flat)
    away = str(outside / "away")
    tiledbsoma.SparseNDArray.create(away, type=pa.int8(), shape=(4, 4)).close()
    for group, uri, name in (("X", f"{measurement}/X/plain", "plain"), ("X", away, "away"), ("uns", f"{measurement}/uns", "itself")):
        with tiledb.Group(f"{measurement}/{group}", "w") as opened:
            opened.add(uri, name=name)
    with mounted(inside) as point:
        root = point / "odd/ms/RNA"
        checks.equal("members of uns", [name for name in os.listdir(root / "uns") if name.startswith(("gone", "replaced"))], ["replaced"])
        compare_files(checks, "odd members", root / NAME, model, np.random.default_rng(4))
        told = json.loads((root / "group.json").read_text())["exports"][NAME]
        checks.equal("odd members are left out", sorted(one["element"] for one in told["left_out"]), ["layers/away", "layers/plain", "uns/itself"])
        checks.equal("errors of the mount", errors(point), [])


def many_groups(checks, folder):
    """A measurement of more than 256 groups, of which some are too deep: these are left out, and all else is there."""
    uri, count = f"{folder}/groups", 300
    schema = pa.schema([("soma_joinid", pa.int64()), ("n", pa.int32())])
    with tiledbsoma.Experiment.create(uri) as experiment:
        experiment.add_new_dataframe("obs", schema=schema, domain=[(0, 1)])
        measurement = experiment.add_new_collection("ms").add_new_collection("RNA", tiledbsoma.Measurement)
        measurement.add_new_dataframe("var", schema=schema, domain=[(0, 1)])
        uns = measurement.add_new_collection("uns")
        uns.metadata["n"] = 1
    uns = f"{uri}/ms/RNA/uns"
    with tiledbsoma.Collection.open(uns, "w") as collection:
        collection.add_new_collection("0").metadata["n"] = 0
    # A group that has so many in it, each of which is the same; and one for each depth.
    with tiledb.Group(uns, "w") as group:
        for number in range(1, count):
            group.add(f"{uns}/0", name=str(number))
    inner = uns
    for depth in range(130):
        with tiledbsoma.Collection.open(inner, "w") as collection:
            collection.add_new_collection("d")
        inner += "/d"
    with mounted(uri) as point:
        root = point / "ms/RNA"
        told = json.loads((root / "group.json").read_text())["exports"][NAME]
        # The measurement and uns are above.
        checks.equal("many groups: left out", [one["element"] for one in told["left_out"]], ["uns" + "/d" * 127])
        values = [(root / NAME / f"uns/{number}/n/c").read_bytes() for number in (0, count // 2, count - 1)]
        checks.equal("many groups: values", set(values), {bytes(8)})
        checks.equal("many groups: errors of the mount", errors(point), [])


def few_descriptors(checks, folder):
    """Layers of more fragments together than the mount may open files: all of them are read."""
    uri, layers, rows = f"{folder}/appended", ["data", "a", "b", "c"], 10
    schema = pa.schema([("soma_joinid", pa.int64()), ("n", pa.int32())])
    with tiledbsoma.Experiment.create(uri) as experiment:
        some = pa.table({"soma_joinid": range(rows), "n": range(rows)}, schema=schema)
        experiment.add_new_dataframe("obs", schema=schema, domain=[(0, rows - 1)]).write(some)
        measurement = experiment.add_new_collection("ms").add_new_collection("RNA", tiledbsoma.Measurement)
        measurement.add_new_dataframe("var", schema=schema, domain=[(0, rows - 1)]).write(some)
        X = measurement.add_new_collection("X")
        for layer in layers:
            X.add_new_sparse_ndarray(layer, type=pa.int32(), shape=(rows, rows))
    for row, layer in itertools.product(range(rows), layers):
        with tiledb.open(f"{uri}/ms/RNA/X/{layer}", "w") as array:
            array[[row], [0]] = np.array([row], np.int32)
    limited = Path(folder, "limited")
    limited.write_text(f'#!/bin/sh\nulimit -n 96 && exec "{binary()}" "$@"\n')
    limited.chmod(0o755)
    with unittest.mock.patch.dict(os.environ, TILEDBFS_BIN=str(limited)), mounted(uri) as point:
        got = outcomes(point / "ms/RNA" / NAME)
        values = {layer: got[f"{'X' if layer == 'data' else f'layers/{layer}'}/data/c/0"] for layer in layers}
        checks.equal("few descriptors: layers", values, dict.fromkeys(layers, np.arange(rows, dtype="<i4").tobytes()))
        checks.equal("few descriptors: errors of the mount", errors(point), [])


def broken_values(checks, folder):
    """The same joinid in two rows of obs; text of var that is not UTF-8."""
    uri = f"{folder}/broken"
    schema = pa.schema([("soma_joinid", pa.int64()), ("key", pa.int64()), ("n", pa.int32()), ("text", pa.large_string())])
    raw_text = pa.array([b"a", b"\xff", b"c"], pa.large_binary())
    words = pa.Array.from_buffers(pa.large_string(), 3, raw_text.buffers())
    with tiledbsoma.Experiment.create(uri) as experiment:
        experiment.add_new_dataframe("obs", schema=schema, index_column_names=["key"], domain=[(0, 9)]).write(
            pa.table({"soma_joinid": [0, 1, 1], "key": [1, 2, 3], "n": [5, 6, 7], "text": ["a", "b", "c"]}, schema=schema))
        measurement = experiment.add_new_collection("ms").add_new_collection("RNA", tiledbsoma.Measurement)
        measurement.add_new_dataframe("var", schema=schema, index_column_names=["key"], domain=[(0, 9)]).write(
            pa.table([pa.array([2, 1, 0]), pa.array([1, 2, 3]), pa.array([5, 6, 7], pa.int32()), words], schema=schema))
    with mounted(uri) as point:
        root = point / "ms/RNA" / NAME
        got = outcomes(root)
        checks.equal("joinids twice: values of obs", [got.get(f"obs/{name}/c/0") for name in ("n", "key", "text")], ["EIO"] * 3)
        checks.equal("joinids of var in another order", np.frombuffer(got["var/n/c/0"], "<i4").tolist(), [7, 6, 5])
        checks.equal("text of var that is not UTF-8", got.get("var/text/c/0"), "EIO")
        checks.equal("broken values: h5ad", outcome(root.parent / H5AD), "EIO")
        checks.equal("errors tell of the text", [one["path"] for one in errors(point) if "var/text" in one["path"]] != [], True)


def dates_in_uns(checks, folder):
    """A frame of uns with an index of dates, and a column of them: HDF5 has neither."""
    uri = f"{folder}/dates"
    small = pa.schema([("soma_joinid", pa.int64()), ("n", pa.int32())])
    dated = pa.schema([("soma_joinid", pa.int64()), ("when", pa.timestamp("us")), ("n", pa.int32()), ("then", pa.timestamp("s"))])
    with tiledbsoma.Experiment.create(uri) as experiment:
        rows = pa.table({"soma_joinid": [0, 1], "n": [5, 6]}, schema=small)
        experiment.add_new_dataframe("obs", schema=small, domain=[(0, 1)]).write(rows)
        measurement = experiment.add_new_collection("ms").add_new_collection("RNA", tiledbsoma.Measurement)
        measurement.add_new_dataframe("var", schema=small, domain=[(0, 1)]).write(rows)
        frame = measurement.add_new_collection("uns").add_new_dataframe("frame", schema=dated, domain=[(0, 2)])
        frame.metadata["soma_dataframe_original_index_name"] = '"when"'
        frame.write(pa.table({"soma_joinid": [0, 1, 2], "when": [7, 8, 9], "n": [1, 2, 3], "then": [4, 5, 6]}, schema=dated))
    with mounted(uri) as point, tiledbsoma.Experiment.open(uri) as experiment:
        compare_tree(checks, "dates in uns", point / "ms/RNA" / NAME, Model(experiment, "RNA"), np.random.default_rng(7), read=True)
        frame = anndata.read_h5ad(point / "ms/RNA" / H5AD).uns["frame"]
        checks.equal("dates in uns: what is left of the frame", (list(frame.columns), frame.index.tolist()), (["n"], [0, 1, 2]))


def odd_indexes(checks, folder):
    """An index of dates, or of a name that no file has; joinids of more than 32 bits, zeros and NaN that are stored, and a layer without a cell."""
    uri, rows, columns = f"{folder}/indexes", [3, 2**31 + 5, 2**31 + 6, 2**40 + 7], [0, 2**32]
    dates = {f"in {unit}": pa.array([-1, None, 2**31, 0], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")}
    dates |= {"days in ms": pa.array([0, None, 86_400_000, -86_400_000], pa.timestamp("ms")), "seconds in us": pa.array([0, 10**6, 5 * 10**6, None], pa.timestamp("us")),
              "ms in ns": pa.array([0, 10**6, None, 86_400 * 10**9], pa.timestamp("ns"))}
    obs = pa.table({"soma_joinid": rows, **dates, "a/b": pa.array(["p", "q", "r", "s"], pa.large_string())})
    var = pa.table({"soma_joinid": columns, "var_id": pa.array(["x", "y"], pa.large_string())})
    with tiledbsoma.Experiment.create(uri) as experiment:
        experiment.add_new_dataframe("obs", schema=obs.schema, domain=[(0, 2**41)]).write(obs)
        measurement = experiment.add_new_collection("ms").add_new_collection("RNA", tiledbsoma.Measurement)
        measurement.add_new_dataframe("var", schema=var.schema, domain=[(0, 2**33)]).write(var)
        X = measurement.add_new_collection("X")
        at = {"soma_dim_0": [3, rows[1], rows[1], rows[3], 5, rows[1]], "soma_dim_1": [columns[1], 0, columns[1], 0, 0, 77]}
        for key, of, data in (("data", pa.float32(), [0, float("nan"), -0.0, 1, 2, 3]), ("bytes", pa.uint8(), [0, 255, 2, 3, 4, 5]), ("none", pa.float64(), [])):
            with X.add_new_sparse_ndarray(key, type=of, shape=(2**41 + 1, 2**33 + 1)) as array:
                if data:
                    array.write(pa.table({**at, "soma_data": pa.array(data, of)}))
    for name in (*dates, "a/b"):
        with tiledbsoma.DataFrame.open(f"{uri}/obs", "w") as frame:
            frame.metadata["soma_dataframe_original_index_name"] = json.dumps(name)
        with mounted(uri) as point, tiledbsoma.Experiment.open(uri) as experiment:
            compare_tree(checks, f"index {name}", point / "ms/RNA" / NAME, Model(experiment, "RNA"), np.random.default_rng(10), read=name == "a/b")


def widths_without_current_domain(checks, folder):
    """What tiledbsoma wrote before 1.15: matrices of obsm end where the last column was written."""
    uri, chance = f"{folder}/widths", np.random.default_rng(11)
    kinds = np.zeros((30, 5))
    kinds[np.arange(30), np.arange(30) % 5] = 1
    # More rows than obs has.
    full = chance.normal(size=(60, 6))
    wanted = {"one_a_row": (kinds, kinds), "more_rows": (full, full[:30])}
    data = anndata.AnnData(sp.random(30, 8, 0.3, format="csr", rng=chance), obsm={name: want for name, (_, want) in wanted.items()})
    tiledbsoma.io.from_anndata(uri, data, measurement_name="RNA")
    for name, (values, _) in wanted.items():
        path = f"{uri}/ms/RNA/obsm/{name}"
        with tiledb.open(path) as array:
            metadata = dict(array.meta)
        shutil.rmtree(path)
        dimensions = [tiledb.Dim(f"soma_dim_{number}", domain=(0, 2**31), tile=2048, dtype=np.int64) for number in range(2)]
        tiledb.Array.create(path, tiledb.ArraySchema(tiledb.Domain(*dimensions), [tiledb.Attr("soma_data", dtype=np.float64)], sparse=True))
        with tiledb.open(path, "w") as array:
            array[np.nonzero(values)] = values[np.nonzero(values)]
            array.meta.update(metadata)
    with mounted(uri) as point:
        for file, read in ((NAME, anndata.read_zarr), (H5AD, anndata.read_h5ad)):
            got = read(point / "ms/RNA" / file).obsm
            for name, (_, want) in wanted.items():
                checks.equal(f"widths: {file}: {name}", (got[name].shape, np.array_equal(got[name], want)), (want.shape, True))


def many_columns(checks, folder):
    """More columns than an attribute of HDF5 can list, without a row: writing takes long."""
    uri, names, most = f"{folder}/wide", [f"column {i}" for i in range(4_100)], 4_091
    wide = pa.schema([("soma_joinid", pa.int64()), *((name, pa.int8()) for name in names)])
    with tiledbsoma.Experiment.create(uri) as experiment:
        experiment.add_new_dataframe("obs", schema=wide, domain=[(0, 1)])
        measurement = experiment.add_new_collection("ms").add_new_collection("RNA", tiledbsoma.Measurement)
        measurement.add_new_dataframe("var", schema=pa.schema([("soma_joinid", pa.int64()), ("n", pa.int8())]), domain=[(0, 1)])
    with mounted(uri) as point:
        with h5py.File(point / "ms/RNA" / H5AD) as file:
            listed, shown, last = list(file["obs"].attrs["column-order"]), set(file["obs"]), file["obs"][names[most - 1]]
            checks.equal("many columns", (listed, shown), (names[:most], {*listed, "_index"}))
            checks.equal("many columns: the last", (last.shape, last.dtype), ((0,), np.int8))
        told = json.loads((point / "ms/RNA/group.json").read_text())["exports"]
        left_out = {name: [one["element"] for one in told[name]["left_out"]] for name in (NAME, H5AD)}
        checks.equal("many columns: left out", left_out, {NAME: [], H5AD: [f"obs/{name}" for name in names[most:]]})


def growing(uri):
    """An experiment without a cell, with room for many."""
    schema = pa.schema([("soma_joinid", pa.int64()), ("n", pa.int64())])
    with tiledbsoma.Experiment.create(uri) as experiment:
        experiment.add_new_dataframe("obs", schema=schema, domain=[(0, 99_999)])
        measurement = experiment.add_new_collection("ms").add_new_collection("RNA", tiledbsoma.Measurement)
        measurement.add_new_dataframe("var", schema=schema, domain=[(0, 2)]).write(pa.table({"soma_joinid": [0, 1, 2], "n": [5, 6, 7]}, schema=schema))
        measurement.add_new_collection("X").add_new_sparse_ndarray("data", type=pa.int64(), shape=(100_000, 3))


def grow(uri, row):
    """Adds a row to obs, and then its three cells to X."""
    with tiledb.open(f"{uri}/obs", "w") as obs:
        obs[np.array([row])] = {"n": np.array([row])}
    with tiledb.open(f"{uri}/ms/RNA/X/data", "w") as X:
        X[np.full(3, row), np.arange(3)] = np.full(3, row)


def rows_of_each(path):
    """How many rows of obs a measurement has, and for how many X has cells: of one file each, which is of one state."""
    with h5py.File(path / H5AD) as file:
        yield len(file["obs/n"]), len(file["X/data"]) // 3
    with open(path / NAME / "X/indptr/c/0", "rb") as file:
        starts = np.frombuffer(file.read(), "<i4")
        yield len(starts) - 1, int(starts[-1]) // 3


def one_state(checks, folder):
    """While somebody adds rows to obs and then cells to X, all that is made of both is of a state that they had: at most one row has no cells."""
    uri = f"{folder}/growing"
    growing(uri)
    grow(uri, 0)
    with mounted(uri) as point:
        numbers, measurement = itertools.count(1), point / "ms/RNA"

        def write():
            grow(uri, next(numbers))

        def look():
            # What was looked at last of X is not as old as of obs.
            os.listdir(measurement / "X/data/fragments")
            time.sleep(0.013)

        seen, end = [], time.monotonic() + 4
        with meanwhile(write, look):
            while time.monotonic() < end:
                with unless_stale():
                    seen += rows_of_each(measurement)
                time.sleep(0.02)
        checks.equal("states that the experiment never had", [rows for rows in seen if rows[0] - rows[1] not in (0, 1)][:5], [])
        checks.equal("there were several states", len(set(seen)) > 5, True)


def one_state_in_a_store(checks, folder):
    """Rows of obs and cells of X that were written after X was listed, of which obs alone would be listed anew: both are shown or none."""
    for wait in (0, 3):
        uri = f"{folder}/stored/after {wait}"
        growing(uri)
        grow(uri, 0)
        with Rclone(Path(uri).parent) as store, mounted(f"http://{store.host}/", "--refresh", "3600", env=clean_environment()) as point:
            measurement = point / Path(uri).name / "ms/RNA"
            os.listdir(measurement / "X/data/fragments")
            for row in range(1, 4):
                grow(uri, row)
            time.sleep(wait)
            checks.equal(f"rows of obs and of X {wait} s after they were written to a store", list(rows_of_each(measurement)), [(4, 4)] * 2)


def real(checks):
    """Experiments of other releases, and of R, where they are unpacked."""
    folder = ROOT / "target/real/arrays"
    of_r = "TileDB-SOMA/apis/r/inst/extdata/soma-exp-pbmc-small"
    for name in ("packages/tiledbsoma/experiment", "packages/tiledbsoma/dense", f"{of_r}.d", f"{of_r}-pre-1.15.d"):
        if (folder / name).exists():
            with mounted(folder / name) as point:
                compare_experiment(checks, name, point, str(folder / name), np.random.default_rng(5))
                checks.equal(f"errors of {name}", errors(point), [])


def documented(checks, folder):
    """The lines of docs/soma.md."""
    work = Path(folder, "documented")
    (work / "source").mkdir(parents=True), (work / "mnt").mkdir()
    obs = pd.DataFrame({"cell_type": pd.Categorical(["B", "T", "NK"] * 20), "a/b": range(60)}, index=[f"cell {i}" for i in range(60)])
    data = anndata.AnnData(sp.random(60, 20, 0.2, format="csr", rng=np.random.default_rng(1)), obs, pd.DataFrame(index=[f"gene {i}" for i in range(20)]))
    tiledbsoma.io.from_anndata(str(work / "source/pbmc"), data, measurement_name="RNA")
    said = described(work / "source/pbmc")
    checks.equal("info of an experiment", (said["kind"], said["open"]), ("experiment", "ms/RNA/anndata.zarr, ms/RNA/anndata.h5ad"))
    with mounted(work / "source") as point:
        (work / "mnt/pbmc").symlink_to(point / "pbmc")
        with contextlib.chdir(work):
            lines = doctest.testfile(str(ROOT / "docs/soma.md"), module_relative=False, encoding="utf-8", optionflags=doctest.ELLIPSIS)
    checks.equal("docs/soma.md: lines that fail", (lines.failed, lines.attempted > 5), (0, True))


def main():
    """Writes experiments and compares."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=25)
    parser.add_argument("--count", type=int, default=6)
    options = parser.parse_args()
    checks = Checks()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="tiledbfs-soma-") as folder, quietly():
        source = Path(folder, "lives")
        source.mkdir()
        life = live(checks, source, options.seed, options.count)
        stages = {
            another_layer: (source, life), copied: (life, folder), interrupted: (life, folder), continued: (folder,), in_a_store: (life,), in_zarrita: (life,), damage: (life, folder), unreadable: (life, folder), undecided: (life, folder), private: (life, folder),
            bands: (folder,), odd_members: (folder,), many_groups: (folder,), few_descriptors: (folder,), broken_values: (folder,), dates_in_uns: (folder,), odd_indexes: (folder,), widths_without_current_domain: (folder,), many_columns: (folder,), one_state: (folder,), one_state_in_a_store: (folder,), documented: (folder,), real: (),
        }
        for stage, arguments in stages.items():
            with tried(checks, stage.__name__):
                stage(checks, *arguments)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
