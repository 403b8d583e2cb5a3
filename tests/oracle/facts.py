"""What libtiledb's API reports of schemas, fragments, metadata, enumerations and groups.

Everything is given in the words of the tree's JSON: names as the C API prints them, keys as in `schema.json` and its
neighbours. Values of cells stay raw bytes (`Raw`), so that one place, `json_value`, says how JSON shows them.
"""

import ctypes as ct
import math
import os
import struct
from dataclasses import dataclass

import numpy as np

from capi import DATATYPES, FILTER_OPTIONS, VAR, TileDBError, np_type

TEXT_BYTES = ("CHAR", "STRING_ASCII", "STRING_UTF8", "GEOM_WKT")
TEXT_WIDE = {"STRING_UTF16": "utf-16-le", "STRING_UCS2": "utf-16-le", "STRING_UTF32": "utf-32-le", "STRING_UCS4": "utf-32-le"}
OPAQUE = ("BLOB", "ANY", "GEOM_WKB")


@dataclass(frozen=True)
class Raw:
    """Bytes of one value or several values of a datatype, little-endian. `many`: shown as a list even when there is one."""

    type: str
    bytes: bytes
    many: bool = False


def json_number(x):
    """A number as JSON shows it."""
    if isinstance(x, float) and not math.isfinite(x):
        return "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"
    return x


def json_value(raw):
    """How JSON shows a value: text as a string where it decodes, opaque bytes as hex, numbers, lists of several numbers."""
    if raw is None:
        return None
    if raw.type in OPAQUE:
        return {"hex": raw.bytes.hex()}
    if raw.type in TEXT_BYTES or raw.type in TEXT_WIDE:
        try:
            return raw.bytes.decode(TEXT_WIDE.get(raw.type, "utf-8"))
        except UnicodeDecodeError:
            return {"hex": raw.bytes.hex()}
    values = [json_number(v) for v in np.frombuffer(raw.bytes, np_type(raw.type)).tolist()]
    if raw.type == "FLOAT32":
        values = [json_number(float(np.float32(v))) if isinstance(v, float) else v for v in values]
    if raw.type == "BOOL":
        values = [bool(v) if v < 2 else v for v in values]
    return values[0] if len(values) == 1 and not raw.many else values


def _cvn(number):
    return "var" if number == VAR else number


