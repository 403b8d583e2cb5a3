"""What `anndata.zarr/` of a SOMA measurement holds, file by file, and `anndata.h5ad`: a plain model, by joinids, of what tiledbsoma reads of each
array.

    model = Model(experiment, "RNA")        # an open tiledbsoma.Experiment, at any time
    model.nodes["obs/cell_type/codes"]      # attributes, values, chunk shape
    dict(files(model.nodes["X/data"], ...))  # the bytes of its chunks
    model.left_out                          # elements that are not shown
"""

import copy
import json
import struct
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import tiledbsoma

MATRIX_CHUNK, CHUNK = 1 << 20, 1 << 18
HINT, INDEX_NAME = "soma_uns_outgest_hint", "soma_dataframe_original_index_name"
SPARSE, DENSE, FRAME = tiledbsoma.SparseNDArray, tiledbsoma.DenseNDArray, tiledbsoma.DataFrame


@dataclass
class Node:
    """A group, or an array with values: numbers, flags, dates, or text as objects."""

    attributes: dict
    values: np.ndarray | None = None
    chunk: tuple | None = None
    """Its chunk shape; None where it is free."""


def encoding(kind, version, **more):
    """The attributes of a node."""
    return {"encoding-type": kind, "encoding-version": version, **more}


def text(values):
    """An array of text."""
    out = np.empty(len(values), object)
    out[:] = values
    return out


def can_be_shown(name):
    """Whether a file can have the name, and Zarr and AnnData do not use it themselves."""
    return 0 < len(name.encode()) <= 255 and not {"/", "\0"} & set(name) and name not in (".", "..", "_index", "zarr.json")


