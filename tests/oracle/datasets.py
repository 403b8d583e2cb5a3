"""What TileDB-CF writes, through a mount, against the NetCDF file that was ingested: attributes of variables in array.nc, array.zarr and table.parquet;
groups as dataset.nc and dataset.zarr. TILEDBFS_WRITERS is a Python with TileDB-CF; without it no group of its own is looked at.

    python3 datasets.py

The last line is `N passed, N failed`.
"""

import contextlib
import doctest
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import h5netcdf
import netCDF4
import numpy as np
import polars
import pyarrow.parquet
import tiledb
import xarray
import zarr

from meanwhile import meanwhile, unless_stale
from mount import ROOT, binary, errors, mounted, stats
from plain_tools import Checks

FILL = -999
DAYS = [58, 59, 60, 400]
ATTR = "__tiledb_attr."


def write_source(path):
    """The NetCDF file: a packed variable with missing values, an unpacked one, a time axis of another calendar, flags, one type that TileDB-CF loses."""
    chance = np.random.default_rng(7)
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", None), ("y", 6), ("x", 7)):
            file.createDimension(name, length)
        time = file.createVariable("time", "i4", ("time",))
        time.setncatts({"units": "days since 2000-01-01", "calendar": "noleap", "axis": "T"})
        time[:] = DAYS
        temp = file.createVariable("temp", "i2", ("time", "y", "x"), fill_value=FILL)
        temp.setncatts({"scale_factor": 0.01, "add_offset": 273.15, "units": "K", "standard_name": "air_temperature",
                        "valid_range": np.array([-900, 9000], "i2"), "missing_value": np.int16(-998)})
        temp.set_auto_maskandscale(False)
        values = chance.integers(-900, 9000, (len(DAYS), 6, 7)).astype("i2")
        values[1, 2, 3], values[0, 0, 0] = FILL, -998
        temp[:] = values
        rain = file.createVariable("rain", "f4", ("time", "y", "x"), fill_value=np.float32(1e20))
        rain.setncatts({"units": "größe", "long_name": "", "levels": np.array([1.5, 2.5])})
        rain.set_auto_maskandscale(False)
        amounts = chance.random((len(DAYS), 6, 7)).astype("f4")
        amounts[3, 1, 1] = 1e20
        rain[:] = amounts
        wind = file.createVariable("wind", "i2", ("time", "y", "x"), fill_value=-32768)
        wind.setncatts({"add_offset": 10.0, "units": "m s-1"})
        wind.set_auto_maskandscale(False)
        speeds = chance.integers(-900, 900, (len(DAYS), 6, 7)).astype("i2")
        speeds[2, 5, 6] = -32768  # What TileDB fills with by itself.
        wind[:] = speeds
        ice = file.createVariable("ice", "u1", ("time", "y", "x"), fill_value=0)
        ice.scale_factor = 0.5
        ice.set_auto_maskandscale(False)
        shares = chance.integers(0, 256, (len(DAYS), 6, 7))
        shares[2, 2, 2] = 0
        ice[:] = shares
        quality = file.createVariable("quality", "i1", ("time", "y", "x"))
        quality.setncatts({"flag_values": np.array([0, 1], "i1"), "flag_meanings": "good bad", "_Unsigned": "true"})
        quality[:] = chance.integers(0, 2, (len(DAYS), 6, 7))


def ingest(source, folder):
    """Writes what TileDB-CF 0.9.1 makes of it: an array for each set of dimensions, types of numbers lost, the fill in the schema."""
    def metadata(array, name, variable):
        for key in variable.ncattrs():
            value = variable.getncattr(key)
            if key != "_FillValue":
                array.meta[f"{ATTR}{name}.{key}"] = value if isinstance(value, str) else \
                    value.item() if np.size(value) == 1 else tuple(value.tolist())

    def create(uri, dims, attributes):
        domain = tiledb.Domain(*[tiledb.Dim(name, domain=(0, high), tile=tile, dtype=np.uint64) for name, high, tile in dims])
        tiledb.Array.create(uri, tiledb.ArraySchema(domain, attributes))

    with netCDF4.Dataset(source) as file:
        file.set_auto_maskandscale(False)
        grids = [name for name, variable in file.variables.items() if len(variable.dimensions) == 3]
        create(f"{folder}/array0", [("time", 9999, 1024)], [tiledb.Attr("time.data", dtype=np.int32)])
        fills = [getattr(file[name], "_FillValue", None) for name in grids]
        attributes = [tiledb.Attr(name, dtype=file[name].dtype, fill=fill) for name, fill in zip(grids, fills)]
        create(f"{folder}/array1", [("time", 9999, 1), ("y", 5, 6), ("x", 6, 7)], attributes)
        with tiledb.open(f"{folder}/array0", "w") as array:
            array[: len(DAYS)] = {"time.data": file["time"][:]}
            metadata(array, "time.data", file["time"])
        with tiledb.open(f"{folder}/array1", "w") as array:
            array[: len(DAYS), :, :] = {name: file[name][:] for name in grids}
            for name in grids:
                metadata(array, name, file[name])


def same(checks, what, got, want):
    """Whether two variables have the same values, missing ones too."""
    try:
        np.testing.assert_array_equal(got, want)
        checks.equal(what, True, True)
    except AssertionError as error:
        checks.equal(what, str(error), None)


