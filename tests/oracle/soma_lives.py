"""Experiments of tiledbsoma with random lives: ingested from AnnData or made through the API, then appended to, updated, deleted from, resized and evolved.

The time after each step is kept, so that its state can be read again with `--at`.
"""

import contextlib
import logging
import time
import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import scipy.sparse as sp
import tiledb
import tiledbsoma
import tiledbsoma.io

WORDS = ["", "a", "größe", "T cell", "😀", "x" * 70, "NaN", "0", "\n"]
NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
MATRICES = ["i4", "f4", "f8", "u2", "i8"]


def now():
    """The time in milliseconds, after which everything is written later."""
    time.sleep(0.002)
    at = time.time_ns() // 1_000_000
    time.sleep(0.002)
    return at


class Life:
    """One experiment: `times` are those after each step, in milliseconds."""

    def __init__(self, folder, name, seed):
        self.chance = np.random.default_rng([seed, *name.encode()])
        self.uri = str(Path(folder) / name)
        self.name, self.times, self.done = name, [], []

    def live(self, steps, count):
        """Takes the first of `steps`, and then `count` of the others at random; a step may find nothing to do."""
        for step in [steps[0], *(self.one_of(steps[1:]) for _ in range(count))]:
            step(self)
            self.times.append(now())
            self.done.append(step.__name__)
        return self

    # --- chance

    def one_of(self, of):
        return of[self.chance.integers(len(of))]

    def likely(self, share):
        return self.chance.random() < share

    def words(self, count):
        return [self.one_of(WORDS) for _ in range(count)]

    def numbers(self, of, count):
        of = np.dtype(of)
        if of.kind == "f":
            values = self.chance.normal(0, 100, count).astype(of)
            values[self.chance.random(count) < 0.1] = self.one_of([np.nan, np.inf, -0.0])
            return values
        ends = np.iinfo(of)
        values = self.chance.integers(0, 100, count).astype(of)
        values[self.chance.random(count) < 0.1] = self.one_of([ends.min, ends.max])
        return values

    def sparse(self, rows, columns, of="f4", density=0.2):
        values = sp.random(rows, columns, density, format="csr", rng=self.chance)
        values.data = self.numbers(of, values.nnz)
        return values

    def tiling(self, rows, columns, sparse=True):
        """How tiledbsoma is to lay out arrays: as by default, or in small tiles and some order."""
        if self.likely(0.4):
            return None
        sides = {f"soma_dim_{i}": {"tile": int(self.chance.integers(1, length + 1))} for i, length in enumerate((rows, columns))}
        order = self.one_of([{}, {}, {"cell_order": "col-major"}, {"tile_order": "col-major"}, {"cell_order": "hilbert"} if sparse else {}])
        return {"tiledb": {"create": {"capacity": int(self.chance.integers(1, 60)), "dims": sides, **order}}}

    def holes(self, values):
        """Values of pandas with nulls in some rows, or in none."""
        share = self.one_of([0, 0.3, 1])
        return [None if self.chance.random() < share else value for value in values]


# --- ingested

COLUMNS = {
    "number": lambda life, n: life.numbers("f8", n),
    "small": lambda life, n: life.numbers("i1", n),
    "flag": lambda life, n: life.chance.random(n) < 0.5,
    "text": lambda life, n: life.words(n),
    "when": lambda life, n: pd.to_datetime(life.chance.integers(0, 1 << 60, n)),
    "cell type": lambda life, n: pd.Categorical(life.words(n), categories=WORDS, ordered=True),
    "label": lambda life, n: pd.Categorical([life.one_of(["p", "q", "r"]) for _ in range(n)], categories=["r", "q", "unused", "p"]),
    "maybe": lambda life, n: pd.array(life.holes(life.numbers("i4", n).tolist()), dtype="Int32"),
    "maybe flag": lambda life, n: pd.array(life.holes([True] * n), dtype="boolean"),
    "maybe text": lambda life, n: pd.array(life.holes(life.words(n)), dtype="string"),
    "100%": lambda life, n: life.numbers("u2", n),
    ".hidden": lambda life, n: life.numbers("f4", n),
}


def annotations(life, names, index):
    """A frame of obs or var; a step that appends has the columns of the first."""
    return pd.DataFrame({key: COLUMNS[key](life, len(index)) for key in names}, index=index)


