"""Tables that pandas and vector drivers wrote: index, types, ordered categories and geometries in table.parquet, through a mount.

    python3 dataset_tables.py

Runs where requirements-datasets.txt is installed: TileDB-Py makes data frames with pandas below 3. The last line is `N passed, N failed`.
"""

import json
import os
import shutil
import sys
import tempfile
import warnings

import duckdb
import fastparquet
import geopandas
import numpy as np
import pandas as pd
import polars
import pyarrow.parquet
import shapely
import tiledb
from pandas.testing import assert_frame_equal

from documented import described, run_lines
from mount import ROOT, errors, mounted, stats
from plain_tools import Checks

# What the real packages wrote, beside what is written here.
REAL = ROOT / "target/real/arrays/packages/tiledb-py"


def frames():
    """Data frames by name, with the arguments that `from_pandas` takes."""
    count = 60
    chance = np.random.default_rng(3)
    numbers = {f"{of}": chance.integers(0, 100, count).astype(of) for of in ("i1", "u2", "i8", "u8", "f4", "f8")}
    plain = pd.DataFrame({**numbers, "b": chance.integers(0, 2, count) == 1, "t": pd.date_range("2024-01-01", periods=count, freq="h"),
                          "s": [f"größe {i}" for i in range(count)]})
    nullable = pd.DataFrame({f"{of}": pd.array([None if i % 5 == 0 else i for i in range(count)], dtype=of)
                             for of in ("Int8", "UInt16", "Int64", "UInt64", "Float64")})
    nullable["boolean"] = pd.array([None if i % 7 == 0 else i % 2 == 0 for i in range(count)], dtype="boolean")
    nullable["string"] = pd.array([f"{i}" for i in range(count)], dtype="string")
    sizes = ["unused", "small", "large", "middle"]
    categories = pd.DataFrame({
        "ordered": pd.Categorical([sizes[1 + i % 3] for i in range(count)], categories=sizes, ordered=True),
        "plain": pd.Categorical(["xyz"[i % 3] for i in range(count)], categories=list("zyx")),
        "numbers": pd.Categorical([(10, 30, 20)[i % 3] for i in range(count)], categories=[10, 20, 30]), "v": np.arange(count)})
    named = plain.set_index(pd.Index(range(5, 5 + count), name="key"))
    texts = plain.assign(k=[f"k{i:03}" for i in range(count)]).set_index("k")
    several = plain.assign(k=[f"k{i:03}" for i in range(count)]).set_index(["k", "t"])
    yield "plain", plain, {"sparse": False}
    yield "rows", plain, {"sparse": True}
    yield "nullable", nullable, {"sparse": False}
    arrow = [None if i % 5 == 0 else i % 2 for i in range(count)]
    yield "arrow", pd.DataFrame({of: pd.array(arrow, dtype=f"{of}[pyarrow]") for of in ("int64", "double", "bool")}), {"sparse": False}
    yield "categories", categories, {"sparse": False}
    yield "sparse_categories", categories, {"sparse": True}
    yield "named", named, {"sparse": True}
    yield "texts", texts, {"sparse": True}
    yield "several", several, {"sparse": True}
    yield "floats", plain.set_index(pd.Index(np.linspace(0, 1, count), name="x")), {"sparse": True}


def write_old_booleans(uri):
    """Booleans as TileDB-Py stored them before TileDB 2.10: as bytes."""
    domain = tiledb.Domain(tiledb.Dim("__tiledb_rows", domain=(0, 99), tile=10, dtype=np.uint64))
    attributes = [tiledb.Attr("b", dtype=np.uint8), tiledb.Attr("n", dtype=np.uint8, nullable=True)]
    tiledb.Array.create(uri, tiledb.ArraySchema(domain, attributes, sparse=True))
    with tiledb.open(uri, "w") as array:
        array[np.arange(5, dtype=np.uint64)] = {"b": np.array([1, 0, 1, 1, 0], "u1"), "n": pd.array([1, None, 0, 1, 1], dtype="UInt8")}
        array.meta["__pandas_index_dims"] = json.dumps({"__tiledb_rows": "int64"})
        array.meta["__pandas_attribute_repr"] = json.dumps({"b": "bool", "n": "boolean"})