def plain(attributes):
    """Attributes without their types."""
    return {key: np.asarray(value).tolist() for key, value in attributes.items()}


def openers(data):
    """The readers of xarray, by name."""
    return {"array.nc, netcdf4": lambda **how: xarray.open_dataset(data / "array.nc", engine="netcdf4", **how),
            "array.nc, h5netcdf": lambda **how: xarray.open_dataset(data / "array.nc", engine="h5netcdf", **how),
            "array.zarr": lambda **how: xarray.open_zarr(data / "array.zarr", **how)}


def unread(checks, point):
    """Listings, lengths and the descriptions of variables decode no data."""
    for array in ("array0", "array1"):
        data = point / array / "data"
        for name in os.listdir(data):
            os.stat(data / name)
        for name in ("zarr.json", "temp/zarr.json", "time.data/zarr.json"):
            path = data / "array.zarr" / name
            path.exists() and path.read_bytes()
        (data / "view.json").read_bytes()
    checks.equal("chunks decoded for lengths and descriptions", stats(point)["chunks_decoded"], 0)


def compare(checks, source, point):
    """What was ingested, decoded and raw."""
    pairs = {"array0": {"time.data": "time"}, "array1": {name: name for name in ("temp", "rain", "wind", "ice", "quality")}}
    for array, names in pairs.items():
        data = point / array / "data"
        said = json.loads((data / "view.json").read_text())
        checks.equal(f"{array}: what view.json leaves out", said.get("left_out"), [])
        for reader, opened in openers(data).items():
            for decode in (True, False):
                with opened(decode_cf=decode) as got, xarray.open_dataset(source, decode_cf=decode) as want:
                    for ours, theirs in names.items():
                        what = f"{array}, {reader}, {'decoded' if decode else 'raw'}: {theirs}"
                        same(checks, what, got[ours].values, want[theirs].values)
                        a, b = plain(got[ours].attrs), plain(want[theirs].attrs)
                        if theirs not in ("temp", "wind", "ice"):
                            # Only packed variables have the fill of integers that were all written.
                            a.pop("_FillValue", None), b.pop("_FillValue", None)
                        checks.equal(f"{what}: attributes", a, b)
        wanted = {ours: dict(plain_source(source, theirs)) for ours, theirs in names.items()}
        schema = pyarrow.parquet.read_schema(data / "table.parquet")
        for ours, attributes in wanted.items():
            got = {key.decode(): value.decode() for key, value in (schema.field(ours).metadata or {}).items()}
            checks.equal(f"{array}, table.parquet: {ours}", got, attributes)
        table = pyarrow.parquet.read_table(data / "table.parquet")
        checks.equal(f"{array}, table.parquet in Polars", polars.read_parquet(data / "table.parquet").rows(),
                     [tuple(row.values()) for row in table.to_pylist()])
    with netCDF4.Dataset(point / "array1/data/array.nc") as file:
        checks.equal("types in array.nc", [np.asarray(file["temp"].getncattr(key)).dtype.str for key in
                                           ("_FillValue", "missing_value", "valid_range", "scale_factor")], ["<i2", "<i2", "<i2", "<f8"])
        checks.equal("netCDF4 masks", file["temp"][1, 2, 3] is np.ma.masked, True)
        checks.equal("flags in array.nc", np.asarray(file["quality"].flag_values).dtype.str, "|i1")
    with h5netcdf.File(point / "array1/data/array.nc") as file:
        checks.equal("h5netcdf", (file["temp"].attrs["_FillValue"].dtype.str, file["temp"].attrs["units"]), ("<i2", "K"))
    done = subprocess.run(["ncdump", "-h", point / "array1/data/array.nc"], capture_output=True, text=True, timeout=60)
    checks.equal("ncdump", [line in done.stdout for line in ("temp:_FillValue = -999s ;", 'temp:units = "K" ;', "temp:valid_range = -900s, 9000s ;")],
                 [True] * 3)
    attributes = dict(zarr.open_group(point / "array1/data/array.zarr", mode="r")["temp"].attrs)
    checks.equal("zarr", (attributes["_FillValue"], attributes["scale_factor"], attributes["valid_range"]), (FILL, 0.01, [-900, 9000]))


def plain_source(source, name):
    """The attributes of a variable as text, as the metadata has them."""
    with netCDF4.Dataset(source) as file:
        for key in file[name].ncattrs():
            value = file[name].getncattr(key)
            if key != "_FillValue":
                yield key, value if isinstance(value, str) else json.dumps(np.asarray(value).tolist(), separators=(",", ":"))