def numbers(column):
    """Values of a column of Arrow without nulls, as numpy has them."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False).view(f"M8[{column.type.unit}]")
    return column.to_numpy(zero_copy_only=False)


def is_text(of):
    return pa.types.is_string(of) or pa.types.is_large_string(of)


def rows_of(frame):
    """The table of a frame by ascending joinids, and whether it is read so."""
    table = frame.read().concat()
    order = np.argsort(table["soma_joinid"].to_numpy(), kind="stable")
    return table.take(order), np.array_equal(order, np.arange(len(order)))


def cells_of(array):
    """Coordinates (a column each) and data of a sparse array."""
    table = array.read().tables().concat()
    coordinates = [table[f"soma_dim_{i}"].to_numpy() for i in range(array.ndim)]
    return coordinates, table["soma_data"].to_numpy()


def values_of(array):
    """The values of a dense array. tiledbsoma reads flags as numbers."""
    values = array.read().to_numpy()
    return values.astype(bool) if pa.types.is_boolean(array.schema.field("soma_data").type) else values


class Model:
    """The nodes by path, `""` for the root, and the elements that are left out."""

    def __init__(self, experiment, name, layer="data"):
        self.nodes, self.left_out, measurement = {"": Node(encoding("anndata", "0.1.0"))}, set(), experiment.ms[name]
        self.rows, by_row = self.frame("obs", experiment.obs, "obs_id")
        self.columns, by_column = self.frame("var", measurement.var, "var_id")
        whole = lambda ids: np.array_equal(ids, np.arange(len(ids)))
        self.to_anndata_is_right = by_row and by_column and whole(self.rows) and whole(self.columns)
        self.group("layers")
        for key, array in self.members(measurement, "X", "layers"):
            self.matrix("X" if key == layer else f"layers/{key}", f"layers/{key}", array, self.rows, self.columns)
        for part, ids in (("obsp", self.rows), ("varp", self.columns)):
            self.group(part)
            for key, array in self.members(measurement, part):
                self.matrix(f"{part}/{key}", f"{part}/{key}", array, ids, ids)
        for part, ids in (("obsm", self.rows), ("varm", self.columns)):
            self.group(part)
            for key, array in self.members(measurement, part):
                self.table(f"{part}/{key}", array, ids)
        self.left_out |= set(measurement) - {"var", "X", "obsm", "varm", "obsp", "varp", "uns"}
        self.group("uns")
        if "uns" in measurement:
            self.uns("uns", measurement["uns"])

    def group(self, path):
        self.nodes[path] = Node(encoding("dict", "0.1.0"))

    def array(self, path, values, chunk=CHUNK, attributes=None):
        """An array of one dimension, unless `chunk` is a shape or None."""
        values = np.asarray(values)
        kind = "string-array" if values.dtype == object else "array"
        if values.size == 0:
            chunk = (1,) * values.ndim
        elif isinstance(chunk, int):
            chunk = (min(len(values), chunk),)
        self.nodes[path] = Node(encoding(kind, "0.2.0") if attributes is None else attributes, values, chunk)

    def members(self, measurement, part, shown=None):
        """The members of a collection of the measurement, without those whose names cannot be shown."""
        for key in measurement[part] if part in measurement else ():
            if can_be_shown(key):
                yield key, measurement[part][key]
            else:
                self.left_out.add(f"{shown or part}/{key}")

    # --- frames

    def frame(self, path, frame, unnamed):
        """obs, var or a frame of uns: its joinids in order, and whether it is read so."""
        table, in_order = rows_of(frame)
        joinids = table["soma_joinid"].to_numpy()
        name = json.loads(frame.metadata.get(INDEX_NAME, "null"))
        index = unnamed if name is None else name
        names = [each for each in frame.schema.names if each != "soma_joinid"]
        shown = [each for each in names if can_be_shown(each) and not is_bytes(frame.schema.field(each).type)]
        # An index is no node of its name if none can have it.
        key, kept = "_index", index in names and not is_bytes(frame.schema.field(index).type)
        if kept and name is not None and can_be_shown(name):
            key = name
        self.left_out |= {f"{path}/{each}" for each in names if each not in shown and not (kept and each == index)}
        columns = [each for each in shown if not (kept and each == index)]
        self.nodes[path] = Node(encoding("dataframe", "0.2.0", _index=key, **{"column-order": columns}))
        self.index(f"{path}/{key}", combined(table[index]) if kept else None, len(joinids), path in ("obs", "var"))
        for each in columns:
            self.column(f"{path}/{each}", combined(table[each]))
        return joinids, in_order

    def index(self, path, column, length, as_text):
        """An index, which is text in obs and var."""
        if column is not None and not as_text:
            self.column(path, column)
        elif column is None:
            self.array(path, text([str(i) for i in range(length)]) if as_text else np.arange(length))
        else:
            self.array(path, text(names_of(column)))

    def column(self, path, column):
        """A column, by its type and whether it has nulls."""
        of, nulls = column.type, column.null_count > 0
        mask = np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)
        if pa.types.is_dictionary(of):
            labels = column.dictionary
            size = "i1" if len(labels) <= 126 else "i2" if len(labels) <= 32_766 else "i4"
            codes = np.asarray(column.indices.fill_null(-1).to_numpy(zero_copy_only=False)).astype(size)
            self.nodes[path] = Node(encoding("categorical", "0.2.0", ordered=bool(of.ordered)))
            self.array(f"{path}/codes", codes)
            self.array(f"{path}/categories", text(labels.to_pylist()) if is_text(of.value_type) else numbers(labels), len(labels))
        elif is_text(of):
            self.maybe_null(path, "nullable-string-array", text([value or "" for value in column.to_pylist()]), mask)
        elif pa.types.is_boolean(of):
            self.maybe_null(path, "nullable-boolean", numbers(column.fill_null(False)), mask)
        elif pa.types.is_timestamp(of):
            values = numbers(column.cast(pa.int64()).fill_null(np.iinfo("i8").min)).view(f"M8[{of.unit}]")
            self.array(path, values)
        elif pa.types.is_floating(of):
            self.array(path, numbers(column.fill_null(float("nan"))) if nulls else numbers(column))
        else:
            self.maybe_null(path, "nullable-integer", numbers(column.fill_null(0)), mask)

    def maybe_null(self, path, kind, values, mask):
        if mask.any():
            self.nodes[path] = Node(encoding(kind, "0.1.0"))
            self.array(f"{path}/values", values)
            self.array(f"{path}/mask", mask)
        else:
            self.array(path, values)

    # --- matrices

    def matrix(self, path, element, array, rows, columns):
        """A layer, or a matrix of pairs."""
        if not isinstance(array, SPARSE | DENSE) or array.ndim != 2:
            self.left_out.add(element)
        elif isinstance(array, DENSE):
            self.dense(path, element, array, rows, columns, None)
        else:
            (i, j), data = cells_of(array)
            kept = np.isin(i, rows) & np.isin(j, columns)
            self.to_anndata_is_right &= bool(kept.all())
            i, j, data = np.searchsorted(rows, i[kept]), np.searchsorted(columns, j[kept]), data[kept]
            order = np.lexsort((j, i))
            starts = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=len(rows)))])
            shape = [len(rows), len(columns)]
            self.nodes[path] = Node(encoding("csr_matrix", "0.1.0", shape=shape))
            self.array(f"{path}/data", data[order], MATRIX_CHUNK, {})
            self.array(f"{path}/indices", j[order].astype("i4"), MATRIX_CHUNK, {})
            self.array(f"{path}/indptr", starts.astype("i4"), CHUNK, {})

    def dense(self, path, element, array, rows, columns, chunk):
        """A dense array that has all rows (and columns, unless None), which are without gaps."""
        values = values_of(array)
        ends = [rows] if columns is None else [rows, columns]
        fits = all(np.array_equal(ids, np.arange(len(ids))) and len(ids) <= length for ids, length in zip(ends, values.shape))
        if not fits:
            self.left_out.add(element)
            return
        values = values[tuple(slice(len(ids)) for ids in ends)]
        self.array(path, values, chunk(values.shape) if chunk else None)

    def table(self, path, array, rows):
        """A member of obsm or varm: dense, with zeros filled in."""
        def chunk(shape):
            most = max(1, CHUNK // max(1, shape[1]))
            return min(shape[0], 1 << (most.bit_length() - 1)), shape[1]
        if not isinstance(array, SPARSE | DENSE) or array.ndim != 2:
            self.left_out.add(path)
        elif isinstance(array, DENSE):
            self.dense(path, path, array, rows, None, chunk)
        else:
            (i, j), data = cells_of(array)
            width = array.shape[1]
            values = np.zeros((len(rows), width), data.dtype)
            kept = np.isin(i, rows) & (j < width)
            self.to_anndata_is_right &= bool(kept.all())
            values[np.searchsorted(rows, i[kept]), j[kept]] = data[kept]
            self.array(path, values, chunk(values.shape))

    # --- uns

    def uns(self, path, collection):
        """Members, and the metadata, which win."""
        scalars = {key: value for key, value in collection.metadata.items() if not key.startswith("soma_")}
        for key in collection:
            if key in scalars:
                continue
            if not can_be_shown(key):
                self.left_out.add(f"{path}/{key}")
                continue
            member, at = collection[key], f"{path}/{key}"
            hint = member.metadata.get(HINT)
            if isinstance(member, tiledbsoma.Collection):
                self.group(at)
                self.uns(at, member)
            elif isinstance(member, FRAME) and hint == "array_1d":
                self.array(at, text(rows_of(member)[0]["values"].to_pylist()))
            elif isinstance(member, FRAME) and hint == "array_2d":
                table, _ = rows_of(member)
                columns = [table[f"values_{i}"].to_pylist() for i in range(table.num_columns - 1)]
                values = np.empty((table.num_rows, len(columns)), object)
                for i, column in enumerate(columns):
                    values[:, i] = column
                self.array(at, values, None)
            elif isinstance(member, FRAME):
                self.frame(at, member, "index")
            elif isinstance(member, DENSE):
                self.array(at, values_of(member), None if member.ndim > 1 else CHUNK)
            else:
                self.coordinates(at, member)
        for key, value in scalars.items():
            if not can_be_shown(key):
                self.left_out.add(f"{path}/{key}")
                continue
            one = np.array(value, object if isinstance(value, str) else None)
            kind = "string" if isinstance(value, str) else "numeric-scalar"
            self.nodes[f"{path}/{key}"] = Node(encoding(kind, "0.2.0"), one, ())

    def coordinates(self, path, array):
        """A sparse array of uns: a frame of its cells, in row-major order."""
        coordinates, data = cells_of(array)
        order = np.lexsort(coordinates[::-1])
        names = [f"soma_dim_{i}" for i in range(array.ndim)]
        self.nodes[path] = Node(encoding("dataframe", "0.2.0", _index="_index", **{"column-order": [*names, "soma_data"]}))
        self.array(f"{path}/_index", np.arange(len(data)))
        for name, values in [*zip(names, coordinates), ("soma_data", data)]:
            self.array(f"{path}/{name}", values[order])


def names_of(column):
    """Values of an index as text, dates as pandas has them; nulls as ""."""
    of = column.type
    if pa.types.is_timestamp(of):
        numbers = column.cast(pa.int64()).drop_null().to_numpy(zero_copy_only=False)
        dates = iter(pd.DatetimeIndex(numbers.view(f"M8[{of.unit}]")).astype(str))
        return ["" if null else next(dates) for null in column.is_null().to_pylist()]
    return ["" if value is None else str(value) for value in column.to_pylist()]


def is_bytes(of):
    return pa.types.is_binary(of) or pa.types.is_large_binary(of)


def combined(column):
    """A column as one array; of no rows, too."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


