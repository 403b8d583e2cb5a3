"""libtiledb through its C API, for what TileDB-Py cannot express.

The shared library is the one inside the installed `tiledb` wheel. Nothing here knows the on-disk format: schemas,
writes and reads all go through the library, which is what the tests compare tiledbfs with.
"""

import ctypes as ct
import glob
import importlib.util
import os
import struct
from dataclasses import dataclass, field

import numpy as np

VAR = 0xFFFFFFFF
"""`cell_val_num` of var-sized cells."""

DATATYPES = (
    "INT32 INT64 FLOAT32 FLOAT64 CHAR INT8 UINT8 INT16 UINT16 UINT32 UINT64 STRING_ASCII STRING_UTF8 STRING_UTF16 "
    "STRING_UTF32 STRING_UCS2 STRING_UCS4 ANY DATETIME_YEAR DATETIME_MONTH DATETIME_WEEK DATETIME_DAY DATETIME_HR "
    "DATETIME_MIN DATETIME_SEC DATETIME_MS DATETIME_US DATETIME_NS DATETIME_PS DATETIME_FS DATETIME_AS TIME_HR "
    "TIME_MIN TIME_SEC TIME_MS TIME_US TIME_NS TIME_PS TIME_FS TIME_AS BLOB BOOL GEOM_WKB GEOM_WKT"
).split()
TYPE_ID = {name: i for i, name in enumerate(DATATYPES)}

_PLAIN = {
    "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4",
    "UINT64": "<u8", "FLOAT32": "<f4", "FLOAT64": "<f8", "STRING_UTF16": "<u2", "STRING_UCS2": "<u2",
    "STRING_UTF32": "<u4", "STRING_UCS4": "<u4",
}


def np_type(datatype):
    """The NumPy type of the stored integers, floats or code units of a datatype."""
    if datatype.startswith(("DATETIME_", "TIME_")):
        return np.dtype("<i8")
    return np.dtype(_PLAIN.get(datatype, "u1"))


FILTER_ID = {
    "NONE": 0, "GZIP": 1, "ZSTD": 2, "LZ4": 3, "RLE": 4, "BZIP2": 5, "DOUBLE_DELTA": 6, "BIT_WIDTH_REDUCTION": 7,
    "BITSHUFFLE": 8, "BYTESHUFFLE": 9, "POSITIVE_DELTA": 10, "CHECKSUM_MD5": 12, "CHECKSUM_SHA256": 13,
    "DICTIONARY": 14, "SCALE_FLOAT": 15, "XOR": 16, "WEBP": 18, "DELTA": 19,
}
_COMPRESSION = {"level": (0, "<i")}
_DELTAS = {"level": (0, "<i"), "reinterpret": (9, "<B")}
FILTER_OPTIONS = {
    **{f: _COMPRESSION for f in ("GZIP", "ZSTD", "LZ4", "RLE", "BZIP2", "DICTIONARY")},
    "DOUBLE_DELTA": _DELTAS,
    "DELTA": _DELTAS,
    "BIT_WIDTH_REDUCTION": {"window": (1, "<I")},
    "POSITIVE_DELTA": {"window": (2, "<I")},
    "SCALE_FLOAT": {"byte_width": (3, "<Q"), "scale": (4, "<d"), "offset": (5, "<d")},
    "WEBP": {"quality": (6, "<f"), "format": (7, "<B"), "lossless": (8, "<B")},
}
"""Options of each filter: the number in the C API and the type of the value. Absent: the filter has none."""

LAYOUT_ID = {"row-major": 0, "col-major": 1, "global-order": 2, "unordered": 3, "hilbert": 4}


class TileDBError(Exception):
    """libtiledb refused."""


@dataclass
class Pipeline:
    """Filters as (name, options) in the order of writing, and the limit on a chunk in bytes (None: the default)."""

    filters: list = field(default_factory=list)
    max_chunk: int | None = None


@dataclass
class Attr:
    """An attribute. `pipeline` None: no filters."""

    name: str
    type: str
    cvn: int = 1
    nullable: bool = False
    pipeline: Pipeline | None = None
    fill: bytes | None = None
    enumeration: str | None = None


@dataclass
class Dim:
    """A dimension. Strings have neither domain nor extent. `pipeline` None: the library's default."""

    name: str
    type: str
    lo: object = None
    hi: object = None
    extent: object = None
    pipeline: Pipeline | None = None