def same(checks, what, got, want):
    """Whether two data frames are equal, types and names too."""
    try:
        assert_frame_equal(got, want)
        checks.equal(what, True, True)
    except AssertionError as error:
        checks.equal(what, str(error), None)


def by_value(frame):
    """A data frame whose categories of numbers are numbers: Parquet's readers know dictionaries of text alone."""
    numbers = [name for name in frame if frame[name].dtype == "category" and frame[name].cat.categories.dtype.kind != "O"]
    return frame.astype({name: frame[name].cat.categories.dtype for name in numbers})


def in_order(frame):
    """A data frame sorted by all that is in it: readers of sparse arrays take equal coordinates in any order."""
    frame = frame.reset_index()
    return frame.sort_values(list(frame.columns), ignore_index=True)


def compare_frames(checks, folder, point):
    """pandas reads what `open_dataframe` gives; others read the same values."""
    for name in sorted(os.listdir(folder)):
        uri, file = f"{folder}/{name}", point / name / "data/table.parquet"
        if tiledb.object_type(uri) != "array":
            continue
        with tiledb.open(uri) as array:
            if "__pandas_index_dims" not in array.meta:
                continue
            is_sparse = array.schema.sparse
        want, got = by_value(tiledb.open_dataframe(uri)), pd.read_parquet(file)
        if "ordered" in want:
            # TileDB-Py stores this, and forgets it.
            want["ordered"] = want["ordered"].cat.as_ordered()
        checks.equal(f"{name}: index", (list(got.index.names), str(got.index.dtype)), (list(want.index.names), str(want.index.dtype)))
        levels = got.index.nlevels
        if is_sparse:
            want, got = in_order(want), in_order(got)
        same(checks, f"{name}: pandas", got, want)
        texts = polars.selectors.categorical().cast(polars.String)
        ours, theirs = polars.read_parquet(file), polars.from_arrow(pyarrow.parquet.read_table(file))
        checks.equal(f"{name}: Polars", ours.with_columns(texts).equals(theirs.with_columns(texts)), True)
        counted = duckdb.sql(f"SELECT count(*) FROM '{file}'").fetchall()[0][0]
        checks.equal(f"{name}: DuckDB", counted, len(want))
        if name == "arrow":
            # fastparquet reads no such columns with nulls, not even of pandas' own files.
            continue
        # fastparquet calls the unnamed index as the file does.
        own = fastparquet.ParquetFile(str(file)).to_pandas()
        checks.equal(f"{name}: fastparquet", (own.index.nlevels, set(own.columns) <= set(want.columns), len(own)),
                     (levels, True, len(want)))


def compare_categories(checks, point):
    """Ordered dictionaries with labels that no cell has; the metadata of both places."""
    for name in ("categories", "sparse_categories"):
        file = point / name / "data/table.parquet"
        schema = pyarrow.parquet.read_schema(file)
        types = [schema.field(column).type for column in ("ordered", "plain", "numbers")]
        checks.equal(f"{name}: pyarrow", [(str(of), getattr(of, "ordered", None)) for of in types],
                     [("dictionary<values=string, indices=int32, ordered=1>", True), ("dictionary<values=string, indices=int32, ordered=0>", False), ("int64", None)])
        checks.equal(f"{name}: keys", sorted(schema.metadata), [b"pandas"])
        checks.equal(f"{name}: keys of the file", sorted(set(pyarrow.parquet.read_metadata(file).metadata) - {b"padding"}), [b"ARROW:schema", b"pandas"])
        labels = pyarrow.parquet.read_table(file)["ordered"].chunk(0).dictionary.to_pylist()
        checks.equal(f"{name}: labels", labels, ["unused", "small", "large", "middle"])
        checks.equal(f"{name}: DuckDB", duckdb.sql(f"SELECT ordered, count(*) FROM '{file}' GROUP BY 1 ORDER BY 1").fetchall(),
                     [("large", 20), ("middle", 20), ("small", 20)])
        checks.equal(f"{name}: Polars sorts and filters", len(polars.scan_parquet(file).filter(polars.col("plain") == "x").collect()), 20)
    part = point / "categories/data/subarray/3..9/table.parquet"
    checks.equal("a part has the labels", list(pd.read_parquet(part)["ordered"].cat.categories), ["unused", "small", "large", "middle"])
    checks.equal("a part has the index", list(pd.read_parquet(part).index), list(range(3, 10)))