# TileDB-Py keeps NumPy arrays under `__np_flat_<key>`.
MALFORMED = {
    f"{ATTR}none.units": "m", f"{ATTR}i.": "m", f"{ATTR}i.coordinates": 5, f"{ATTR}i.scale_factor": "0.1", f"{ATTR}i.add_offset": (1.0, 2.0),
    f"{ATTR}i._FillValue": 40000, f"{ATTR}i.valid_range": (0.5, 2.0), f"{ATTR}i._Netcdf4Dimid": 3, f"{ATTR}i.DIMENSION_LIST": "x",
    f"{ATTR}d.units": "metres", f"{ATTR}e.flag_meanings": "x y", f"{ATTR}b._FillValue": 0, f"{ATTR}b.dtype": "float",
    "__tiledb_dim.i.units": "m", f"{ATTR}i.missing_value": np.array([1.5]), "_CRS": 4326,
    "_gdal": "x", "bytes": b"\xff", "long": "x" * 65530,
}
GOOD = {
    f"{ATTR}i.units": "kg", f"{ATTR}i.NAME": "hidden", f"{ATTR}i.a.b": "dots", f"{ATTR}i.j.units": "dotted", f"{ATTR}n.coordinates": "lat nowhere",
    f"{ATTR}n.ancillary_variables": "i", f"{ATTR}n._FillValue": -5.0, f"{ATTR}f.comment": "größe", f"{ATTR}text.comment": "letters",
    f"{ATTR}text._FillValue": "-", "__tiledb_dim.x.units": "degrees_east", "__tiledb_dim.x.axis": "X", f"{ATTR}var.comment": "of any length",
    "_UNIT": "m", "matrix": np.arange(4.0), f"{ATTR}f.range": np.array([1.0, 2.0]), "title": "plain",
    f"{ATTR}f.missing_value": 1e20, f"{ATTR}f.valid_min": -0.5,
}
OTHERS = {"__pandas_index_dims": "{}", "__tiledb_attribute": 1, "__np_shape_matrix": (2, 2), "__other": np.arange(2)}


def write_corners(uri):
    """An array of every kind of field with such metadata, and a label."""
    x = tiledb.Dim("x", domain=(10, 17), tile=4, dtype=np.int32)
    enumeration = tiledb.Enumeration("colours", False, values=["red", "green"])
    attributes = [tiledb.Attr("i", dtype=np.int16), tiledb.Attr("i.j", dtype=np.int16), tiledb.Attr("n", dtype=np.int32, nullable=True),
                  tiledb.Attr("f", dtype=np.float32), tiledb.Attr("d", dtype="datetime64[D]"), tiledb.Attr("b", dtype=bool),
                  tiledb.Attr("e", dtype=np.int8, enum_label="colours"), tiledb.Attr("text", dtype="S1"), tiledb.Attr("var", dtype=str)]
    schema = tiledb.ArraySchema(tiledb.Domain(x), attributes, enums=[enumeration], dim_labels={0: {"lat": x.create_label_schema("increasing", np.float64)}})
    tiledb.Array.create(uri, schema)
    cells = np.arange(8)
    with tiledb.open(uri, "w") as array:
        array[:] = {"i": cells.astype("i2"), "i.j": cells.astype("i2"), "n": cells.astype("i4"), "f": cells.astype("f4"), "d": cells.astype("datetime64[D]"),
                    "b": cells % 2 == 0, "e": (cells % 2).astype("i1"), "text": cells.astype("S1"), "var": cells.astype(str).astype(object),
                    "lat": np.linspace(0, 7, 8)}
    with tiledb.open(uri, "w") as array:
        for key, value in {**MALFORMED, **GOOD, **OTHERS}.items():
            array.meta[key] = value


def corners(checks, point):
    """What is shown of good attributes, and why malformed ones are not."""
    data = point / "corners/data"
    view = json.loads((data / "view.json").read_text())
    checks.equal("what is left out", sorted(entry["what"] for entry in view["left_out"]),
                 sorted("__np_flat_" + key if isinstance(value, np.ndarray) else key for key, value in MALFORMED.items()))
    checks.equal("each has a reason", all(entry["reason"] for entry in view["left_out"]), True)
    with netCDF4.Dataset(data / "array.nc") as file:
        file.set_auto_maskandscale(False)
        attributes = {name: plain({key: variable.getncattr(key) for key in variable.ncattrs()}) for name, variable in file.variables.items()}
        checks.equal("attributes of the file", {key: plain({key: file.getncattr(key)})[key] for key in file.ncattrs()},
                     {"Conventions": "CF-1.12", "matrix": [0, 1, 2, 3], "title": "plain"})
    lat = {"coordinates": "lat"}
    days = {"units": "days since 1970-01-01", "calendar": "proleptic_gregorian", "_FillValue": np.iinfo(np.int64).min}
    flags = {"flag_values": [0, 1], "flag_meanings": "red green"}
    nan = {key: value for key, value in attributes["f"].items() if key == "_FillValue"}
    checks.equal("the fill of floats", [str(value) for value in nan.values()], ["nan"])
    attributes["f"].pop("_FillValue")
    attributes["lat"].pop("_FillValue", None)
    wanted = {"x": {"units": "degrees_east", "axis": "X"}, "lat": {}, "i": {"units": "kg", "NAME_": "hidden", "a.b": "dots", **lat},
              "i.j": {"units": "dotted", **lat}, "n": {"units": "m", "_FillValue": -5, "ancillary_variables": "i n__validity", **lat}, "n__validity": lat,
              "f": {"units": "m", "comment": "größe", "range": [1.0, 2.0], "missing_value": float(np.float32(1e20)), "valid_min": -0.5, **lat}, "d": {**days, **lat}, "b": {"dtype": "bool", **lat}, "e": {**flags, **lat},
              "text": {"comment": "letters", "_FillValue": b"-", **lat}}
    for name, want in wanted.items():
        checks.equal(f"attributes of {name}", attributes.get(name), want)
    for reader, opened in openers(data).items():
        with opened() as dataset:
            checks.equal(f"{reader} has the label as coordinate", "lat" in dataset["n"].coords, True)
            dataset.load()
    group = zarr.open_group(data / "array.zarr", mode="r")
    checks.equal("array.zarr", (dict(group["i"].attrs)["NAME"], dict(group["n"].attrs)["_FillValue"]), ("hidden", -5))
    checks.equal("a double that FLOAT32 lacks", (dict(group["f"].attrs)["missing_value"], dict(group["f"].attrs)["valid_min"]), (1e20, -0.5))
    schema = pyarrow.parquet.read_schema(data / "table.parquet")
    texts = {name: {key.decode(): value.decode() for key, value in (schema.field(name).metadata or {}).items()} for name in schema.names}
    checks.equal("table.parquet", {name: texts[name] for name in ("x", "i", "i.j", "f", "d", "var")},
                 {"x": {"units": "degrees_east", "axis": "X"}, "i": {"units": "kg", "NAME": "hidden", "a.b": "dots"}, "i.j": {"units": "dotted"},
                  "f": {"units": "m", "comment": "größe", "range": "[1.0,2.0]", "missing_value": "1e+20", "valid_min": "-0.5"}, "d": {}, "var": {"comment": "of any length"}})
    columns = pyarrow.parquet.read_table(data / "table.parquet").to_pydict()
    checks.equal("values of table.parquet", (columns["i"], columns["e"], columns["var"]), (list(range(8)), ["red", "green"] * 4, [str(i) for i in range(8)]))
    part = data / "subarray/11..12"
    checks.equal("a part has them too", pyarrow.parquet.read_schema(part / "table.parquet").field("x").metadata, {b"axis": b"X", b"units": b"degrees_east"})