# --- in HDF5

def in_hdf5(model):
    """The model of the same in HDF5, which has no dates: columns of them are left out, and an index of them is 0, 1, ..."""
    own = copy.copy(model)
    own.nodes, own.left_out = dict(model.nodes), set(model.left_out)
    is_date = lambda node: node is not None and node.values is not None and node.values.dtype.kind == "M"
    for path, node in model.nodes.items():
        if node.attributes.get("encoding-type") != "dataframe":
            continue
        key, names = node.attributes["_index"], node.attributes["column-order"]
        dates = [name for name in (key, *names) if is_date(model.nodes[f"{path}/{name}"]) or is_date(model.nodes.get(f"{path}/{name}/categories"))]
        for name in dates:
            if name == key:
                length = len(own.nodes[f"{path}/{name}"].values)
            for at in [at for at in own.nodes if at == f"{path}/{name}" or at.startswith(f"{path}/{name}/")]:
                del own.nodes[at]
            if name == key:
                own.array(f"{path}/_index", np.arange(length))
            own.left_out.add(f"{path}/{'index' if name == '_index' else name}")
        key = "_index" if key in dates else key
        own.nodes[path] = Node({**node.attributes, "_index": key, "column-order": [name for name in names if name not in dates]})
    return own


# --- as files

def document(node):
    """What zarr.json says, but for a chunk shape that is free."""
    if node.values is None:
        return {"attributes": node.attributes, "zarr_format": 3, "node_type": "group"}
    of, order = node.values.dtype, {"name": "bytes", "configuration": {"endian": "little"}}
    if of == object:
        kind, fill, codec = "string", "", {"name": "vlen-utf8"}
    elif of.kind == "M":
        kind = {"name": "numpy.datetime64", "configuration": {"unit": np.datetime_data(of)[0], "scale_factor": 1}}
        fill, codec = -(1 << 63), order
    else:
        kind, fill = of.name, False if of.kind == "b" else 0.0 if of.kind == "f" else 0
        codec = {"name": "bytes"} if of.itemsize == 1 else order
    return {
        "zarr_format": 3, "node_type": "array", "shape": list(node.values.shape), "data_type": kind,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(node.chunk or ())}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill, "codecs": [codec], "attributes": node.attributes,
    }


def files(node, chunk):
    """Names below the node and bytes of all its chunks, each of its full shape."""
    values = node.values
    if 0 in values.shape:
        return
    for index in np.ndindex(*(-(-length // side) for length, side in zip(values.shape, chunk))):
        whole = values
        if values.shape != tuple(chunk):
            part = values[tuple(slice(i * side, (i + 1) * side) for i, side in zip(index, chunk))]
            whole = np.full(chunk, "" if values.dtype == object else np.datetime64("NaT") if values.dtype.kind == "M" else 0, values.dtype)
            whole[tuple(slice(length) for length in part.shape)] = part
        name = "/".join(["c", *map(str, index)])
        if values.dtype != object:
            yield name, whole.astype(whole.dtype.newbyteorder("<")).tobytes()
        else:
            raw = [each.encode() for each in whole.ravel()]
            yield name, struct.pack("<I", len(raw)) + b"".join(struct.pack("<I", len(each)) + each for each in raw)