@dataclass
class Label:
    """A dimension label; `order` is 1 for increasing, 2 for decreasing."""

    dim: int
    name: str
    type: str
    order: int = 1


@dataclass
class Enum:
    """An enumeration. `values`: a list of byte strings (var-sized) or a NumPy array, with two axes if a value has several elements."""

    name: str
    type: str
    values: object
    ordered: bool = False


@dataclass
class Schema:
    """An array schema."""

    kind: str
    dims: list
    attrs: list
    cell_order: str = "row-major"
    tile_order: str = "row-major"
    capacity: int | None = None
    dups: bool = False
    coords: Pipeline | None = None
    offsets: Pipeline | None = None
    validity: Pipeline | None = None
    enums: list = field(default_factory=list)
    labels: list = field(default_factory=list)
    current_domain: list | None = None


@dataclass
class Column:
    """Cells of one field: bytes of the values, byte offsets of the cells (var-sized) and one validity byte a cell (nullable)."""

    data: np.ndarray
    offsets: np.ndarray | None = None
    validity: np.ndarray | None = None

    @staticmethod
    def of_cells(cells, validity=None):
        """A var-sized column from a list of byte strings."""
        lengths = np.fromiter((len(c) for c in cells), "<u8", len(cells))
        offsets = np.zeros(len(cells), "<u8")
        np.cumsum(lengths[:-1], out=offsets[1:]) if len(cells) else None
        return Column(np.frombuffer(b"".join(cells), "u1"), offsets, validity)


class _Range(ct.Structure):
    """tiledb_range_t"""

    _fields_ = [("min", ct.c_void_p), ("min_size", ct.c_uint64), ("max", ct.c_void_p), ("max_size", ct.c_uint64)]


def library_path():
    """Where the `tiledb` wheel keeps libtiledb."""
    package = os.path.dirname(importlib.util.find_spec("tiledb").origin)
    for pattern in (package + ".libs/libtiledb*.so*", package + "/libtiledb.so*", package + "/lib*/libtiledb.so*"):
        found = sorted(glob.glob(pattern))
        if found:
            return found[0]
    raise TileDBError("no libtiledb in " + package)


def _convert(value):
    """A Python value as an argument of a C function."""
    if value is None:
        return ct.c_void_p(None)
    if isinstance(value, (bool, int, np.integer)):
        return ct.c_int64(int(value)) if value < 0 else ct.c_uint64(int(value))
    if isinstance(value, (str, bytes)):
        return ct.c_char_p(value.encode() if isinstance(value, str) else value)
    if isinstance(value, np.ndarray):
        return ct.c_void_p(value.ctypes.data)
    return value