MALFORMED = {
    "not_json": {"__pandas_index_dims": "{", "__pandas_attribute_repr": "[]"},
    "not_text": {"__pandas_index_dims": 5},
    "no_columns": {"__pandas_index_dims": '{"nowhere": "int64"}', "__pandas_attribute_repr": '{"i": "Int64", "s": 3, "j": "string"}'},
    "deep": {"__pandas_index_dims": "[" * 60000},
    "no_geometry": {"GEOMETRY_ATTRIBUTE_NAME": "nowhere"},
    "numbers": {"GEOMETRY_ATTRIBUTE_NAME": "s"},
}


def write_malformed(folder):
    """Arrays with metadata that says what is not so."""
    for name, pairs in MALFORMED.items():
        domain = tiledb.Domain(tiledb.Dim("d", domain=(0, 9), tile=10, dtype=np.int64))
        attributes = [tiledb.Attr("i", dtype=np.int32), tiledb.Attr("b", dtype=np.uint8), tiledb.Attr("j", dtype=np.int64), tiledb.Attr("s", dtype=str)]
        tiledb.Array.create(f"{folder}/{name}", tiledb.ArraySchema(domain, attributes, sparse=True))
        with tiledb.open(f"{folder}/{name}", "w") as array:
            array[np.arange(3)] = {"i": np.arange(3, dtype="i4"), "b": np.ones(3, "u1"), "j": np.arange(3), "s": np.array(["a", "b", "c"], dtype=object)}
            array.meta.update(pairs)


def malformed(checks, point):
    """What is malformed is left out with a reason, and every table opens."""
    for name, pairs in MALFORMED.items():
        data = point / name / "data"
        frame = pd.read_parquet(data / "table.parquet")
        checks.equal(f"{name}: values", frame["i"].tolist(), [0, 1, 2])
        checks.equal(f"{name}: no index", list(frame.columns), ["d", "i", "b", "j", "s"])
        left_out = json.loads((data / "view.json").read_text())["left_out"]
        checks.equal(f"{name}: what is left out", {entry["what"] for entry in left_out if entry["reason"]}, set(pairs))
    left_out = json.loads((point / "no_columns/data/view.json").read_text())["left_out"]
    checks.equal("a reason for each column", len(left_out), 4)


POINTS = [(10.5, 47.5), (11.25, 48.0), (12.0, 46.75)]
CRS = {"$schema": "https://proj.org/schemas/v0.7/projjson.schema.json", "type": "GeographicCRS", "name": "WGS 84",
       "datum": {"type": "GeodeticReferenceFrame", "name": "World Geodetic System 1984", "ellipsoid": {"name": "WGS 84", "semi_major_axis": 6378137,
                                                                                                       "inverse_flattening": 298.257223563}},
       "coordinate_system": {"subtype": "ellipsoidal", "axis": [
           {"name": "Geodetic latitude", "abbreviation": "Lat", "direction": "north", "unit": "degree"},
           {"name": "Geodetic longitude", "abbreviation": "Lon", "direction": "east", "unit": "degree"}]},
       "id": {"authority": "EPSG", "code": 4326}}
EXTENT = {"LAYER_EXTENT_MINX": 10.5, "LAYER_EXTENT_MINY": 46.75, "LAYER_EXTENT_MAXX": 12.0, "LAYER_EXTENT_MAXY": 48.0}