def matrices(life, cells, genes):
    """AnnData of the columns and matrices of this life."""
    n, m = len(cells), len(genes)
    index = pd.Index(cells, name=life.index_name)
    X = life.sparse(n, m, life.X) if life.X != "dense" else life.chance.random((n, m)).astype("f4")
    return anndata.AnnData(
        X=X, obs=annotations(life, life.obs, index), var=annotations(life, life.var, pd.Index(genes)),
        layers={"spliced": life.sparse(n, m, "i4", 0.05)},
        obsm={"X_pca": life.chance.random((n, 5)).astype("f4"), "sparse": life.sparse(n, 3, "f8", 0.5)}, varm={"PCs": life.chance.random((m, 5))},
        obsp={"distances": life.sparse(n, n, "f8", 0.05)}, varp={"correlations": life.sparse(m, m, "f4", 0.1)})


def unstructured(life):
    """What `uns` may hold."""
    return {
        "number": 7, "ratio": 2.5, "title": "größe", "empty title": "",
        "colors": np.array(["#ff0000", "", "ß"]), "names": np.array([["a", "b"], ["", "d"], ["e", "f"]]),
        "counts": np.arange(5), "grid": life.chance.random((3, 4)), "flags": np.array([True, False]),
        "pca": {"variance": life.chance.random(4), "params": {"zero_center": "yes", "n": 3},
                "frame": pd.DataFrame({"q": [1.5, np.nan], "t": ["x", ""]}, index=["u", "v"]), "plain": pd.DataFrame({"q": [1, 2, 3]})},
    }


def ingest(life):
    """from_anndata, with `raw` and `uns`."""
    chance = life.chance
    life.X = life.one_of([*MATRICES, "dense"]) if life.likely(0.4) else "f4"
    life.index_name = life.one_of([None, "barcode"])
    names = list(COLUMNS)
    life.obs, life.var = names, [name for name in names if life.likely(0.4)]
    life.cells, life.genes = [f"cell {i}" for i in range(chance.integers(1, 90))], [f"gene {i}" for i in range(chance.integers(1, 40))]
    data = matrices(life, life.cells, life.genes)
    data.uns = unstructured(life)
    if life.likely(0.5) and life.X != "dense":
        data.raw = data.copy()
    kind, tiling = tiledbsoma.SparseNDArray, life.tiling(len(life.cells), len(life.genes), sparse=False)
    if life.X == "dense":
        kind, tiling = tiledbsoma.DenseNDArray, None
    tiledbsoma.io.from_anndata(life.uri, data, measurement_name="RNA", X_kind=kind, platform_config=tiling)
    life.whole = True


def opened(life, mode):
    return tiledbsoma.Experiment.open(life.uri, mode)


def append(life):
    """More cells, some genes that are new."""
    if life.X == "dense" or not life.whole or resize.__name__ in life.done:
        return
    more = [f"cell {len(life.cells) + i}" for i in range(life.chance.integers(1, 30))]
    genes = [*life.genes[::2], *(f"gene {len(life.genes) + i}" for i in range(life.chance.integers(0, 5)))]
    data = matrices(life, more, genes)
    for part in (data.obsm, data.varm, data.obsp, data.varp):
        part.clear()
    with opened(life, "r") as experiment:
        if "raw" in experiment.ms:
            return
    names = {"obs_field_name": life.index_name or "obs_id", "var_field_name": "var_id"}
    mapping = tiledbsoma.io.register_anndatas(life.uri, [data], measurement_name="RNA", **names)
    mapping.prepare_experiment(life.uri)
    tiledbsoma.io.from_anndata(life.uri, data, measurement_name="RNA", registration_mapping=mapping)
    life.cells += more
    life.genes += [gene for gene in genes if gene not in life.genes]


def evolve(life):
    """update_obs: other values, a column less, a column more."""
    if not life.whole:
        return
    with opened(life, "r") as experiment:
        frame = tiledbsoma.io.outgest._read_dataframe(experiment.obs, fallback_index_name="obs_id")
    life.obs = [name for name in life.obs if len(life.obs) < 5 or life.likely(0.9)]
    new = annotations(life, life.obs, frame.index)
    new[f"added {len(life.times)}"] = life.numbers(life.one_of(NUMBERS), len(new)) if life.likely(0.5) else pd.Categorical(life.words(len(new)))
    life.whole = False
    with opened(life, "w") as experiment:
        tiledbsoma.io.update_obs(experiment, new)


