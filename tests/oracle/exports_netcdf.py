"""The oracle test of `array.nc`: what real readers get from a mount against what libtiledb says.

    python3 exports_netcdf.py --family FOLDER    arrays with libtiledb's answers: `data` of each, with `--all` every view of theirs
    python3 exports_netcdf.py --source FOLDER    any arrays: `data` of each, held against what libtiledb reads now

Readers: the file system alone, at random places, before the others; netCDF4, h5py, pyfive, xarray (with netcdf4 and with h5netcdf, decoded and not), and `numpy.memmap` at the offset of each variable
and of each chunk; of a fixed share of the files ncdump, nccopy and gdalmdiminfo too, where they are installed. Compared are names, dimensions, types, values, attributes,
and sizes. Arrays without such a file must say why. The last line is `N passed, N failed`, counting pairs of file and reader, and absent files.
"""

import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
import warnings
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pyfive
import xarray

import fragment_cover
import names
from capi import Lib, TileDBError, np_type
from facts import TEXT_BYTES, Facts, json_value
from grids import NOT_A_TIME, chunk_shape, days, unique, units, within
from mount import mounted
from shares import belongs, share
from view_files import Differs, ViewField, ViewTruth, load, same
from views import FAMILY_KEY, chosen, family_view, shown_path

CODES = {"days": "D", "hours": "h", "minutes": "m", "seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
NAT = np.int64(NOT_A_TIME)
HIDDEN = {"CLASS", "DIMENSION_LIST", "NAME", "REFERENCE_LIST"}
"""Attributes of HDF5's dimension scales, which netcdf-c shows nowhere."""
COMMAND_LINE_SHARE = 8
"""One file in this many is also read by command-line programs."""


# -- what there should be ------------------------------------------------------------------------------------


class Variable:
    """A variable: its values with one axis per dimension, text as `S1`; the sides of its chunks, None if it is contiguous, and the cell that pads them."""

    def __init__(self, dims, values, attrs, chunks=None, fill=None):
        self.dims, self.values, self.attrs, self.chunks, self.fill = dims, values, attrs, chunks, fill


def nc_name(encoded):
    """netCDF's form of a name under `columns/`."""
    name = re.sub(r"[\x01-\x1f\x7f]", lambda found: f"%{ord(found[0]):02X}", unicodedata.normalize("NFC", encoded))
    name = re.sub(" $", "%20", name)
    return within(name if re.match(r"[A-Za-z0-9_]|[^\x00-\x7f]", encoded) else "_" + name, 255)


def meaning(label):
    """A label as a word of `flag_meanings`."""
    return re.sub(r"\s+", "_", label) or "_"


def fits(name, value):
    """Whether an attribute fits into a message of HDF5."""
    if isinstance(value, str):
        return 23 + len(name.encode()) + len(value.encode()) <= 65_535
    datatype = 20 if value.dtype.kind == "f" else 12
    return 10 + len(name.encode()) + datatype + (12 if value.size > 1 else 4) + value.nbytes <= 65_535


class Expected:
    """The expected content of the file of a view."""

    def __init__(self, view, schema, enumerations, covered):
        self.taken = {nc_name(names.encode(f.name) if f.name else fallback(view, f)) for f in view.fields}
        self.view, self.schema, self.enumerations, self.covered = view, schema, enumerations, covered
        self.attrs = {"Conventions": "CF-1.12"} | {key: value for key, value in self._metadata() if fits(key, value)}
        self.variables, self.axes = {}, []
        for one in view.fields:
            name = nc_name(names.encode(one.name) if one.name else fallback(view, one))
            if one.kind == "dimension":
                self.axes.append(name)
                values = np.frombuffer(one.data, np_type(one.type))
                self.variables[name] = Variable([name], *self._time(one, values, True))
        for one in view.fields:
            if one.kind == "attribute":
                self._attribute(one, nc_name(names.encode(one.name or "__attr")))

    def _metadata(self):
        shown = {nc_name(names.encode(key)) for key in self.view.facts["metadata"] if not key.startswith("_")}
        for key, entry in self.view.facts["metadata"].items():
            value, datatype = entry["value"], entry["datatype"]
            if key.startswith("_") or isinstance(value, dict) or datatype in ("BLOB", "ANY", "GEOM_WKB"):
                continue
            key = nc_name(names.encode(key))
            if key in HIDDEN:
                key = unique(key, "_", shown)
            if datatype.startswith("STRING") or datatype in TEXT_BYTES:
                yield key, value or ""
            elif entry["value_num"]:
                numbers = value if isinstance(value, list) else [value]
                if datatype == "BOOL":
                    numbers = [bool(n) for n in numbers]
                dtype = "i1" if datatype == "BOOL" else np_type(datatype)
                yield key, np.array([float(n) if isinstance(n, str) else n for n in numbers], dtype)

    @staticmethod
    def _time(one, values, axis=False):
        """Dates as in the file, with their units."""
        unit = one.type.removeprefix("DATETIME_")
        if unit in ("YEAR", "MONTH", "WEEK"):
            converted = np.array([days(unit, int(v)) for v in values.reshape(-1)], "i8").reshape(values.shape)
            if axis and (converted == NAT).any():
                return values, {}
            values = converted
        return values, units(one.type)

    def _attribute(self, one, name):
        attribute = next(a for a in self.schema["attributes"] if a["name"] == one.name)
        text = one.type in TEXT_BYTES and one.type != "GEOM_WKT"
        other = one.type in ("BLOB", "ANY", "GEOM_WKB", "GEOM_WKT") or one.type.startswith("STRING") and not text
        if one.cvn == "var" or other:
            return
        dtype = np.dtype("S1") if text else np.dtype("i1") if one.type == "BOOL" else np_type(one.type)
        inner = [one.cvn] if text or one.cvn > 1 else []
        values = np.frombuffer(one.data, dtype).reshape([*one.shape, *inner]).copy()
        fill = np.frombuffer(attribute["fill_value"].bytes, dtype)
        if one.type == "BOOL":
            values, fill = (values != 0).astype("i1"), (fill != 0).astype("i1")
        values, attrs = self._time(one, values)
        fill, _ = self._time(one, fill)
        missing = one.nullable or not self.covered and dtype.itemsize > 1
        if one.type.startswith("DATETIME"):
            attrs["_FillValue"] = NAT
        elif dtype.kind == "f" or missing and dtype.kind != "S" and one.type != "BOOL":
            if (fill.view(f"u{dtype.itemsize}") == fill.view(f"u{dtype.itemsize}")[0]).all():
                attrs["_FillValue"] = fill[0]
        if one.type == "BOOL":
            attrs["dtype"] = "bool"
        if attribute["enumeration"]:
            labels = self.enumerations[attribute["enumeration"]]
            if labels and isinstance(labels[0], str):
                values_and_meanings = np.arange(len(labels)).astype(dtype), " ".join(map(meaning, labels))
                if all(fits(name, value) for name, value in zip(("flag_values", "flag_meanings"), values_and_meanings)):
                    attrs["flag_values"], attrs["flag_meanings"] = values_and_meanings
        dims = list(self.axes)
        if inner:
            dims.append(unique(name, "_strlen" if text else "_cell", self.taken))
        if one.nullable and one.type.startswith("DATETIME"):
            fill = np.full_like(fill, NAT)
        self.variables[name] = Variable(dims, values, attrs, self._chunks(dtype.itemsize * one.cvn, inner), fill if inner else fill[0])
        if one.nullable:
            validity = np.frombuffer(one.validity, "u1").reshape(one.shape)
            values[validity == 0] = fill if inner else fill[0]
            attrs["ancillary_variables"] = unique(name, "__validity", self.taken)
            valid = np.uint8(attribute["fill_value_valid"])
            self.variables[attrs["ancillary_variables"]] = Variable(list(self.axes), validity, {}, self._chunks(1, []), valid)

    def _chunks(self, cell, inner):
        """The sides of chunks of cells of `cell` bytes, those of `array.zarr/`; None if they are not cut but along the first axis."""
        shape = self.view.shape
        extents = [json_value(d["tile_extent"]) for d in self.schema["dimensions"]]
        sides = chunk_shape(shape, extents, cell)
        return (*sides, *inner) if any(side < length for side, length in zip(sides[1:], shape[1:])) else None


def fallback(view, one):
    """The directory of an anonymous field."""
    return names.dimension("", view.fields.index(one)) if one.kind == "dimension" else names.attribute("")


# -- comparing -----------------------------------------------------------------------------------------------


def plain(value):
    """An attribute as text or as an array of one axis."""
    if isinstance(value, bytes):
        value = value.decode()
    return value.rstrip("\0") if isinstance(value, str) else np.asarray(value).reshape(-1)


def same_values(what, got, want):
    """Fails unless types, shapes and bits are equal; all NaNs are equal."""
    got, want = np.asarray(got), np.asarray(want)
    same(f"type of {what}", got.dtype.newbyteorder("="), want.dtype.newbyteorder("="))
    same(f"shape of {what}", got.shape, want.shape)
    equal = (got == want) | ((got != got) & (want != want))
    if not np.all(equal):
        first = np.argwhere(~equal)[0].tolist()
        raise Differs(f"{what}: {np.sum(~equal)} values differ, the first at {first}: got {got[tuple(first)]}, expected {want[tuple(first)]}")


def same_attributes(what, got, want, skip=()):
    """Fails unless names and values are equal."""
    same(f"attributes of {what}", sorted(set(got) - set(skip)), sorted(set(want) - set(skip)))
    for name in set(want) - set(skip):
        a, b = plain(got[name]), plain(want[name])
        if isinstance(b, str):
            same(f"{what}:{name}", a, b)
        else:
            same_values(f"{what}:{name}", a, b)


def compare(expected, got, attrs):
    """Compares variables, and attributes of the whole file, from a reader: {name: Variable}."""
    same("variables", sorted(got), sorted(expected.variables))
    for name, want in expected.variables.items():
        if got[name].dims is not None:
            same(f"dimensions of {name}", list(got[name].dims), want.dims)
        same_values(name, got[name].values, want.values)
        if got[name].attrs is not None:
            same_attributes(name, got[name].attrs, want.attrs)
    if attrs is not None:
        same_attributes("the file", attrs, expected.attrs)


# -- readers -------------------------------------------------------------------------------------------------


def by_pieces(path, _):
    """Plain reads: bytes at any offset, in any order, agree with the whole, which has the length that `stat` says."""
    size = os.stat(path).st_size
    file = os.open(path, os.O_RDONLY)
    try:
        rng = np.random.default_rng(size)
        places = [(int(start), int(length)) for start, length in zip(rng.integers(0, size, 20), rng.integers(1, 9000, 20))]
        pieces = [os.pread(file, length, start) for start, length in places]
        whole = b"".join(iter(lambda: os.read(file, 1 << 20), b""))
    finally:
        os.close(file)
    same("length", len(whole), size)
    for (start, length), piece in zip(places, pieces):
        same(f"bytes at {start}", piece, whole[start : start + length])


def by_netcdf4(path, expected):
    """netCDF4 without conversions."""
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        got = {n: Variable(v.dimensions, np.asarray(v[...]), {a: v.getncattr(a) for a in v.ncattrs()}) for n, v in file.variables.items()}
        compare(expected, got, {a: file.getncattr(a) for a in file.ncattrs()})
        for name, want in expected.variables.items():
            for dimension, length in zip(want.dims, want.values.shape):
                same(f"length of {dimension}", file.dimensions[dimension].size, length)


def parts_of(data, want):
    """Offset, first cell and values of each contiguous part of a variable: of all of it, or of each chunk, padded."""
    if want.chunks is None:
        yield data.id.get_offset(), (0,) * want.values.ndim, want.values
        return
    numbers = list(np.ndindex(*(-(-n // side) for n, side in zip(want.values.shape, want.chunks))))
    same(f"number of chunks of {data.name}", data.id.get_num_chunks(), len(numbers))
    for index, number in enumerate(numbers):
        first = tuple(n * side for n, side in zip(number, want.chunks))
        info = data.id.get_chunk_info_by_coord(first)
        size = int(np.prod(want.chunks)) * data.dtype.itemsize
        if index == 0:
            begin = info.byte_offset
        same(f"chunk of {data.name} at {first}", (info.byte_offset, info.size, info.filter_mask), (begin + index * size, size, 0))
        cells = np.empty(want.chunks, want.values.dtype)
        cells[...] = want.fill
        inside = want.values[tuple(slice(a, a + side) for a, side in zip(first, want.chunks))]
        cells[tuple(slice(0, n) for n in inside.shape)] = inside
        yield info.byte_offset, first, cells


def by_h5py(path, expected):
    """h5py, with `numpy.memmap` at the offset of each variable, or of each chunk."""
    with h5py.File(path) as file:
        extra = {d for v in expected.variables.values() for d in v.dims} - set(expected.variables)
        same("links", sorted(file), sorted(set(expected.variables) | extra))
        for name, want in expected.variables.items():
            data = file[name]
            same_values(name, data[...], want.values)
            same(f"chunks of {name}", data.chunks, want.chunks)
            for offset, part, cells in parts_of(data, want):
                mapped = np.memmap(path, data.dtype, "r", offset, cells.shape)
                same_values(f"mapped {name} from {part}", mapped, cells)
                same(f"offset of {name} from {part}", offset % 8, 0)
            hidden = {"CLASS", "NAME", "_Netcdf4Dimid", "DIMENSION_LIST", "_Netcdf4Coordinates"}
            same_attributes(name, dict(data.attrs), want.attrs, hidden)
            same(f"counted attributes of {name}", len(data.attrs), len(list(data.attrs)))
            if want.dims != [name]:
                same(f"scales of {name}", [dim[0].name[1:] for dim in data.dims], want.dims)
        same_attributes("the file", dict(file.attrs), expected.attrs, {"_NCProperties"})
        same("counted attributes of the file", len(file.attrs), len(list(file.attrs)))
        offsets = [next(parts_of(file[name], want))[0] for name, want in expected.variables.items()]
        same("offset of the first data", min(offsets) % 64, 0)
    with open(path, "rb") as file:
        head = file.read(48)
    same("end of file in the superblock", int.from_bytes(head[28:36], "little"), os.stat(path).st_size)
    same("size", os.stat(path).st_size % 8, 0)


def by_pyfive(path, expected):
    """pyfive."""
    with pyfive.File(path) as file:
        got = {n: Variable(None, file[n][...], None) for n in expected.variables}
        compare(expected, got, None)


def by_xarray(engine):
    """xarray without decoding."""

    def read(path, expected):
        with xarray.open_dataset(path, engine=engine, decode_cf=False) as file:
            got = {n: Variable(v.dims, v.values, v.attrs) for n, v in file.variables.items()}
            for name, one in got.items():
                # xarray makes booleans of these nevertheless.
                if one.values.dtype == bool and expected.variables[name].attrs.get("dtype") == "bool":
                    one.values, one.attrs = one.values.astype("i1"), one.attrs | {"dtype": "bool"}
            compare(expected, got, file.attrs)

    return read


def decoded(want):
    """What xarray makes of a variable."""
    values, unit = want.values, want.attrs.get("units", "").split(" ")[0]
    if values.dtype == "S1":
        return values.view(f"S{values.shape[-1]}")[..., 0]
    if want.attrs.get("dtype") == "bool":
        return values.astype(bool)
    if unit:
        return values.view(f"M8[{CODES[unit]}]")
    if "_FillValue" not in want.attrs:
        return values
    fill = want.attrs["_FillValue"]
    wide = values if values.dtype.kind == "f" else values.astype("f4" if values.dtype.itemsize < 3 else "f8")
    # Compared as floats, which is not exact for 64 bits.
    return np.where((wide == wide.dtype.type(fill)) | (wide != wide), wide.dtype.type(np.nan), wide)


def is_near(want):
    """Whether dates are in the range of 64-bit nanoseconds, so that xarray has a type for them."""
    unit = want.attrs.get("units", "").split(" ")[0]
    values = want.values[want.values != NAT].astype(object)
    per = {"days": 86_400 * 10**9, "hours": 3_600 * 10**9, "minutes": 60 * 10**9, "seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3}
    return bool(unit) and all(abs(v) * per.get(unit, 1) < 2**63 for v in values)


def by_decoding_xarray(engine):
    """xarray with defaults; dates without a type are left out."""

    def read(path, expected):
        near = {n: is_near(v) for n, v in expected.variables.items() if "units" in v.attrs}
        with xarray.open_dataset(path, engine=engine, decode_times=near or True) as file:
            for name, want in expected.variables.items():
                if near.get(name, True):
                    got, wanted = file.variables[name].values, decoded(want)
                    if wanted.dtype.kind == "M":
                        got, wanted = got.astype("M8[ns]").view("i8"), wanted.astype("M8[ns]").view("i8")
                    same_values(f"decoded {name}", got, wanted)

    return read


def by_nccopy(path, expected):
    """nccopy, which copies the file and checks names."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "copy.nc")
        run(["nccopy", "-k", "nc4", path, copy])
        by_netcdf4(copy, expected)


def by_ncdump(path, expected):
    """ncdump: integers, floats and dates as it prints them."""
    text = run(["ncdump", "-p", "9,17", path])
    data = text.split("\ndata:\n", 1)[1]
    for name, want in expected.variables.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or want.values.dtype.kind == "S":
            continue
        _, found, after = data.partition(f"\n {name} =")
        if not found:
            raise Differs(f"no {name} in {data[:300]}")
        words = after.partition(" ;\n")[0].replace(",", " ").split()
        # ncdump also prints the type's default as missing.
        fill = want.attrs.get("_FillValue", netCDF4.default_fillvals[want.values.dtype.str[1:]])
        values = {w: fill if w == "_" else parsed(w, want.values.dtype) for w in set(words)}
        numbers = [values[w] for w in words]
        same_values(f"printed {name}", np.array(numbers, want.values.dtype), want.values.reshape(-1))


def parsed(word, dtype):
    """A number as ncdump prints it."""
    word = word.rstrip("f") if dtype == "f4" and not word.endswith("inf") else word
    word = re.sub(r"Infinity?$", "inf", word)
    return float(word) if dtype.kind == "f" else int(re.sub(r"[a-zA-Z]+$", "", word))


def by_gdal(path, expected):
    """gdalmdiminfo."""
    got = json.loads(run(["gdalmdiminfo", "-detailed", path]))["arrays"]
    same("arrays", set(expected.variables) - set(got), set())
    for name, want in expected.variables.items():
        if want.values.dtype.kind == "S":
            continue
        if "values" not in got[name]:
            raise Differs(f"{name}: no values: {str(got[name])[:300]}")
        values = np.array(flat(got[name]["values"]), want.values.dtype).reshape(want.values.shape)
        same_values(name, values, want.values)


def flat(values):
    """The numbers of lists that are nested equally deep, or one number."""
    values = values if isinstance(values, list) else [values]
    while values and isinstance(values[0], list):
        values = [value for inner in values for value in inner]
    return [float(value) if isinstance(value, str) else value for value in values]



def run(command):
    """The output of a command."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, errors="surrogateescape")
    if done.returncode:
        raise Differs(f"{command[0]}: exit code {done.returncode}: {done.stderr[:300]}")
    return done.stdout


READERS = {"pread": by_pieces, "netCDF4": by_netcdf4, "h5py": by_h5py, "pyfive": by_pyfive}
READERS |= {f"xarray, {e}, not decoded": by_xarray(e) for e in ("netcdf4", "h5netcdf")}
READERS |= {f"xarray, {e}": by_decoding_xarray(e) for e in ("netcdf4", "h5netcdf")}
COMMANDS = {"nccopy": by_nccopy, "ncdump": by_ncdump, "gdalmdiminfo": by_gdal}


# -- running -------------------------------------------------------------------------------------------------


class Comparison:
    """Compares the files of arrays at `source`, shown at `point`; some of them with command-line programs, too."""

    def __init__(self, source, point, command_line_share=COMMAND_LINE_SHARE):
        self.source, self.point, self.lib, self.share = source, point, Lib(), command_line_share
        self.facts = Facts(self.lib)
        self.pairs, self.absent, self.failures = collections.Counter(), 0, []
        self.commands = {name: reader for name, reader in COMMANDS.items() if shutil.which(name)}

    def family(self, family, array, every, share):
        """The chosen views of one array of a family."""
        base = os.path.join(family, "expected", array)
        doc = json.loads(Path(base + ".json").read_text())
        blob = memoryview(Path(base + ".bin").read_bytes())
        for entry in doc["views"]:
            if entry["path"] == "data" or every and chosen(share, array, entry["path"]):
                self.view(array, family_view(doc, blob, entry))

    def array(self, array, shown=None, key=None):
        """The whole of an array of any folder, as libtiledb reads it; `shown` is its path in the mount."""
        handle = self.lib.open(os.path.join(self.source, array), 0, key=key)
        shown = shown or array
        said = load(os.path.join(self.point, shown, "data/view.json"))
        if not said["dense"] or 0 in said["shape"]:
            view = ViewTruth("data", [None, None], said["dense"], said["order"], said["shape"], said["cells"], None, [])
            self.lib.close(handle)
            return self.view(array, view, shown)
        schema = self.facts.schema(self.lib.get("tiledb_array_get_schema", handle))
        fields = []
        for dimension, (low, high) in zip(schema["dimensions"], said["region"]):
            values = np.array(range(low, high + 1), np_type(dimension["datatype"]))
            fields.append(ViewField(dimension["name"], "dimension", dimension["datatype"], 1, False, [values.size], values.tobytes()))
        ranges = [np.array(ends, np_type(d["datatype"])) for ends, d in zip(said["region"], schema["dimensions"])]
        for one in schema["attributes"]:
            if one["cell_val_num"] == "var":
                fields.append(ViewField(one["name"], "attribute", one["datatype"], "var", one["nullable"], said["shape"], b""))
                continue
            wanted = [(one["name"], one["datatype"], one["cell_val_num"], one["nullable"])]
            column = self.lib.read(handle, wanted, "row-major", ranges, said["cells"])[one["name"]]
            validity = None if column.validity is None else column.validity.tobytes()
            fields.append(ViewField(*wanted[0][:1], "attribute", *wanted[0][1:], said["shape"], column.data.tobytes(), None, validity))
        metadata = {k.decode("utf-8", "surrogateescape"): v | {"value": json_value(v["value"])} for k, v in self.facts.metadata(handle).items()}
        enumerations = {n: [json_value(v) for v in e["values"]] for n, e in self.facts.enumerations(handle, schema).items()}
        self.lib.close(handle)
        facts = {"metadata": metadata, "enumerations": enumerations}
        view = ViewTruth("data", [None, None], True, said["order"], said["shape"], said["cells"], said["region"], fields, True, facts)
        return self.view(array, view, shown, key)

    def folder(self, point):
        """All arrays of the source, but for those that libtiledb cannot read, that are not shown, or whose `view.json` cannot be read."""
        unread = []
        for top, folders, files in sorted(os.walk(self.source)):
            if "__schema" not in folders and "__array_schema.tdb" not in files:
                continue
            array = os.path.relpath(top, self.source)
            info = Path(top + ".info.json")
            encrypted = info.exists() and json.loads(info.read_text()).get("key")
            shown = os.path.relpath(shown_path(point, array), point)
            if not os.path.isdir(os.path.join(point, shown, "data")):
                unread.append(f"{array}: is not shown")
                continue
            try:
                self.array(array, shown, FAMILY_KEY if encrypted else None)
            except (Differs, TileDBError) as error:
                unread.append(f"{array}: {error}")
        for line in unread:
            print("not compared: " + line[:200])

    def view(self, array, view, shown=None, key=None):
        """One view."""
        shown = os.path.join(self.point, shown or array)
        folder = os.path.join(shown, view.path)
        said = load(os.path.join(folder, "view.json"))
        path = os.path.join(folder, "array.nc")
        export = said["exports"]["array.nc"]
        if not view.dense or 0 in view.shape:
            self.absent += 1
            if os.path.exists(path) or export["exists"] or not export["reason"] or "array.nc" in os.listdir(folder):
                self.failures.append(f"{path}: is there, or nothing says why not: {export}")
            return
        if (export["exists"], export["reason"]) != (True, None) or "array.nc" not in os.listdir(folder):
            self.failures.append(f"{path}: is not listed, or view.json says {export}")
        expected = self.expected(array, view, shown, key)
        readers = dict(READERS)
        if belongs((1, self.share), f"{array}/{view.path}"):
            readers |= self.commands
        for name, reader in readers.items():
            try:
                reader(path, expected)
                self.pairs[name] += 1
            except Exception as error:  # noqa: BLE001 - a reader may raise anything
                kind = "" if isinstance(error, Differs) else type(error).__name__ + ": "
                self.failures.append(f"{array} {view.path}, {name}: {kind}{error}")

    def expected(self, array, view, shown, key):
        """The expected content of the file."""
        handle = self.lib.open(os.path.join(self.source, array), 0, timestamp=view.time[1], key=key)
        schema = self.facts.schema(self.lib.get("tiledb_array_get_schema", handle))
        self.lib.close(handle)
        _, covered = fragment_cover.written(shown, os.path.join(shown, view.path), fragment_cover.shown_domains(shown))
        return Expected(view, schema, view.facts["enumerations"], covered)

    def finish(self, start):
        """Prints the findings, and exits."""
        for failure in self.failures[:400]:
            print("FAIL " + failure[:700])
        for name in COMMANDS.keys() - self.commands.keys():
            print(f"not run: {name} is not installed")
        print(", ".join(f"{name}: {count}" for name, count in self.pairs.items()))
        print(f"{self.absent} views have no array.nc, and say so; {time.time() - start:.0f} s")
        passed = sum(self.pairs.values()) + self.absent
        print(f"{passed} passed, {len(self.failures)} failed")
        sys.exit(1 if self.failures or not passed else 0)


def main():
    """Compares a family."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--family")
    which.add_argument("--source")
    parser.add_argument("--all", action="store_true", help="every view, not `data` alone")
    parser.add_argument("--array", help="only arrays whose name contains this")
    parser.add_argument("--share", type=share, help="with --all, `data` and part N of M of the rest: N/M")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.time()
    source = os.path.realpath(os.path.join(args.family, "arrays") if args.family else args.source)
    with tempfile.NamedTemporaryFile() as key:
        key.write(FAMILY_KEY)
        key.flush()
        with mounted(source, *(["--key-file", key.name] if args.source else [])) as point:
            comparison = Comparison(source, str(point))
            if args.source:
                comparison.folder(str(point))
            for array in sorted(os.listdir(source)) if args.family else []:
                if not args.array or args.array in array:
                    comparison.family(args.family, array, args.all, args.share)
    comparison.finish(start)


if __name__ == "__main__":
    main()