class Lib:
    """libtiledb with one context for each configuration (a configuration may hold an encryption key)."""

    def __init__(self):
        self.c = ct.CDLL(library_path())
        self._contexts = {}
        self.use()

    # -- calls -----------------------------------------------------------------------------------------------

    def use(self, key=None, **settings):
        """Makes a context with these settings (`__` stands for `.`) the current one."""
        if key:
            settings |= {"sm__encryption_type": "AES_256_GCM", "sm__encryption_key": key}
        ident = tuple(sorted(settings.items()))
        if ident not in self._contexts:
            config = self.config(**settings)
            context = ct.c_void_p()
            if self.c.tiledb_ctx_alloc(config, ct.byref(context)) != 0:
                raise TileDBError("tiledb_ctx_alloc")
            self._contexts[ident] = context
        self.ctx = self._contexts[ident]

    def config(self, **settings):
        """A configuration, always with two threads."""
        config, error = ct.c_void_p(), ct.c_void_p()
        self.c.tiledb_config_alloc(ct.byref(config), ct.byref(error))
        base = {"sm__compute_concurrency_level": "2", "sm__io_concurrency_level": "2"}
        for name, value in (base | settings).items():
            raw = value if isinstance(value, bytes) else str(value).encode()
            if self.c.tiledb_config_set(config, name.replace("__", ".").encode(), raw, ct.byref(error)) != 0:
                raise TileDBError("tiledb_config_set " + name)
        return config

    def call(self, name, *args):
        """Calls a function that takes the context first and returns a status."""
        if getattr(self.c, name)(self.ctx, *[_convert(a) for a in args]) != 0:
            raise TileDBError(f"{name}: {self._last_error()}")

    def get(self, name, *args, kind=ct.c_void_p):
        """Calls a function whose last argument points to its result."""
        out = kind()
        self.call(name, *args, ct.byref(out))
        return out if kind is ct.c_void_p else out.value

    def text(self, name, *args):
        """Calls a function whose result is a `tiledb_string_t`; None for a null one."""
        handle = self.get(name, *args)
        if not handle.value:
            return None
        start, size = ct.c_void_p(), ct.c_size_t()
        self.c.tiledb_string_view(handle, ct.byref(start), ct.byref(size))
        raw = ct.string_at(start, size.value) if size.value else b""
        self.c.tiledb_string_free(ct.byref(handle))
        return raw.decode("utf-8", "surrogateescape")

    def enum_name(self, name, number):
        """What one of the `tiledb_*_to_str` functions prints."""
        out = ct.c_char_p()
        getattr(self.c, name)(ct.c_uint32(number), ct.byref(out))
        return out.value.decode()

    def _last_error(self):
        error, message = ct.c_void_p(), ct.c_char_p()
        self.c.tiledb_ctx_get_last_error(self.ctx, ct.byref(error))
        if not error.value:
            return "no message"
        self.c.tiledb_error_message(error, ct.byref(message))
        return (message.value or b"").decode("utf-8", "replace")

    # -- schemas ---------------------------------------------------------------------------------------------

    def filter_list(self, pipeline):
        """A handle for a `Pipeline`."""
        handle = self.get("tiledb_filter_list_alloc")
        for name, options in pipeline.filters:
            one = self.get("tiledb_filter_alloc", FILTER_ID[name])
            for option, value in options.items():
                number, code = FILTER_OPTIONS[name][option]
                raw = ct.create_string_buffer(struct.pack(code, value))
                self.call("tiledb_filter_set_option", one, number, ct.cast(raw, ct.c_void_p))
            self.call("tiledb_filter_list_add_filter", handle, one)
        if pipeline.max_chunk:
            self.call("tiledb_filter_list_set_max_chunk_size", handle, pipeline.max_chunk)
        return handle

    def attribute(self, attr):
        """A handle for an `Attr`."""
        handle = self.get("tiledb_attribute_alloc", attr.name, TYPE_ID[attr.type])
        self.call("tiledb_attribute_set_cell_val_num", handle, attr.cvn)
        self.call("tiledb_attribute_set_nullable", handle, attr.nullable)
        if attr.pipeline:
            self.call("tiledb_attribute_set_filter_list", handle, self.filter_list(attr.pipeline))
        if attr.fill is not None:
            raw = ct.cast(ct.create_string_buffer(attr.fill, len(attr.fill)), ct.c_void_p)
            if attr.nullable:
                self.call("tiledb_attribute_set_fill_value_nullable", handle, raw, len(attr.fill), 1)
            else:
                self.call("tiledb_attribute_set_fill_value", handle, raw, len(attr.fill))
        if attr.enumeration:
            self.call("tiledb_attribute_set_enumeration_name", handle, attr.enumeration)
        return handle

    def dimension(self, dim):
        """A handle for a `Dim`."""
        domain = extent = None
        if dim.type != "STRING_ASCII":
            domain = np.array([dim.lo, dim.hi], np_type(dim.type))
            extent = None if dim.extent is None else np.array([dim.extent], np_type(dim.type))
        handle = self.get("tiledb_dimension_alloc", dim.name, TYPE_ID[dim.type], domain, extent)
        if dim.pipeline:
            self.call("tiledb_dimension_set_filter_list", handle, self.filter_list(dim.pipeline))
        return handle

    def enumeration(self, enum):
        """A handle for an `Enum`."""
        if isinstance(enum.values, np.ndarray):
            data, offsets, cvn = np.ascontiguousarray(enum.values), None, enum.values.shape[1] if enum.values.ndim > 1 else 1
        else:
            column = Column.of_cells(enum.values)
            data, offsets, cvn = column.data, column.offsets, VAR
        sizes = (data if data.nbytes else None, data.nbytes, offsets, 0 if offsets is None else offsets.nbytes)
        return self.get("tiledb_enumeration_alloc", enum.name, TYPE_ID[enum.type], cvn, enum.ordered, *sizes)

    def schema(self, schema, timestamp=None):
        """A checked handle for a `Schema`, stamped with `timestamp`."""
        handle = ct.c_void_p()
        kind = int(schema.kind == "sparse")
        if timestamp is None:
            self.call("tiledb_array_schema_alloc", kind, ct.byref(handle))
        else:
            self.call("tiledb_array_schema_alloc_at_timestamp", kind, timestamp, ct.byref(handle))
        domain = self.get("tiledb_domain_alloc")
        for dim in schema.dims:
            self.call("tiledb_domain_add_dimension", domain, self.dimension(dim))
        self.call("tiledb_array_schema_set_domain", handle, domain)
        self.call("tiledb_array_schema_set_cell_order", handle, LAYOUT_ID[schema.cell_order])
        self.call("tiledb_array_schema_set_tile_order", handle, LAYOUT_ID[schema.tile_order])
        if schema.capacity:
            self.call("tiledb_array_schema_set_capacity", handle, schema.capacity)
        if schema.kind == "sparse":
            self.call("tiledb_array_schema_set_allows_dups", handle, schema.dups)
        for part in ("coords", "offsets", "validity"):
            if getattr(schema, part):
                filters = self.filter_list(getattr(schema, part))
                self.call(f"tiledb_array_schema_set_{part}_filter_list", handle, filters)
        for enum in schema.enums:
            self.call("tiledb_array_schema_add_enumeration", handle, self.enumeration(enum))
        for attr in schema.attrs:
            self.call("tiledb_array_schema_add_attribute", handle, self.attribute(attr))
        for label in schema.labels:
            args = (label.dim, label.name, label.order, TYPE_ID[label.type])
            self.call("tiledb_array_schema_add_dimension_label", handle, *args)
        if schema.current_domain:
            current = self.current_domain(domain, schema.dims, schema.current_domain)
            self.call("tiledb_array_schema_set_current_domain", handle, current)
        self.call("tiledb_array_schema_check", handle)
        return handle

    def current_domain(self, domain, dims, ranges):
        """A handle for the current domain with these (lo, hi) by dimension."""
        rectangle = self.get("tiledb_ndrectangle_alloc", domain)
        for dim, ends in zip(dims, ranges):
            raw = [e if isinstance(e, bytes) else np.array([e], np_type(dim.type)).tobytes() for e in ends]
            keep = [ct.create_string_buffer(r, max(len(r), 1)) for r in raw]
            lo, hi = (ct.cast(k, ct.c_void_p) for k in keep)
            bounds = _Range(lo, len(raw[0]), hi, len(raw[1]))
            self.call("tiledb_ndrectangle_set_range_for_name", rectangle, dim.name, ct.byref(bounds))
        handle = self.get("tiledb_current_domain_create")
        self.call("tiledb_current_domain_set_ndrectangle", handle, rectangle)
        return handle

    def rectangle_range(self, current_domain, index):
        """The (lo, hi) bytes of dimension `index` of a current domain."""
        rectangle = self.get("tiledb_current_domain_get_ndrectangle", current_domain)
        bounds = _Range()
        self.call("tiledb_ndrectangle_get_range", rectangle, index, ct.byref(bounds))
        ends = ((bounds.min, bounds.min_size), (bounds.max, bounds.max_size))
        return [ct.string_at(p, n) if n else b"" for p, n in ends]

    # -- arrays ----------------------------------------------------------------------------------------------

    def create(self, uri, schema, timestamp=None, key=None):
        """Creates an array from a `Schema` or from a schema handle."""
        self.use(key)
        handle = self.schema(schema, timestamp) if isinstance(schema, Schema) else schema
        self.call("tiledb_array_create", uri, handle)
        self.use()

    def open(self, uri, mode, timestamp=None, key=None, start=None, **settings):
        """Opens an array; `mode` is one of the query types (0 read, 1 write, 2 delete)."""
        self.use(key, **settings)
        array = self.get("tiledb_array_alloc", uri)
        try:
            if start is not None:
                self.call("tiledb_array_set_open_timestamp_start", array, start)
            if timestamp is not None:
                self.call("tiledb_array_set_open_timestamp_end", array, timestamp)
            self.call("tiledb_array_open", array, mode)
        except TileDBError:
            self.c.tiledb_array_free(ct.byref(array))
            raise
        return array

    def close(self, array):
        """Closes and frees an array."""
        self.call("tiledb_array_close", array)
        self.c.tiledb_array_free(ct.byref(array))
        self.use()

    def _set_buffer(self, query, name, column, sizes):
        """Hands the memory of a column to a query; `sizes` receives the sizes that libtiledb may change."""
        empty = sizes.setdefault("empty", np.zeros(1, "<u8"))
        for part, suffix in (("data", "data"), ("offsets", "offsets"), ("validity", "validity")):
            memory = getattr(column, part)
            if memory is None:
                continue
            memory = np.ascontiguousarray(memory)
            size = ct.c_uint64(memory.nbytes)
            sizes[name, part] = (memory, size)
            start = memory if memory.nbytes else empty
            self.call(f"tiledb_query_set_{suffix}_buffer", query, name, start, ct.byref(size))

    def _set_ranges(self, array, query, ranges):
        """Restricts a query to one range for each dimension, given as arrays of two values."""
        subarray = self.get("tiledb_subarray_alloc", array)
        for i, ends in enumerate(ranges):
            lo, hi = ends[:1].copy(), ends[1:].copy()
            self.call("tiledb_subarray_add_range", subarray, i, lo, hi, None)
        self.call("tiledb_query_set_subarray_t", query, subarray)

    def write(self, uri, columns, layout=None, ranges=None, timestamp=None, key=None, settings=None):
        """Writes one fragment, with a configuration of `settings`. Dense: `ranges` gives the written box. The default layout is row-major for a box, else unordered."""
        array = self.open(uri, 1, timestamp, key, **(settings or {}))
        query = self.get("tiledb_query_alloc", array, 1)
        sizes = {}
        try:
            layout = layout or ("row-major" if ranges is not None else "unordered")
            self.call("tiledb_query_set_layout", query, LAYOUT_ID[layout])
            if ranges is not None:
                self._set_ranges(array, query, ranges)
            for name, column in columns.items():
                self._set_buffer(query, name, column, sizes)
            self.call("tiledb_query_submit", query)
            self.call("tiledb_query_finalize", query)
        finally:
            self.c.tiledb_query_free(ct.byref(query))
            self.close(array)

    def read(self, array, fields, layout, ranges=None, cells=1 << 16):
        """Reads fields (name, datatype, cvn, nullable) of an open array into `Column`s; `cells` is a guess of their number."""
        room = max(64 * cells, 1 << 16)
        while True:
            query = self.get("tiledb_query_alloc", array, 0)
            sizes = {}
            try:
                self.call("tiledb_query_set_layout", query, LAYOUT_ID[layout])
                if ranges is not None:
                    self._set_ranges(array, query, ranges)
                for name, datatype, cvn, nullable in fields:
                    size = room if cvn == VAR else (cells + 1) * cvn * np_type(datatype).itemsize
                    column = Column(
                        np.empty(size, "u1"),
                        np.empty(cells + 1, "<u8") if cvn == VAR else None,
                        np.empty(cells + 1, "u1") if nullable else None,
                    )
                    self._set_buffer(query, name, column, sizes)
                self.call("tiledb_query_submit", query)
                status = self.get("tiledb_query_get_status", query, kind=ct.c_uint32)
            finally:
                self.c.tiledb_query_free(ct.byref(query))
            if status == 1:
                return {f[0]: self._filled(f[0], sizes) for f in fields}
            if status != 3 or room > 1 << 30:
                raise TileDBError(f"query status {status}")
            room, cells = room * 4, cells * 2

    @staticmethod
    def _filled(name, sizes):
        """The parts of buffers that a read has filled."""
        parts = {}
        for part in ("data", "offsets", "validity"):
            memory, size = sizes.get((name, part), (None, None))
            parts[part] = None if memory is None else memory[: size.value // memory.itemsize]
        return Column(**parts)

    def put_metadata(self, uri, items, deletes=(), timestamp=None, key=None, kind="array"):
        """Writes metadata: items are (key, datatype, NumPy array or bytes)."""
        handle = self.open(uri, 1, timestamp, key) if kind == "array" else self.open_group(uri, 1, timestamp)
        for name, datatype, value in items:
            raw = value if isinstance(value, bytes) else np.ascontiguousarray(value, np_type(datatype)).tobytes()
            count = len(raw) // np_type(datatype).itemsize
            memory = np.frombuffer(raw, "u1") if raw else None
            self.call(f"tiledb_{kind}_put_metadata", handle, name, TYPE_ID[datatype], count or 1, memory)
        for name in deletes:
            self.call(f"tiledb_{kind}_delete_metadata", handle, name)
        self.close(handle) if kind == "array" else self.close_group(handle)

    def consolidate(self, uri, mode="fragments", vacuum=False, key=None, **settings):
        """Consolidates, and vacuums on request. `settings` as for `use`."""
        self.use(key, sm__consolidation__mode=mode, sm__mem__total_budget=64 << 20, **settings)
        self.call("tiledb_array_consolidate", uri, None)
        if vacuum:
            self.use(key, sm__vacuum__mode=mode)
            self.call("tiledb_array_vacuum", uri, None)
        self.use()

    def evolve(self, uri, timestamp, add=(), drop=(), enums=(), extend=None, current_domain=None):
        """Evolves the schema. `extend`: name of an enumeration and the additional values."""
        evolution = self.get("tiledb_array_schema_evolution_alloc")
        for enum in enums:
            self.call("tiledb_array_schema_evolution_add_enumeration", evolution, self.enumeration(enum))
        if extend:
            self._extend(uri, evolution, *extend)
        for attr in add:
            self.call("tiledb_array_schema_evolution_add_attribute", evolution, self.attribute(attr))
        for name in drop:
            self.call("tiledb_array_schema_evolution_drop_attribute", evolution, name)
        if current_domain:
            dims, ranges = current_domain
            schema = self.get("tiledb_array_schema_load", uri)
            domain = self.get("tiledb_array_schema_get_domain", schema)
            current = self.current_domain(domain, dims, ranges)
            self.call("tiledb_array_schema_evolution_expand_current_domain", evolution, current)
        self.call("tiledb_array_schema_evolution_set_timestamp_range", evolution, timestamp, timestamp)
        self.call("tiledb_array_evolve", uri, evolution)

    def _extend(self, uri, evolution, name, values):
        """Adds values to an existing enumeration of byte strings."""
        array = self.open(uri, 0)
        old = self.get("tiledb_array_get_enumeration", array, name)
        more = Column.of_cells(values)
        args = (more.data, more.data.nbytes, more.offsets, more.offsets.nbytes)
        new = self.get("tiledb_enumeration_extend", old, *args)
        self.call("tiledb_array_schema_evolution_extend_enumeration", evolution, new)
        self.close(array)

    def delete(self, uri, condition, timestamp, key=None):
        """Writes a delete condition: (field, operator, value) or ("and" | "or" | "not", conditions…) or ("in", field, byte strings)."""
        array = self.open(uri, 2, timestamp, key)
        query = self.get("tiledb_query_alloc", array, 2)
        self.call("tiledb_query_set_condition", query, self.condition(condition))
        self.call("tiledb_query_submit", query)
        self.c.tiledb_query_free(ct.byref(query))
        self.close(array)

    def condition(self, condition):
        """A handle for a condition as `delete` takes it. Values are NumPy scalars or byte strings."""
        op, *args = condition
        if op in ("and", "or"):
            left, right = (self.condition(a) for a in args)
            return self.get("tiledb_query_condition_combine", left, right, int(op == "or"))
        if op == "not":
            return self.get("tiledb_query_condition_negate", self.condition(args[0]))
        if op in ("in", "not_in"):
            cells = Column.of_cells([v if isinstance(v, bytes) else v.tobytes() for v in args[1]])
            sizes = (cells.data, cells.data.nbytes, cells.offsets, cells.offsets.nbytes)
            return self.get("tiledb_query_condition_alloc_set_membership", args[0], *sizes, 6 if op == "in" else 7)
        name, comparison, value = condition
        raw = np.frombuffer(value if isinstance(value, bytes) else value.tobytes(), "u1")
        handle = self.get("tiledb_query_condition_alloc")
        number = ("<", "<=", ">", ">=", "==", "!=").index(comparison)
        self.call("tiledb_query_condition_init", handle, name, raw, raw.nbytes, number)
        return handle

    # -- groups ----------------------------------------------------------------------------------------------

    def create_group(self, uri):
        """Creates a group."""
        self.use()
        self.call("tiledb_group_create", uri)

    def open_group(self, uri, mode, timestamp=None):
        """Opens a group."""
        self.use()
        group = self.get("tiledb_group_alloc", uri)
        if timestamp is not None:
            self.call("tiledb_group_set_config", group, self.config(sm__group__timestamp_end=timestamp))
        self.call("tiledb_group_open", group, mode)
        return group

    def close_group(self, group):
        """Closes and frees a group."""
        self.call("tiledb_group_close", group)
        self.c.tiledb_group_free(ct.byref(group))

    def change_group(self, uri, add=(), remove=(), timestamp=None):
        """Adds members (URI, relative, name or None) and removes others by name."""
        group = self.open_group(uri, 1, timestamp)
        for member, relative, name in add:
            self.call("tiledb_group_add_member", group, member, relative, name)
        for name in remove:
            self.call("tiledb_group_remove_member", group, name)
        self.close_group(group)