def layer(life):
    """A layer more."""
    if resize.__name__ in life.done:
        return
    with opened(life, "w") as experiment:
        tiledbsoma.io.add_X_layer(experiment, "RNA", f"layer {len(life.times)}", life.sparse(len(life.cells), len(life.genes), life.one_of(MATRICES)))


def cells(life):
    """Some cells of a matrix again, zeros too, and new ones."""
    with opened(life, "r") as experiment:
        measurement = experiment.ms["RNA"]
        array = measurement[life.one_of(["obsp", "X"])]
        array = array[life.one_of(list(array))]
        if not isinstance(array, tiledbsoma.SparseNDArray):
            return
        uri, shape, of = array.uri, array.shape, array.schema.field("soma_data").type.to_pandas_dtype()
    write_cells(life, uri, shape, of)


def write_cells(life, uri, shape, of):
    """Writes at most 40 cells at random, each once."""
    at = np.unique(life.chance.integers(0, shape, (life.chance.integers(1, 40), len(shape))), axis=0)
    data = life.numbers(of, len(at))
    data[life.chance.random(len(at)) < 0.2] = 0
    with tiledbsoma.SparseNDArray.open(uri, "w") as array:
        array.write(pa.table({**{f"soma_dim_{i}": at[:, i] for i in range(len(shape))}, "soma_data": data}))


def remove(life):
    """Rows of obs or var, with or without their cells; or cells alone."""
    kind = life.one_of(["axis", "obs", "var", "X"])
    if life.X == "dense" and kind == "axis":
        return
    life.whole = False
    ids = np.unique(life.chance.integers(0, len(life.cells), life.chance.integers(1, 9)))
    with tiledbsoma.Experiment.open(life.uri) as experiment:
        of = {"obs": experiment.obs, "var": experiment.ms["RNA"].var}.get(kind)
        uri = None if of is None else of.uri
        if kind == "X":
            arrays = [array for array in experiment.ms["RNA"].X.values() if isinstance(array, tiledbsoma.SparseNDArray)]
            uri = life.one_of(arrays).uri
    if kind == "axis":
        with tiledbsoma.Experiment.open(life.uri, "d") as experiment:
            experiment.obs_axis_delete((ids.tolist(),))
    elif kind == "X":
        with tiledbsoma.SparseNDArray.open(uri, "d") as array:
            array.delete_cells((slice(0, 5), ids[ids < len(life.genes)].tolist() or [0]))
    else:
        with tiledbsoma.DataFrame.open(uri, "d") as frame:
            frame.delete_cells((ids[ids < len(life.genes)].tolist() or [0],))


def resize(life):
    """Room for more, once."""
    if resize.__name__ in life.done:
        return
    with opened(life, "r") as experiment:
        measurement = experiment.ms["RNA"]
        n, m = experiment.obs.domain[0][1] + 1, measurement.var.domain[0][1] + 1
        raw = {"raw": experiment.ms["raw"].var.domain[0][1] + 1} if "raw" in experiment.ms else {}
    tiledbsoma.io.resize_experiment(life.uri, nobs=n + 9, nvars={"RNA": m + 3, **raw})


def gap(life):
    """A row of obs at the end of the domain, which may be behind a gap."""
    with opened(life, "r") as experiment:
        last, table, uri = experiment.obs.domain[0][1], experiment.obs.read().concat().slice(0, 1), experiment.obs.uri
    if table.num_rows:
        life.whole = False
        table = table.set_column(table.schema.get_field_index("soma_joinid"), "soma_joinid", pa.array([last], pa.int64()))
        with tiledbsoma.DataFrame.open(uri, "w") as frame:
            frame.write(table)


def describe(life):
    """Scalars of `uns` again and more."""
    with opened(life, "w") as experiment:
        metadata = experiment.ms["RNA"]["uns"].metadata
        metadata["number"] = int(life.chance.integers(1 << 60))
        metadata[f"more {len(life.times)}"] = life.one_of(WORDS)


def consolidate(life):
    """X in one fragment."""
    with opened(life, "r") as experiment:
        uri = next(iter(experiment.ms["RNA"].X.values())).uri
    tiledb.consolidate(uri)


INGESTED = [ingest, append, append, evolve, layer, cells, cells, remove, remove, resize, resize, gap, describe, consolidate]

# --- through the API