def write_sparse(uri):
    """A sparse array with attributes of a dimension and of columns of each Arrow type."""
    domain = tiledb.Domain(tiledb.Dim("lon", domain=(-180.0, 180.0), tile=10.0, dtype=np.float64))
    types = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "datetime64[s]", "datetime64[us]", "datetime64[ns]", "bool"]
    attributes = [tiledb.Attr(f"a{i}", dtype=np.dtype(of)) for i, of in enumerate(types)] + [
        tiledb.Attr("list", dtype=np.int32, var=True), tiledb.Attr("pair", dtype=[("", "i4"), ("", "i4")]), tiledb.Attr("bytes", dtype="S0")]
    tiledb.Array.create(uri, tiledb.ArraySchema(domain, attributes, sparse=True))
    lists = np.empty(3, object)
    lists[:] = [np.arange(n + 1, dtype="i4") for n in range(3)]
    cells = {f"a{i}": np.arange(3).astype(of) for i, of in enumerate(types)}
    pairs = np.array([(1, 2), (3, 4), (5, 6)], [("", "i4"), ("", "i4")])
    with tiledb.open(uri, "w") as array:
        array[[1.0, 2.0, 3.0]] = {**cells, "list": lists, "pair": pairs, "bytes": np.array([b"a", b"bc", b"d"], dtype=object)}


def compare_sparse(checks, uri, point):
    """The table with attributes has the values and types of the one without."""
    file = point / "sparse/data/table.parquet"
    def every():
        table = pyarrow.parquet.read_table(file)
        return [(field.name, str(field.type), field.nullable) for field in table.schema], table.to_pydict(), polars.read_parquet(file).to_dict(as_series=False)

    before = every()
    with tiledb.open(uri, "w") as array:
        array.meta["__tiledb_dim.lon.units"] = "degrees_east"
        array.meta[f"{ATTR}list.units"] = "m"
    os.stat(point / "sparse/data")
    units = lambda: [(pyarrow.parquet.read_schema(file).field(name).metadata or {}).get(b"units") for name in ("lon", "list", "a0")]
    for _ in range(50):
        if units()[0]:
            break
        time.sleep(0.1)
    checks.equal("units of a sparse array", units(), [b"degrees_east", b"m", None])
    checks.equal("types and values stay", every(), before)


def damaged(checks, folder, point):
    """Damaged metadata: array.nc fails, tables are there without attributes, and view.json says why."""
    (meta,) = [path for path in Path(f"{folder}/damaged/__meta").iterdir()]
    stored = bytearray(meta.read_bytes())
    stored[-3] ^= 0xFF
    meta.write_bytes(stored)
    data = point / "damaged/data"
    view = json.loads((data / "view.json").read_text())
    checks.equal("damaged metadata in view.json", [entry["what"] for entry in view["left_out"]], ["__meta"])
    checks.equal("damaged metadata: table.parquet", pyarrow.parquet.read_table(data / "table.parquet").num_rows, 168)