def write_vectors(folder):
    """Layers as GDAL's driver has them: sparse over _X and _Y, the geometry as bytes; WKT instead of PROJJSON; the type GEOM_WKB alone; the name that GDAL expects alone."""
    layers = {"uint8": (np.uint8, "wkb_geometry", {"CRS": json.dumps(CRS), **EXTENT}), "blob": ("blob", "geom", {"CRS": json.dumps(CRS), **EXTENT}),
              "wkt": ("blob", "wkb_geometry", {"CRS": 'GEOGCRS["WGS 84"]', "LAYER_EXTENT_MINX": 1.0}), "alone": ("wkb", "shape", {}),
              "no_system": ("blob", "geom", {"CRS": '{"a": 1}'}), "no_name": ("blob", "wkb_geometry", {"FID_ATTRIBUTE_NAME": "FID"})}
    for name, (of, attribute, pairs) in layers.items():
        dims = [tiledb.Dim(axis, domain=(-360.0, 360.0), tile=90.0, dtype=np.float64) for axis in ("_X", "_Y")]
        attributes = [tiledb.Attr(attribute, dtype=of, var=True), tiledb.Attr("FID", dtype=np.int64)]
        tiledb.Array.create(f"{folder}/{name}", tiledb.ArraySchema(tiledb.Domain(*dims), attributes, sparse=True))
        cells = [np.frombuffer(shapely.to_wkb(shapely.Point(point)), "u1") for point in POINTS]
        shapes = np.empty(len(cells), object)
        shapes[:] = cells if of is np.uint8 else [cell.tobytes() for cell in cells]
        with tiledb.open(f"{folder}/{name}", "w") as array:
            array[[x for x, _ in POINTS], [y for _, y in POINTS]] = {attribute: shapes, "FID": np.arange(len(POINTS))}
            if pairs:
                array.meta.update({"dataset_type": "geometry", "FID_ATTRIBUTE_NAME": "FID", **pairs})
                if name != "no_name":
                    array.meta["GEOMETRY_ATTRIBUTE_NAME"] = attribute


def write_layers(folder):
    """A group of layers, as GDAL's driver has them."""
    tiledb.Group.create(f"{folder}/group")
    shutil.copytree(f"{folder}/no_system", f"{folder}/group/layers/points")
    with tiledb.Group(f"{folder}/group", "w") as group:
        group.add("layers/points", name="points", relative=True)
        group.meta["dataset_type"] = "geometry"


def compare_vectors(checks, point):
    """GeoPandas reads geometries, reference system and extent."""
    for name, attribute in {"uint8": "wkb_geometry", "blob": "geom", "wkt": "wkb_geometry", "alone": "shape", "no_system": "geom", "no_name": "wkb_geometry"}.items():
        file = point / name / "data/table.parquet"
        frame = geopandas.read_parquet(file).sort_values("FID")
        checks.equal(f"{name}: geometries", [(shape.x, shape.y) for shape in frame.geometry], POINTS)
        checks.equal(f"{name}: column", frame.geometry.name, attribute)
        known = name in ("uint8", "blob")
        checks.equal(f"{name}: reference system", frame.crs and frame.crs.to_epsg(), 4326 if known else None)
        geo = json.loads(pyarrow.parquet.read_schema(file).metadata[b"geo"])
        checks.equal(f"{name}: extent", geo["columns"][attribute].get("bbox"), list(EXTENT.values()) if known else None)
        checks.equal(f"{name}: version", geo["version"], "1.1.0")
        part = point / name / "data/subarray/10..11.5,46..49"
        geo = json.loads(pyarrow.parquet.read_schema(part / "table.parquet").metadata[b"geo"])
        checks.equal(f"{name}: a part has no extent", "bbox" in geo["columns"][attribute], False)
        left_out = json.loads((point / name / "data/view.json").read_text())["left_out"]
        checks.equal(f"{name}: what is left out", [entry["what"] for entry in left_out], {"wkt": ["LAYER_EXTENT_MINX"], "no_system": ["CRS"]}.get(name, []))


def write_empty(folder):
    """Layers in which features have no geometry: cells without bytes, or with the one byte of a fill value, the first, the last, some, and all of
    them; in two fragments."""
    count = 500
    for name, of, is_empty in (("some", "blob", lambda i: i % 7 in (0, 3)), ("most", np.uint8, lambda i: i % 7 != 2), ("all", "wkb", lambda i: True)):
        dims = [tiledb.Dim(axis, domain=(-1.0, 1e3), tile=100.0, dtype=np.float64) for axis in ("_X", "_Y")]
        attributes = [tiledb.Attr("geom", dtype=of, var=True), tiledb.Attr("FID", dtype=np.int64)]
        tiledb.Array.create(f"{folder}/{name}", tiledb.ArraySchema(tiledb.Domain(*dims), attributes, sparse=True))
        for start in (0, 1):
            none = b"\x80" if name == "some" else b""
            cells = [none if is_empty(i) else shapely.to_wkb(shapely.LineString([(0, i)] * (2 + i % 5))) for i in range(start, count, 2)]
            shapes = np.empty(len(cells), object)
            shapes[:] = [np.frombuffer(cell, "u1") for cell in cells] if of is np.uint8 else cells
            places = np.arange(start, count, 2)
            with tiledb.open(f"{folder}/{name}", "w") as array:
                array[places.astype(float), places.astype(float)] = {"geom": shapes, "FID": places}
                array.meta.update({"dataset_type": "geometry", "GEOMETRY_ATTRIBUTE_NAME": "geom"})
        yield name, [None if is_empty(i) else shapely.LineString([(0, i)] * (2 + i % 5)) for i in range(count)]