TYPES = {
    **{f"{of} column": pa.from_numpy_dtype(np.dtype(of)) for of in NUMBERS}, "flag": pa.bool_(), "text": pa.large_string(), "bytes": pa.large_binary(),
    **{f"date {unit}": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    "labels": pa.dictionary(pa.int8(), pa.large_string(), True), "numbered": pa.dictionary(pa.int32(), pa.int64()),
    "a/b": pa.int32(), "_index": pa.int8(), "zarr.json": pa.int8(), "..": pa.int8(), "long" * 64: pa.int8(), "100%": pa.int16(), "größe": pa.float32(),
}
INDEXES = {"soma_joinid": ["soma_joinid"], "text": ["key"], "two": ["soma_joinid", "batch"], "number": ["place"]}


def of_type(life, kind, count):
    """Values of a type of Arrow."""
    if pa.types.is_dictionary(kind):
        values = life.words(count) if kind.value_type != pa.int64() else life.numbers("i1", count).astype("i8").tolist()
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(life.chance.integers(-(1 << 40), 1 << 40, count)).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array((life.chance.random(count) < 0.5).tolist(), kind)
    if pa.types.is_large_string(kind):
        return pa.array(life.words(count), kind)
    if pa.types.is_large_binary(kind):
        return pa.array([word.encode() for word in life.words(count)], kind)
    return pa.array(life.numbers(kind.to_pandas_dtype(), count), kind)


def with_nulls(life, column):
    """Some rows null, or none, or all."""
    share = life.one_of([0, 0, 0.3, 1])
    return pa.compute.if_else(pa.array(life.chance.random(len(column)) < share), pa.scalar(None, column.type), column)


def frame_rows(life, schema, joinids):
    """Rows of a frame: keys in no order."""
    columns = {}
    for field in schema:
        if field.name == "soma_joinid":
            column = pa.array(joinids, pa.int64())
        elif field.name in ("key", "batch", "place"):
            values = [(7 * joinid) % 101 for joinid in joinids]
            column = pa.array([f"k{value}" for value in values] if field.name == "key" else values, field.type)
        else:
            column = of_type(life, field.type, len(joinids))
            if field.nullable:
                column = with_nulls(life, column)
        columns[field.name] = column
    return pa.table(columns, schema=schema)


KEYS = {"key": pa.large_string(), "batch": pa.int64(), "place": pa.int32()}


def make_frame(life, where, key, length, index, names):
    """Creates a frame and writes its rows but for some gaps."""
    fields = [pa.field("soma_joinid", pa.int64(), nullable=False)]
    fields += [pa.field(name, KEYS[name], nullable=False) for name in INDEXES[index] if name != "soma_joinid"]
    fields += [pa.field(name, TYPES[name], nullable=life.likely(0.6)) for name in names]
    schema = pa.schema(fields)
    domain = {"soma_joinid": (0, length - 1), "key": None, "batch": (0, 200), "place": (0, 200)}
    ids = [i for i in range(length) if life.likely(life.density)]
    uri = where.add_new_dataframe(key, schema=schema, index_column_names=INDEXES[index], domain=[domain[name] for name in INDEXES[index]]).uri
    # Of two schemas of one millisecond, libtiledb takes either: a write with labels makes another one.
    now()
    with tiledbsoma.DataFrame.open(uri, "w") as frame:
        if ids:
            frame.write(frame_rows(life, schema, ids))
        name = life.one_of([None, None, "text", "labels", "i4 column", "_index", "gone"])
        # Nobody says what a null in the index of a frame of uns is; in that of obs or var it is "".
        if name and not (key == "frame" and name in names and schema.field(name).nullable):
            frame.metadata["soma_dataframe_original_index_name"] = f'"{name}"'
    return ids


def create(life):
    """An experiment of all types, with several measurements; its rows have gaps, or there are none."""
    life.density = life.one_of([1, 1, 0.7, 0])
    n, life.shapes, life.frames = int(life.chance.integers(1, 60)), {}, {}
    with tiledbsoma.Experiment.create(life.uri) as experiment:
        names = list(TYPES)
        make_frame(life, experiment, "obs", n, life.one_of(list(INDEXES)), [name for name in names if life.likely(0.7)])
        experiment.add_new_collection("ms")
        for of in ("RNA", "größe 2", "bare")[: life.chance.integers(1, 4)]:
            m = int(life.chance.integers(1, 20))
            life.shapes[of] = n, m
            measurement = experiment.ms.add_new_collection(of, tiledbsoma.Measurement)
            make_frame(life, measurement, "var", m, life.one_of(list(INDEXES)), [name for name in names if life.likely(0.2)])
            if of == "bare":
                measurement.add_new_collection("no part of it")
                continue
            make_matrices(life, measurement, n, m)


def make_matrices(life, measurement, n, m):
    """Matrices of many types and shapes."""
    types = {"data": "f4", "flags": "?", "bytes": "u1", "normal": "f8", "cube": "f4", "100%": "i2", "a/b": "f4", "unwritten": "i4"}
    measurement.add_new_collection("X")
    for key, of in types.items():
        shape = (n, m, 2) if key == "cube" else (n, m)
        if key != "data" and life.likely(0.5):
            continue
        with measurement.X.add_new_sparse_ndarray(key, type=pa.from_numpy_dtype(np.dtype(of)), shape=shape, platform_config=life.tiling(n, m)) as array:
            if key != "unwritten":
                at = np.argwhere(life.chance.random(shape) < 0.2)
                data = life.numbers(of, len(at)) if of != "?" else life.chance.random(len(at)) < 0.5
                if len(at):
                    array.write(pa.table({**{f"soma_dim_{i}": at[:, i] for i in range(len(shape))}, "soma_data": data}))
    for part, rows in (("obsm", n), ("varm", m)):
        measurement.add_new_collection(part)
        dense = measurement[part].add_new_dense_ndarray("dense", type=pa.float32(), shape=(rows, 3))
        dense.write((slice(0, rows - 1), slice(0, 2)), pa.Tensor.from_numpy(life.numbers("f4", 3 * rows).reshape(rows, 3)))
        measurement[part].add_new_sparse_ndarray("unwritten", type=pa.int32(), shape=(rows, 2))
    if life.likely(0.5):
        dense = measurement.X.add_new_dense_ndarray("dense", type=pa.int16(), shape=(n, m))
        dense.write((slice(0, n - 1), slice(0, m - 1)), pa.Tensor.from_numpy(life.numbers("i2", n * m).reshape(n, m)))
    uns = measurement.add_new_collection("uns")
    for key, value in (("a", 1), ("a/b", 2), ("text", "t"), ("wins", 2.5)):
        uns.metadata[key] = value
    uns.add_new_collection("wins")
    inner = uns.add_new_collection("inner")
    inner.metadata["deep"] = -1
    with inner.add_new_sparse_ndarray("cells", type=pa.float64(), shape=(9, 9, 9)) as array:
        array.write(pa.table({"soma_dim_0": [3, 1, 3], "soma_dim_1": [0, 5, 0], "soma_dim_2": [7, 8, 2], "soma_data": [1.5, 2.5, float("nan")]}))
    make_frame(life, inner, "frame", 5, "soma_joinid", ["i4 column", "text", "labels"])


def rows_again(life):
    """Rows of obs and var again, of which some are new."""
    with opened(life, "r") as experiment:
        frames = [(experiment.obs, next(iter(life.shapes.values()))[0]), *((one.var, life.shapes[name][1]) for name, one in experiment.ms.items())]
        chosen = [(frame.uri, frame.schema, length) for frame, length in frames if life.likely(0.5)]
    for uri, schema, length in chosen:
        ids = [i for i in range(length) if life.likely(0.3)]
        if ids:
            with tiledbsoma.DataFrame.open(uri, "w") as frame:
                frame.write(frame_rows(life, schema, ids))


def cells_again(life):
    """Cells of X again."""
    with opened(life, "r") as experiment:
        array = life.one_of(list(experiment.ms.values()))
        if "X" not in array:
            return
        uri, shape = array.X["data"].uri, array.X["data"].shape
    write_cells(life, uri, shape, "f4")


def rows_gone(life):
    """Rows of obs deleted by a condition."""
    with tiledbsoma.DataFrame.open(f"{life.uri}/obs", "d") as frame:
        frame.delete_cells(value_filter=f"soma_joinid >= {life.chance.integers(3, 50)}")


CREATED = [create, rows_again, rows_again, cells_again, rows_gone]


@contextlib.contextmanager
def quietly():
    """Without what tiledbsoma and anndata warn of."""
    logging.getLogger("tiledbsoma").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def lives(folder, seed, count):
    """`count` experiments, in turn of both kinds."""
    with quietly():
        return [Life(folder, f"life {i}", seed).live((INGESTED, CREATED)[i % 2], (4, 2)[i % 2]) for i in range(count)]