def write_tree(path):
    """A NetCDF file of everything that TileDB-CF knows: scalars, text, a variable called like a dimension, groups in groups."""
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"title": "größe", "version": 3, "_CoordSysBuilder": "cf"})
        for name, length in (("time", None), ("y", 6), ("x", 7)):
            file.createDimension(name, length)
        time = file.createVariable("time", "i4", ("time",))
        time.setncatts({"units": "days since 2000-01-01", "calendar": "noleap"})
        time[:] = DAYS
        file.createVariable("y", "f8", ("y",))[:] = np.arange(6) * 2.5
        temp = file.createVariable("temp", "i2", ("time", "y", "x"), fill_value=FILL)
        temp.setncatts({"scale_factor": 0.01, "units": "K"})
        temp.set_auto_maskandscale(False)
        values = np.arange(len(DAYS) * 42).reshape(len(DAYS), 6, 7).astype("i2")
        values[1, 2, 3] = FILL
        temp[:] = values
        rain = file.createVariable("rain", "f4", ("time", "y", "x"))
        rain[:] = values / 3
        gust = file.createVariable("gust", "u2", ("time", "y", "x"), fill_value=65535)
        gust.scale_factor = 0.5
        gust.set_auto_maskandscale(False)
        gust[:] = np.where(values == FILL, 65535, values)
        file.createVariable("letter", "S1", ("y",))[:] = np.array(list("abcdef"), "S1")
        crs = file.createVariable("crs", "i4", ())
        crs.grid_mapping_name, crs[...] = "latitude_longitude", 7
        file.createVariable("height.of", "f4", ())[...] = 1.5
        group = file.createGroup("model")
        group.comment = "inside"
        group.createDimension("z", 3)
        group.createVariable("wind", "f4", ("time", "z"))[:] = np.arange(len(DAYS) * 3).reshape(len(DAYS), 3)
        group.createVariable("z", "i4", ("z",))[:] = [5, 6, 7]
        deep = group.createGroup("deep")
        deep.createVariable("q", "f8", ("z",))[:] = [0.5, 1.5, 2.5]


def tree_of(opened):
    """Groups by path: variables with dimensions, values and attributes, and the group's own attributes."""
    def plain_variable(variable):
        values = np.asarray(variable.values)
        kept = {key: value for key, value in plain(variable.attrs).items()}
        return tuple(variable.dims), values.tolist() if values.dtype.kind not in "fM" else values.astype(str).tolist(), kept
    found = {}
    for node in opened.subtree:
        dataset = node.to_dataset(inherit=False)
        attributes = {key: value for key, value in plain(dataset.attrs).items() if key not in ("history", "Conventions")}
        found[node.path] = {name: plain_variable(variable) for name, variable in dataset.variables.items()}, attributes
    return found


def without_text(tree):
    """What Zarr has: no text."""
    return {path: ({name: one for name, one in variables.items() if name != "letter"}, attributes) for path, (variables, attributes) in tree.items()}


def trees(checks, source, folder, point):
    """The data sets of groups that TileDB-CF wrote, against the file."""
    for name in ("ocean", "single"):
        group = point / name
        checks.equal(f"{name}: listed", {"dataset.json", "dataset.nc", "dataset.zarr"} <= set(os.listdir(group)), True)
        (group / "dataset.nc").stat()
        said = json.loads((group / "dataset.json").read_text())
        for path in group.glob("dataset.zarr/**/zarr.json"):
            json.loads(path.read_text())
    checks.equal("chunks decoded for lengths and descriptions of data sets", stats(point)["chunks_decoded"], 0)
    for name in ("ocean", "single"):
        group = point / name
        said = json.loads((group / "dataset.json").read_text())
        checks.equal(f"{name}: kind and dimensions", (said["kind"], said["dimensions"]), ("cf", {"time": len(DAYS), "y": 6, "x": 7}))
        checks.equal(f"{name}: variables", sorted(one["name"] for one in said["variables"]), ["crs", "gust", "height.of", "letter", "rain", "temp", "time", "y"])
        checks.equal(f"{name}: what is left out", [(one["what"].split("/")[-1], "dataset.zarr" in one["reason"]) for one in said["left_out"]], [("letter", True)])
        checks.equal(f"{name}: groups", sorted(said["groups"]["model"]["dimensions"].items()), [("time", len(DAYS)), ("z", 3)])
        checks.equal(f"{name}: a group that is no member", (group / "model/deep/group.json").exists(), True)
        for decode in (True, False):
            with xarray.open_datatree(source, decode_cf=decode) as opened:
                want = tree_of(opened)
            for reader, path in (("netcdf4", "dataset.nc"), ("h5netcdf", "dataset.nc"), ("zarr", "dataset.zarr")):
                with xarray.open_datatree(group / path, engine=reader, decode_cf=decode) as opened:
                    got = tree_of(opened)
                wanted = without_text(want) if reader == "zarr" else want
                checks.equal(f"{name}: groups by {reader}, {decode}", sorted(got), sorted(wanted))
                for path in wanted:
                    checks.equal(f"{name}{path}: attributes by {reader}", got[path][1], wanted[path][1])
                    for variable in wanted[path][0]:
                        checks.equal(f"{name}{path}: {variable} by {reader}, {'decoded' if decode else 'raw'}", got[path][0].get(variable), wanted[path][0][variable])
                    checks.equal(f"{name}{path}: variables by {reader}", sorted(got[path][0]), sorted(wanted[path][0]))
        done = subprocess.run([binary(), "info", f"{folder}/{name}"], capture_output=True, text=True, timeout=60)
        lines = [line.split() for line in done.stdout.splitlines()]
        checks.equal(f"{name}: info, exit code and kind", (done.returncode, ["kind", "data", "set"] in lines, ["open", "dataset.zarr,", "dataset.nc"] in lines), (0, True, True))
        checks.equal(f"{name}: info of a variable", f"temp int16 time y x {len(DAYS)} × 6 × 7 K".split() in lines, True)
        checks.equal(f"{name}: info of text, which dataset.zarr lacks", ["letter", "text", "y", "6"] in lines, True)
        checks.equal(f"{name}: info has no member called dataset.zarr", [line for line in lines if "dataset.zarr:" in line], [])
        done = subprocess.run(["ncdump", "-h", group / "dataset.nc"], capture_output=True, text=True, timeout=60)
        checks.equal(f"{name}: ncdump", [line in done.stdout for line in ("temp:_FillValue = -999s ;", "group: model {", "char letter(y) ;", "int crs ;")], [True] * 4)
    work = Path(folder).parent / "documented"
    (work / "mnt").mkdir(parents=True)
    (work / "mnt/ocean").symlink_to(point / "ocean")
    with contextlib.chdir(work):
        lines = doctest.testfile(str(ROOT / "docs/datasets.md"), module_relative=False, encoding="utf-8")
    checks.equal("docs/datasets.md: lines that fail", (lines.failed, lines.attempted > 5), (0, True))
    group = point / "xarray"
    with xarray.open_zarr(group / "dataset.zarr") as got, xarray.open_dataset(source) as want:
        same(checks, "from_xarray: rain", got["rain"].values, want["rain"].values)
        checks.equal("from_xarray: variables", sorted(got.variables), ["rain", "time", "y"])