def compare_empty(checks, point, layers):
    """A cell of fewer bytes than any geometry is none, and the others are read."""
    for name, shapes in layers:
        for view, rows in (("data", shapes), ("data/subarray/100..300,..", shapes[100:301])):
            file = point / name / view / "table.parquet"
            frame = geopandas.read_parquet(file).sort_values("FID")
            checks.equal(f"{name}, {view}: geometries", frame.geometry.tolist(), rows)
            nulls = duckdb.sql(f"SELECT count(*), count(geom) FROM '{file}'").fetchall()[0]
            checks.equal(f"{name}, {view}: DuckDB counts", nulls, (len(rows), sum(shape is not None for shape in rows)))
            whole = pyarrow.parquet.read_table(file, columns=["geom"])["geom"].to_pylist()
            checks.equal(f"{name}, {view}: pyarrow", [cell is None for cell in whole].count(True), sum(shape is None for shape in rows))


def main():
    """Writes the arrays and compares."""
    checks = Checks()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="tiledbfs-tables-") as folder:
        for part in ("frames", "vectors", "malformed", "empty"):
            os.mkdir(f"{folder}/{part}")
        for name, frame, how in frames():
            tiledb.from_pandas(f"{folder}/frames/{name}", frame, **how)
        write_old_booleans(f"{folder}/frames/old_booleans")
        # Its rows are numbered by a dimension of UINT64.
        next(frames())[1].to_csv(f"{folder}/rows.csv", index=False)
        tiledb.from_csv(f"{folder}/frames/of_csv", f"{folder}/rows.csv", sparse=True)
        write_vectors(f"{folder}/vectors")
        write_layers(f"{folder}/vectors")
        write_malformed(f"{folder}/malformed")
        empty = list(write_empty(f"{folder}/empty"))
        with mounted(f"{folder}/frames") as point:
            for name in os.listdir(f"{folder}/frames"):
                os.stat(point / name / "data/table.parquet")
            checks.equal("chunks decoded for lengths of fixed-size cells", stats(point)["chunks_decoded"] < 200, True)
            compare_frames(checks, f"{folder}/frames", point)
            compare_categories(checks, point)
            checks.equal("errors of the mount", errors(point), [])
            frame = point / os.listdir(f"{folder}/frames")[0]
            with mounted(f"{folder}/vectors") as vectors:
                compare_vectors(checks, vectors)
                frame_said, layer_said = described(f"{folder}/frames/several"), described(f"{folder}/vectors/blob")
                checks.equal("info of a data frame", [frame_said.get(key) for key in ("kind", "open")], ["table", "table.parquet, table.csv, in data/"])
                checks.equal("info of a layer", [layer_said.get(key) for key in ("kind", "crs", "extent")],
                             ["geometry", CRS["name"], "X {:g}..{:g}, Y {:g}..{:g}".format(*(EXTENT[f"LAYER_EXTENT_{end}"] for end in ("MINX", "MAXX", "MINY", "MAXY")))])
                wkt_said, unnamed_said, group_said = (described(f"{folder}/vectors/{name}") for name in ("wkt", "no_name", "group"))
                checks.equal("info of layers with WKT, without names, and of their group", [wkt_said.get("crs"), unnamed_said.get("kind"), group_said.get("kind"), group_said.get("open")],
                             ["WGS 84", "geometry", "geometry", "points/data/table.parquet"])
                run_lines(checks, "tables", f"{folder}/documented", {"array": frame, "layer": vectors / "blob"})
        with mounted(f"{folder}/empty") as point:
            compare_empty(checks, point, empty)
            checks.equal("errors of the mount", errors(point), [])
        with mounted(f"{folder}/malformed") as point:
            malformed(checks, point)
            checks.equal("errors of the mount", errors(point), [])
        if REAL.exists():
            with mounted(REAL) as point:
                compare_frames(checks, str(REAL), point)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