class Facts:
    """Reads facts through a `capi.Lib`."""

    def __init__(self, lib):
        self.lib = lib

    # -- schemas ---------------------------------------------------------------------------------------------

    def pipeline(self, handle):
        """A filter list; every filter with the options that the API can be asked for."""
        lib = self.lib
        count = lib.get("tiledb_filter_list_get_nfilters", handle, kind=ct.c_uint32)
        filters = []
        for i in range(count):
            one = lib.get("tiledb_filter_list_get_filter_from_index", handle, i)
            number = lib.get("tiledb_filter_get_type", one, kind=ct.c_uint32)
            name = lib.enum_name("tiledb_filter_type_to_str", number)
            filters.append({"type": name, **self.filter_options(name, one)})
        size = lib.get("tiledb_filter_list_get_max_chunk_size", handle, kind=ct.c_uint32)
        return {"max_chunk_size": size, "filters": filters}

    def filter_options(self, name, handle):
        """The options of one filter, by their names in `capi.FILTER_OPTIONS`."""
        known = FILTER_OPTIONS.get({"DICTIONARY_ENCODING": "DICTIONARY"}.get(name, name), {})
        options = {}
        for option, (number, code) in known.items():
            memory = ct.create_string_buffer(16)
            try:
                self.lib.call("tiledb_filter_get_option", handle, number, ct.cast(memory, ct.c_void_p))
            except TileDBError:
                continue
            options[option] = struct.unpack_from(code, memory.raw)[0]
        return options

    def _pointed(self, name, handle, size):
        """Bytes behind a `const void*` that a function returns; None for a null one."""
        pointer = self.lib.get(name, handle)
        return ct.string_at(pointer, size) if pointer.value else None

    def dimension(self, handle):
        """One dimension."""
        lib = self.lib
        datatype = DATATYPES[lib.get("tiledb_dimension_get_type", handle, kind=ct.c_uint32)]
        cvn = lib.get("tiledb_dimension_get_cell_val_num", handle, kind=ct.c_uint32)
        size = np_type(datatype).itemsize
        domain = extent = None
        if cvn != VAR:
            both = self._pointed("tiledb_dimension_get_domain", handle, 2 * size)
            domain = both and [Raw(datatype, both[:size]), Raw(datatype, both[size:])]
            raw = self._pointed("tiledb_dimension_get_tile_extent", handle, size)
            extent = raw and Raw(datatype, raw)
        return {
            "name": (lib.get("tiledb_dimension_get_name", handle, kind=ct.c_char_p) or b"").decode(),
            "datatype": datatype,
            "cell_val_num": _cvn(cvn),
            "domain": domain,
            "tile_extent": extent,
            "filters": self.pipeline(lib.get("tiledb_dimension_get_filter_list", handle)),
        }

    def attribute(self, handle):
        """One attribute."""
        lib = self.lib
        datatype = DATATYPES[lib.get("tiledb_attribute_get_type", handle, kind=ct.c_uint32)]
        cvn = lib.get("tiledb_attribute_get_cell_val_num", handle, kind=ct.c_uint32)
        nullable = bool(lib.get("tiledb_attribute_get_nullable", handle, kind=ct.c_uint8))
        value, size, valid = ct.c_void_p(), ct.c_uint64(), ct.c_uint8(0)
        args = (handle, ct.byref(value), ct.byref(size))
        if nullable:
            lib.call("tiledb_attribute_get_fill_value_nullable", *args, ct.byref(valid))
        else:
            lib.call("tiledb_attribute_get_fill_value", *args)
        return {
            "name": lib.get("tiledb_attribute_get_name", handle, kind=ct.c_char_p).decode(),
            "datatype": datatype,
            "cell_val_num": _cvn(cvn),
            "nullable": nullable,
            "fill_value": Raw(datatype, ct.string_at(value, size.value)),
            "fill_value_valid": bool(valid.value) if nullable else None,
            "enumeration": lib.text("tiledb_attribute_get_enumeration_name", handle) or None,
            "filters": self.pipeline(lib.get("tiledb_attribute_get_filter_list", handle)),
        }

    def label(self, handle):
        """One dimension label."""
        lib = self.lib
        get = lambda name, kind: lib.get("tiledb_dimension_label_get_" + name, handle, kind=kind)  # noqa: E731
        return {
            "name": get("name", ct.c_char_p).decode(),
            "dimension_index": get("dimension_index", ct.c_uint32),
            "uri": "/".join(get("uri", ct.c_char_p).decode().rstrip("/").split("/")[-2:]),
            "datatype": DATATYPES[get("label_type", ct.c_uint32)],
            "cell_val_num": _cvn(get("label_cell_val_num", ct.c_uint32)),
            "order": lib.enum_name("tiledb_data_order_to_str", get("label_order", ct.c_uint32)),
        }

    def schema(self, handle):
        """A schema."""
        lib = self.lib
        number = lambda name: lib.get("tiledb_array_schema_get_" + name, handle, kind=ct.c_uint32)  # noqa: E731
        layout = lambda name: lib.enum_name("tiledb_layout_to_str", number(name))  # noqa: E731
        lists = {
            part + "_filters": self.pipeline(lib.get(f"tiledb_array_schema_get_{part}_filter_list", handle))
            for part in ("coords", "offsets", "validity")
        }
        domain = lib.get("tiledb_array_schema_get_domain", handle)
        dims = [
            self.dimension(lib.get("tiledb_domain_get_dimension_from_index", domain, i))
            for i in range(lib.get("tiledb_domain_get_ndim", domain, kind=ct.c_uint32))
        ]
        attrs = [
            self.attribute(lib.get("tiledb_array_schema_get_attribute_from_index", handle, i))
            for i in range(number("attribute_num"))
        ]
        labels = [
            self.label(lib.get("tiledb_array_schema_get_dimension_label_from_index", handle, i))
            for i in range(lib.get("tiledb_array_schema_get_dimension_label_num", handle, kind=ct.c_uint64))
        ]
        return {
            "format_version": number("version"),
            "array_type": lib.enum_name("tiledb_array_type_to_str", number("array_type")),
            "allows_duplicates": bool(lib.get("tiledb_array_schema_get_allows_dups", handle, kind=ct.c_int)),
            "tile_order": layout("tile_order"),
            "cell_order": layout("cell_order"),
            "capacity": lib.get("tiledb_array_schema_get_capacity", handle, kind=ct.c_uint64),
            **lists,
            "dimensions": dims,
            "attributes": attrs,
            "dimension_labels": labels,
            "current_domain": self.current_domain(handle, dims),
        }

    def current_domain(self, schema, dims):
        """[lo, hi] for each dimension; None when empty."""
        lib = self.lib
        current = lib.get("tiledb_array_schema_get_current_domain", schema)
        if lib.get("tiledb_current_domain_get_is_empty", current, kind=ct.c_uint32):
            return None
        both = (lib.rectangle_range(current, i) for i in range(len(dims)))
        return [[Raw(d["datatype"], e) for e in ends] for d, ends in zip(dims, both)]

    # -- fragments -------------------------------------------------------------------------------------------

    def fragments(self, uri, key=None):
        """What FragmentInfo says of every fragment that it sees, oldest first."""
        lib = self.lib
        lib.use(key)
        info = lib.get("tiledb_fragment_info_alloc", uri)
        if key:
            config = lib.config(sm__encryption_type="AES_256_GCM", sm__encryption_key=key)
            lib.call("tiledb_fragment_info_set_config", info, config)
        lib.call("tiledb_fragment_info_load", info)
        count = lib.get("tiledb_fragment_info_get_fragment_num", info, kind=ct.c_uint32)
        out = [self._fragment(uri, info, i) for i in range(count)]
        lib.c.tiledb_fragment_info_free(ct.byref(info))
        lib.use()
        return out

    def _fragment(self, uri, info, i):
        lib = self.lib
        get = lambda name, kind: lib.get("tiledb_fragment_info_" + name, info, i, kind=kind)  # noqa: E731
        start, end = ct.c_uint64(), ct.c_uint64()
        lib.call("tiledb_fragment_info_get_timestamp_range", info, i, ct.byref(start), ct.byref(end))
        try:
            schema = lib.get("tiledb_fragment_info_get_array_schema", info, i)
        except TileDBError:
            # libtiledb 2.30 looks for `__array_schema.tdb` in the wrong folder when fragments of version 10
            # and later use it.
            schema = lib.get("tiledb_array_schema_load", uri)
        domain = lib.get("tiledb_array_schema_get_domain", schema)
        dims = [
            self.dimension(lib.get("tiledb_domain_get_dimension_from_index", domain, d))
            for d in range(lib.get("tiledb_domain_get_ndim", domain, kind=ct.c_uint32))
        ]
        box = [self._ends(info, dim, "non_empty_domain", i, d) for d, dim in enumerate(dims)]
        tiles = get("get_mbr_num", ct.c_uint64)
        mbrs = [[self._ends(info, dim, "mbr", i, m, d) for d, dim in enumerate(dims)] for m in range(tiles)]
        return {
            "name": lib.text("tiledb_fragment_info_get_fragment_name_v2", info, i).rsplit("/", 1)[-1],
            "format_version": get("get_version", ct.c_uint32),
            "timestamp_range": [start.value, end.value],
            "dense": bool(get("get_dense", ct.c_int32)),
            "cell_num": get("get_cell_num", ct.c_uint64),
            "size": get("get_fragment_size", ct.c_uint64),
            "schema_name": get("get_array_schema_name", ct.c_char_p).decode(),
            "has_consolidated_metadata": bool(get("has_consolidated_metadata", ct.c_int32)),
            "non_empty_domain": box,
            "mbrs": mbrs,
        }

    def _ends(self, info, dim, what, *index):
        """[lo, hi] of a dimension in a non-empty domain or an MBR."""
        lib, datatype = self.lib, dim["datatype"]
        prefix = "tiledb_fragment_info_get_" + what
        if dim["cell_val_num"] != "var":
            size = np_type(datatype).itemsize
            memory = ct.create_string_buffer(2 * size)
            lib.call(prefix + "_from_index", info, *index, ct.cast(memory, ct.c_void_p))
            return [Raw(datatype, memory.raw[:size]), Raw(datatype, memory.raw[size:])]
        a, b = ct.c_uint64(), ct.c_uint64()
        lib.call(prefix + "_var_size_from_index", info, *index, ct.byref(a), ct.byref(b))
        lo, hi = (ct.create_string_buffer(n.value or 1) for n in (a, b))
        pointers = [ct.cast(m, ct.c_void_p) for m in (lo, hi)]
        lib.call(prefix + "_var_from_index", info, *index, *pointers)
        return [Raw(datatype, lo.raw[: a.value]), Raw(datatype, hi.raw[: b.value])]

    # -- metadata, enumerations, groups ----------------------------------------------------------------------

    def metadata(self, handle, kind="array"):
        """{key bytes: {datatype, value_num, value}} of an open array or group."""
        lib, out = self.lib, {}
        for i in range(lib.get(f"tiledb_{kind}_get_metadata_num", handle, kind=ct.c_uint64)):
            name, length, datatype, count, value = ct.c_void_p(), ct.c_uint32(), ct.c_uint32(), ct.c_uint32(), ct.c_void_p()
            refs = [ct.byref(x) for x in (name, length, datatype, count, value)]
            lib.call(f"tiledb_{kind}_get_metadata_from_index", handle, i, *refs)
            word = DATATYPES[datatype.value]
            raw = ct.string_at(value, count.value * np_type(word).itemsize) if value.value else b""
            out[ct.string_at(name, length.value)] = {
                "datatype": word,
                "value_num": count.value if value.value else 0,
                "value": Raw(word, raw) if value.value else None,
            }
        return out

    def enumeration(self, handle):
        """One enumeration of a loaded schema; `values` is a list of raw values."""
        lib = self.lib
        datatype = DATATYPES[lib.get("tiledb_enumeration_get_type", handle, kind=ct.c_uint32)]
        cvn = lib.get("tiledb_enumeration_get_cell_val_num", handle, kind=ct.c_uint32)
        parts = []
        for part in ("data", "offsets"):
            start, size = ct.c_void_p(), ct.c_uint64()
            lib.call(f"tiledb_enumeration_get_{part}", handle, ct.byref(start), ct.byref(size))
            parts.append(ct.string_at(start, size.value) if size.value else b"")
        data, starts = parts[0], np.frombuffer(parts[1], "<u8").tolist()
        if cvn != VAR:
            starts = list(range(0, len(data), cvn * np_type(datatype).itemsize))
        ends = starts[1:] + [len(data)]
        return {
            "name": lib.text("tiledb_enumeration_get_name", handle),
            "datatype": datatype,
            "cell_val_num": _cvn(cvn),
            "ordered": bool(lib.get("tiledb_enumeration_get_ordered", handle, kind=ct.c_int)),
            "values": [Raw(datatype, data[a:b]) for a, b in zip(starts, ends)],
        }

    def enumerations(self, array, schema):
        """{name: enumeration} of those that the attributes of an open array name."""
        names = {a["enumeration"] for a in schema["attributes"] if a["enumeration"]}
        return {n: self.enumeration(self.lib.get("tiledb_array_get_enumeration", array, n)) for n in sorted(names)}

    def group(self, uri):
        """Members (name, type, URI's last segment or the path inside the group) and metadata of a group."""
        lib = self.lib
        group = lib.open_group(uri, 0)
        members = []
        for i in range(lib.get("tiledb_group_get_member_count", group, kind=ct.c_uint64)):
            where, kind, name = ct.c_void_p(), ct.c_uint32(), ct.c_void_p()
            refs = [ct.byref(x) for x in (where, kind, name)]
            lib.call("tiledb_group_get_member_by_index_v2", group, i, *refs)
            members.append({
                "uri": self._owned(where).removeprefix("file://"),
                "type": lib.enum_name("tiledb_object_type_to_str", kind.value),
                "name": self._owned(name) if name.value else None,
            })
        metadata = self.metadata(group, "group")
        lib.close_group(group)
        return {"members": members, "metadata": metadata}

    def _owned(self, handle):
        """The text of a `tiledb_string_t`, which is freed."""
        start, size = ct.c_void_p(), ct.c_size_t()
        self.lib.c.tiledb_string_view(handle, ct.byref(start), ct.byref(size))
        text = ct.string_at(start, size.value).decode() if size.value else ""
        self.lib.c.tiledb_string_free(ct.byref(handle))
        return text


def is_array(path):
    """Whether a directory is an array, as libtiledb decides it."""
    return os.path.isdir(os.path.join(path, "__schema")) or os.path.isfile(os.path.join(path, "__array_schema.tdb"))


def is_group(path):
    """Whether a directory is a group."""
    return os.path.isdir(os.path.join(path, "__group")) or os.path.isfile(os.path.join(path, "__tiledb_group.tdb"))