def write_joined(folder):
    """Groups that no program wrote so: lengths that differ, members that do not fit, names that clash, unwritten parts."""
    def array(path, dims, names, write, sparse=False, dtype=np.int32, attributes=None):
        domain = tiledb.Domain(*[tiledb.Dim(name, domain=ends, tile=min(4, ends[1] - ends[0] + 1), dtype=np.int32) for name, ends in dims])
        attributes = attributes or [tiledb.Attr(name, dtype=dtype, fill=-1) for name in names]
        tiledb.Array.create(path, tiledb.ArraySchema(domain, attributes, sparse=sparse))
        if write:
            with tiledb.open(path, "w") as opened:
                opened[tuple(slice(0, length) for length in write)] = {
                    one.name: np.arange(np.prod(write), dtype=one.dtype).reshape(write) for one in attributes}
    group = f"{folder}/joined"
    tiledb.Group.create(group)
    line = [("x", (0, 19))]
    array(f"{group}/long", line, ["v"], [12])
    array(f"{group}/short", line, ["v"], [9])
    array(f"{group}/array7", line, ["a.data"], [10])
    array(f"{group}/clash", line, ["a", "b"], [10])
    array(f"{group}/suffixed", line, ["obs.data", "obs.index", "obs"], [9])
    array(f"{group}/fixed", [("y", (0, 4))], ["v"], [3])
    array(f"{group}/other", [("y", (0, 7))], ["v"], [5])
    array(f"{group}/gone", line, ["v"], None)
    array(f"{group}/scalar", [("__scalars", (0, 0))], ["once"], None)
    array(f"{group}/never", [("z", (0, 4))], ["v"], None)
    array(f"{group}/from1", [("x", (1, 8))], ["v"], None)
    array(f"{group}/cells", line, [], None, sparse=True, attributes=[tiledb.Attr("v", dtype=np.int32)])
    array(f"{group}/text", line, [], None, attributes=[tiledb.Attr("t", dtype=str), tiledb.Attr("u", dtype=np.uint8, fill=9)])
    with tiledb.open(f"{group}/text", "w") as opened:
        opened[0:10] = {"t": np.array(["a"] * 10, dtype=object), "u": np.arange(10, dtype=np.uint8)}
    outside = tempfile.mkdtemp(prefix="tiledbfs-outside-")
    array(f"{outside}/a", line, ["v"], [4])
    with tiledb.Group(group, "w") as opened:
        for name in ("long", "short", "array7", "clash", "fixed", "other", "from1", "cells", "text", "gone", "scalar", "never", "suffixed"):
            opened.add(f"{group}/{name}", name=name)
        opened.add(f"{outside}/a", name="away")
        opened.meta["__tiledb_array_fixed_dimensions.fixed"] = "y"
        opened.meta["__tiledb_array_fixed_dimensions.other"] = 5
        opened.meta["title"], opened.meta["_hidden"], opened.meta["_NCProperties"] = "joined", 1.5, "version=2"
    shutil.rmtree(f"{group}/gone")
    shutil.rmtree(outside)
    empty = f"{folder}/nothing"
    tiledb.Group.create(empty)
    array(f"{empty}/unwritten", line, ["v"], None)
    with tiledb.Group(empty, "w") as opened:
        opened.add(f"{empty}/unwritten", name="unwritten")
        opened.meta["title"] = "nothing"


def joined(checks, point):
    """Lengths, names and what is left out."""
    group = point / "joined"
    said = json.loads((group / "dataset.json").read_text())
    checks.equal("joined: dimensions", said["dimensions"], {"x": 9, "y": 5, "z": 0})
    shown = {(one["array"], one["attribute"], one["name"]) for one in said["variables"]}
    checks.equal("joined: variables", shown, {("long", "v", "long"), ("short", "v", "short"), ("array7", "a.data", "a.data"), ("clash", "a", "a"), ("clash", "b", "b"), ("other", "v", "other"),
                                              ("fixed", "v", "fixed"), ("text", "u", "u"), ("scalar", "once", "once"), ("never", "v", "never"),
                                              *(("suffixed", name, name) for name in ("obs.data", "obs.index", "obs"))})
    reasons = {one["what"]: one["reason"] for one in said["left_out"]}
    checks.equal("joined: left out", sorted(reasons), sorted(["_NCProperties", "__tiledb_array_fixed_dimensions.other", "away", "cells", "from1", "gone", "text", "text/t", "array7", "clash", "long"]))
    with xarray.open_zarr(group / "dataset.zarr", decode_cf=False) as zarred, xarray.open_dataset(group / "dataset.nc", decode_cf=False) as opened:
        for name, want in (("long", list(range(9))), ("short", list(range(9))), ("a", list(range(9))), ("a.data", list(range(9))), ("fixed", [0, 1, 2, -1, -1]), ("u", list(range(9))), ("once", -1), ("never", [])):
            checks.equal(f"joined: {name}", (zarred[name].values.tolist(), opened[name].values.tolist()), (want, want))
        checks.equal("joined: fills", (zarred["long"].attrs["_FillValue"], int(opened["u"].attrs["_FillValue"])), (-1, 9))
        checks.equal("joined: attributes", (zarred.attrs, dict(opened.attrs)), ({"title": "joined", "_hidden": 1.5},) * 2)
    nothing = point / "nothing"
    checks.equal("nothing: listed", sorted(os.listdir(nothing)), ["group.json", "metadata.json", "unwritten"])
    checks.equal("nothing: exists", ((nothing / "dataset.nc").exists(), (nothing / "dataset.zarr").exists()), (False, False))
    said = json.loads((nothing / "dataset.json").read_text())
    checks.equal("nothing: dataset.json", (len(said["variables"]), [one["what"] for one in said["left_out"]]), (1, ["dataset.zarr, dataset.nc"]))


def write_pair(group):
    """A group of the arrays `a` and `b`, of which nothing is written."""
    tiledb.Group.create(group)
    with tiledb.Group(group, "w") as opened:
        for name in "ab":
            domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 63), tile=16, dtype=np.int32))
            tiledb.Array.create(f"{group}/{name}", tiledb.ArraySchema(domain, [tiledb.Attr("v", dtype=np.int64)]))
            opened.add(f"{group}/{name}", name=name)


def write_both(group, value, cells=64):
    """Writes the same into both arrays, `a` first."""
    for name in "ab":
        with tiledb.open(f"{group}/{name}", "w") as array:
            array[0:cells] = np.full(cells, value, dtype=np.int64)


def pair(file):
    """What an open data set has in `a` and in `b`: the value of all cells, or what differs."""
    found = [np.unique(file[name][:]).tolist() for name in "ab"]
    return [values[0] if len(values) == 1 else values for values in found]


def one_state(checks, folder):
    """While somebody writes one array after the other, a data set is of a state that the group had: never is what was written first older."""
    group = f"{folder}/pair"
    write_pair(group)
    write_both(group, 0)
    with mounted(folder) as point:
        numbers = itertools.count(1)

        def write():
            write_both(group, next(numbers))

        def look():
            # What was looked at last of one array is not as old as of the other.
            os.stat(point / "pair/a/data/columns/v/data.bin")
            time.sleep(0.013)

        seen, end = [], time.monotonic() + 4
        with meanwhile(write, look):
            while time.monotonic() < end:
                with unless_stale(), h5netcdf.File(point / "pair/dataset.nc") as file:
                    seen.append(pair(file))
                time.sleep(0.02)
        checks.equal("states that the group never had", [values for values in seen if isinstance(values[0], list) or values[0] - values[1] not in (0, 1)][:5], [])
        checks.equal("there were several states", len({tuple(values) for values in seen}) > 5, True)
        time.sleep(0.3)
        with open(point / "pair/dataset.nc", "rb", buffering=0) as held, h5netcdf.File(point / "pair/dataset.nc") as file:
            length, header = os.fstat(held.fileno()).st_size, held.read(100)
            want = pair(file)
            for name in "ab":
                tiledb.consolidate(f"{group}/{name}")
                tiledb.vacuum(f"{group}/{name}")
            write_both(group, -1)
            time.sleep(0.3)
            # Cells of that state, or an error.
            with contextlib.suppress(OSError):
                checks.equal("a data set that stays open after a vacuum", pair(file), want)
            checks.equal("its length and its beginning", (os.fstat(held.fileno()).st_size, os.pread(held.fileno(), 100, 0)), (length, header))
        with h5netcdf.File(point / "pair/dataset.nc") as file:
            checks.equal("one that is opened afterwards", pair(file), [-1, -1])


def past(checks, folder):
    """`mount --at` shows the data set of then: with what was written, and as long as it was."""
    group = f"{folder}/past"
    write_pair(group)
    times = []
    for value, cells in ((None, 0), (1, 10), (2, 20)):
        if value:
            write_both(group, value, cells)
        times.append(time.time_ns() // 1_000_000)
        time.sleep(0.05)
    for at, want in zip(times, (None, 10, 20)):
        with mounted(folder, "--at", f"+{at}") as point:
            if want is None:
                checks.equal("a data set before anything was written", (point / "past/dataset.nc").exists(), False)
                continue
            opened = {"netcdf4": xarray.open_dataset(point / "past/dataset.nc", engine="netcdf4"), "zarr": xarray.open_zarr(point / "past/dataset.zarr")}
            for reader, dataset in opened.items():
                with dataset:
                    got = [(dataset[name].shape, np.unique(dataset[name]).tolist()) for name in "ab"]
                checks.equal(f"the data set of {want} cells by {reader}", got, [((want,), [want // 10])] * 2)
            said = json.loads((point / "past/dataset.json").read_text())
            checks.equal(f"dataset.json of {want} cells", said["dimensions"], {"x": want})
    with mounted(folder) as point:
        checks.equal("groups have no times", (point / "past/at").exists(), False)
        with netCDF4.Dataset(point / f"past/a/at/+{times[1]}/data/array.nc") as file:
            checks.equal("an array of the group at a time", file["v"][:].tolist(), [1] * 10)


def walked(checks, group):
    """Who lists a group and then its arrays reads no more of these than for the listing of the group."""
    with mounted(group) as point:
        os.listdir(point)
        before = stats(point)["bytes_read"]
        for name in "ab":
            os.listdir(point / name)
        checks.equal("bytes read of arrays when they are listed after their group", (before > 0, stats(point)["bytes_read"] - before), (True, 0))


AS_NOBODY = """
import os, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
for path in sys.argv[1:]:
    try:
        with open(path, "rb") as file:
            print(len(file.read()) > 0)
    except OSError as error:
        print(error.errno)
"""


def permissions(checks, folder):
    """With `allow_other`, who may not read one array, or what the group says, reads no data set that is made of it."""
    group = f"{folder}/pair"
    os.chmod(folder, 0o755)
    with mounted(folder, "-o", "allow_other") as point:
        os.chmod(point.parent, 0o755)
        paths = [point / "pair" / name for name in ("dataset.nc", "dataset.json", "dataset.zarr/zarr.json", "dataset.zarr/a/c/0", "b/data/array.nc")]

        def read():
            # Permissions are asked again after a second.
            time.sleep(1.2)
            done = subprocess.run([sys.executable, "-c", AS_NOBODY, *paths], capture_output=True, text=True, timeout=60, check=True)
            return done.stdout.split()

        checks.equal("who may read all arrays", read(), ["True"] * 5)
        for path, left in ((f"{group}/a", "True"), (f"{group}/__meta", "True"), (f"{group}/__group", None)):
            os.chmod(path, 0o700)
            got = read()
            checks.equal(f"who may not read {Path(path).name}", got[:4], ["13"] * 4)
            if left:
                checks.equal(f"... and another array", got[4], left)
            os.chmod(path, 0o755)
        checks.equal("who may read them again", read(), ["True"] * 5)


def main():
    """Writes the arrays and compares."""
    checks = Checks()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="tiledbfs-datasets-") as folder:
        source = f"{folder}/source.nc"
        write_source(source)
        for name in ("group", "others"):
            os.mkdir(f"{folder}/{name}")
        ingest(source, f"{folder}/group")
        write_corners(f"{folder}/others/corners")
        write_sparse(f"{folder}/others/sparse")
        subprocess.run(["cp", "-r", f"{folder}/group/array1", f"{folder}/others/damaged"], check=True)
        with mounted(f"{folder}/group") as point:
            unread(checks, point)
            compare(checks, source, point)
            checks.equal("errors of the mount", errors(point), [])
        joining = f"{folder}/joining"
        os.mkdir(joining)
        write_joined(joining)
        with mounted(joining) as point:
            joined(checks, point)
            checks.equal("errors of the mount", errors(point), [])
        pairs = f"{folder}/pairs"
        os.mkdir(pairs)
        one_state(checks, pairs)
        past(checks, pairs)
        walked(checks, f"{pairs}/past")
        os.chmod(folder, 0o755)
        permissions(checks, pairs)
        writers = os.environ.get("TILEDBFS_WRITERS")
        if writers:
            groups = f"{folder}/groups"
            os.mkdir(groups)
            write_tree(f"{folder}/tree.nc")
            subprocess.run([writers, Path(__file__).with_name("write_cf.py"), f"{folder}/tree.nc", groups], check=True, timeout=60)
            with mounted(groups) as point:
                trees(checks, f"{folder}/tree.nc", groups, point)
                checks.equal("errors of the mount", errors(point), [])
        # Written by TileDB-CF itself.
        real = ROOT / "target/real/arrays/packages/cf/xr"
        if real.exists():
            with mounted(real) as point, xarray.open_dataset(point / "time/data/array.nc") as dataset:
                checks.equal("dates that TileDB-CF wrote", str(dataset["time_"].values[1])[:10], "2001-02-01")
        with mounted(f"{folder}/others") as point:
            corners(checks, point)
            compare_sparse(checks, f"{folder}/others/sparse", point)
            checks.equal("errors of the mount", errors(point), [])
            damaged(checks, f"{folder}/others", point)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
