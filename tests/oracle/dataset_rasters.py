"""Rasters laid out and described as GDAL's driver does it: raster/*.tif, array.* and dataset.* through a mount, against the GeoTIFF that each was made from.

    python3 dataset_rasters.py

The GDAL of distributions lacks its TileDB driver, so the arrays are written by TileDB-Py. What describes them GDAL writes: the elements of a virtual
raster (VRT) of the same source are those of PAM, but for the spelling of numbers; the driver's IMAGE_STRUCTURE is added. Runs where requirements-datasets.txt is installed, with
GDAL's programs. The last line is `N passed, N failed`.
"""

import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import warnings
import xml.etree.ElementTree as xml
from pathlib import Path
from xml.sax.saxutils import escape

import netCDF4
import numpy as np
import pyproj
import rasterio
import rioxarray  # noqa: F401, the accessor `rio`
import tifffile
import tiledb
import xarray
from rasterio.transform import Affine
from rasterio.windows import Window

from capi import Column, Lib
from documented import described as told_by_info, run_lines
from mount import binary, errors, mounted, stats
from plain_tools import Checks

BLOCK = 16
UTM = Affine(10.0, 0.0, 399960.0, 0.0, -10.0, 5300040.0)
ROTATED = Affine(8.0, 3.0, 1000.0, 2.5, -9.0, 2000.0)
UPWARDS = Affine(0.25, 0.0, -10.0, 0.0, 0.25, 40.0)
# Without a code of EPSG.
OWN = 'PROJCS["my own",GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],' \
      'UNIT["degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],PARAMETER["latitude_of_origin",1.5],PARAMETER["central_meridian",9.25],' \
      'PARAMETER["scale_factor",0.9997],PARAMETER["false_easting",1000],PARAMETER["false_northing",2000],UNIT["metre",1]]'
# Name: type, bands, layout, and what rasterio is told.
RASTERS = {
    "band": ("uint16", 3, "BAND", dict(crs="EPSG:32632", transform=UTM, nodata=65535)),
    "pixel": ("float32", 4, "PIXEL", dict(crs="EPSG:4326", transform=UPWARDS, nodata=-9999.5)),
    "attributes": ("int16", 3, "ATTRIBUTES", dict(crs="EPSG:3035", transform=UTM)),
    "rotated": ("uint8", 1, "BAND", dict(crs="EPSG:32632", transform=ROTATED, nodata=0)),
    "own": ("float64", 2, "BAND", dict(crs=OWN, transform=UTM, nodata=float("nan"))),
    "heights": ("float32", 1, "BAND", dict(crs="EPSG:7415", transform=UTM)),
    "ellipsoidal": ("float32", 1, "BAND", dict(crs="EPSG:4947", transform=UPWARDS)),
    "local": ("int32", 1, "BAND", dict(transform=UTM)),
    "third": ("float64", 1, "BAND", dict(crs="EPSG:32632", transform=UTM, nodata=1 / 3)),
    "least": ("float64", 1, "BAND", dict(crs="EPSG:32632", transform=UTM, nodata=-sys.float_info.max)),
    "long": ("int64", 1, "BAND", dict(crs="EPSG:32632", transform=UTM, nodata=-9223372036854775807)),
    "short": ("int64", 1, "BAND", dict(crs="EPSG:32632", transform=UTM, nodata=19)),
    "unsigned": ("uint64", 1, "BAND", dict(crs="EPSG:32632", transform=UTM, nodata=9223372036854775809)),
    "plain": ("float32", 1, "BAND", {}),
    "filled": ("int16", 2, "BAND", dict(crs="EPSG:32632", transform=UTM, nodata=-999)),
    "filled_with_0": ("uint8", 1, "PIXEL", dict(crs="EPSG:32632", transform=UTM, nodata=0)),
    "point": ("uint8", 3, "PIXEL", dict(crs="EPSG:32632", transform=UTM)),
    "palette": ("uint8", 1, "BAND", dict(crs="EPSG:4326", transform=UPWARDS)),
    "palette_of_16_bits": ("uint16", 1, "BAND", dict(crs="EPSG:4326", transform=UPWARDS)),
}
# Newer versions of the driver keep the no-data value as the fill of the attribute, and nowhere else.
FILLED = ("filled", "filled_with_0")
WIDTH, HEIGHT = 50, 37
# Of tags.
DOMAIN = "OTHER"


def write_source(path, name):
    """The GeoTIFF."""
    of, bands, _, told = RASTERS[name]
    chance = np.random.default_rng(len(name))
    values = chance.integers(0, 200, (bands, HEIGHT, WIDTH)).astype(of)
    with rasterio.open(path, "w", driver="GTiff", dtype=of, count=bands, width=WIDTH, height=HEIGHT, **told) as file:
        file.write(values)
        file.update_tags(AREA_OR_POINT="Point" if name == "point" else "Area")
        if name in ("band", "attributes", "own"):
            file.update_tags(SENSOR="a < b & \"c\"", größe="ü")
            file.update_tags(ns=DOMAIN, key="in a domain")
            for band in range(1, bands + 1):
                file.set_band_description(band, f"band {band} <&>")
                file.update_tags(band, wavelength=f"{400 + band}")
            file.scales, file.offsets = [0.25 * (band + 1) for band in range(bands)], [-273.15 + band for band in range(bands)]
            file.units = ["K", "m", "kg m-2"][:bands]
        if name.startswith("palette"):
            file.write_colormap(1, {value: (value, 255 - value, value // 2, 255) for value in range(256)})


def exactly(value, number):
    """Makes a value that lacks data what GDAL writes of it: 15 digits, and the bytes of what these do not tell."""
    if math.isfinite(number):
        value.text = f"{number:.14E}"
        if not number.is_integer() or float(value.text) != number:
            value.set("le_hex_equiv", struct.pack("<d", number).hex().upper())


def described(source, interleave, size=(HEIGHT, WIDTH), step=1):
    """The PAM document of a raster of this size, of which a pixel is one of so many along each side."""
    done = subprocess.run(["gdal_translate", "-q", "-of", "VRT", source, "/vsistdout/"], capture_output=True, text=True, timeout=60, check=True)
    with rasterio.open(source) as file:
        # Which virtual rasters lack, and of which they have 15 digits.
        tags, nodata, of = file.tags(ns=DOMAIN), file.nodata, file.dtypes[0]
    name = Path(source).stem
    root = xml.fromstring(done.stdout)
    root.tag, root.attrib = "PAMDataset", {}
    for element in list(root):
        if element.tag == "OverviewList" or element.get("domain") == "IMAGE_STRUCTURE":
            root.remove(element)
        elif element.tag == "GeoTransform":
            numbers = [float(number) for number in element.text.split(",")]
            element.text = ", ".join(repr(number * (1 if i % 3 == 0 else step)) for i, number in enumerate(numbers))
        elif element.tag == "VRTRasterBand":
            element.tag, element.attrib = "PAMRasterBand", {"band": element.get("band")}
            for other in element.findall("SimpleSource") + element.findall("ColorInterp"):
                element.remove(other)
            for value in element.findall("NoDataValue"):
                if np.dtype(of).kind != "f" and np.dtype(of).itemsize == 8:
                    # GDAL writes these as they are; rasterio rounds them.
                    value.text = str(RASTERS[name][3]["nodata"])
                else:
                    exactly(value, nodata)
                if name in FILLED:
                    element.remove(value)
    if tags:
        other = xml.SubElement(root, "Metadata", domain=DOMAIN)
        for key, value in tags.items():
            xml.SubElement(other, "MDI", key=key).text = value
    structure = xml.SubElement(root, "Metadata", domain="IMAGE_STRUCTURE")
    for key, value in {"X_SIZE": size[1], "Y_SIZE": size[0], "INTERLEAVE": interleave, "NBITS": 8, "DATASET_TYPE": "raster"}.items():
        xml.SubElement(structure, "MDI", key=key).text = str(value)
    return xml.tostring(root)


def write_array(uri, name, source, document=None, step=1, rows=slice(None)):
    """The array that the driver makes of the GeoTIFF: whole blocks. Of an overview every pixel after so many. Of layout BAND these rows alone are written."""
    of, bands, interleave, _ = RASTERS[name]
    with rasterio.open(source) as file:
        values = file.read()[:, ::step, ::step]
    size = values.shape[1:]
    height, width = (-(-length // BLOCK) * BLOCK for length in size)
    padded = np.full((bands, height, width), 77, of)
    padded[:, :size[0], :size[1]] = values
    y = tiledb.Dim("Y", domain=(0, height - 1), tile=BLOCK, dtype=np.uint64)
    x = tiledb.Dim("X", domain=(0, width - 1), tile=BLOCK, dtype=np.uint64)
    band = tiledb.Dim("BANDS", domain=(1, bands), tile=1, dtype=np.uint64)
    dims, cells = {"BAND": ((band, y, x), padded), "PIXEL": ((y, x, band), np.moveaxis(padded, 0, -1)), "ATTRIBUTES": ((y, x), None)}[interleave]
    names = [f"TDB_VALUES_{number + 1}" for number in range(bands)] if cells is None else ["TDB_VALUES"]
    fill = {"fill": RASTERS[name][3]["nodata"]} if name in FILLED else {}
    attributes = [tiledb.Attr(attribute, dtype=of, filters=[tiledb.ZstdFilter()], **fill) for attribute in names]
    tiledb.Array.create(uri, tiledb.ArraySchema(tiledb.Domain(*dims), attributes))
    with tiledb.open(uri, "w") as array:
        if rows == slice(None):
            array[:] = dict(zip(names, padded)) if cells is None else {names[0]: np.ascontiguousarray(cells)}
        else:
            array[:, rows, :] = np.ascontiguousarray(cells[:, rows, :])
        array.meta["dataset_type"] = "raster"
    document = described(source, interleave, size, step) if document is None else document
    Lib().put_metadata(uri, [("_gdal", "UINT8", document)])


def told(file, tags=True):
    """What rasterio says of a raster."""
    palette = file.colormap(1) if file.colorinterp[0].name == "palette" else None
    nodata = [None if value is None else str(value) for value in file.nodatavals]
    said = {"crs": file.crs, "transform": tuple(round(number, 9) for number in file.transform), "size": (file.width, file.height), "bands": file.count,
            "types": file.dtypes, "nodata": nodata, "scales": file.scales, "offsets": file.offsets, "units": file.units,
            "descriptions": file.descriptions, "palette": palette}
    if tags:
        said.update(tags=file.tags(), domain=file.tags(ns=DOMAIN), band_tags=[file.tags(band) for band in file.indexes])
    return said


def image(point, name):
    """The file of all bands of a raster."""
    return point / name / "data/raster/TDB_VALUES.tif"


def compare(checks, point, folder):
    """Each image is the source."""
    for name in RASTERS:
        with rasterio.open(f"{folder}/{name}.tif") as want, rasterio.open(image(point, name)) as got:
            checks.equal(f"{name}: values", np.array_equal(got.read(), want.read()), True)
            ours, theirs = told(got), told(want)
            if name in ("long", "unsigned"):
                # rasterio writes such a value with an exponent, which GDAL does not read.
                theirs["nodata"] = [str(float(RASTERS[name][3]["nodata"]))]
            for key in theirs:
                checks.equal(f"{name}: {key}", ours[key], theirs[key])
        said = json.loads((point / name / "data/view.json").read_text())
        checks.equal(f"{name}: what view.json leaves out", said["left_out"], [])
        places = [json.loads(subprocess.run(["gdalinfo", "-json", file], capture_output=True, timeout=60, check=True).stdout)
                  for file in (image(point, name), f"{folder}/{name}.tif")]
        checks.equal(f"{name}: gdalinfo", *[(place["size"], place["cornerCoordinates"], "coordinateSystem" in place) for place in places])
    names = sorted(os.listdir(point / "attributes/data/raster"))
    checks.equal("bands that are attributes", names, ["TDB_VALUES.tif", "TDB_VALUES_1.tif", "TDB_VALUES_2.tif", "TDB_VALUES_3.tif"])
    with rasterio.open(f"{folder}/attributes.tif") as want, rasterio.open(point / "attributes/data/raster/TDB_VALUES_2.tif") as got:
        checks.equal("the second of them", (np.array_equal(got.read(1), want.read(2)), got.scales, got.descriptions, got.crs, got.transform),
                     (True, want.scales[1:2], want.descriptions[1:2], want.crs, want.transform))


def compare_parts(checks, point, folder):
    """Parts begin elsewhere; parts that reach into the padding end where the raster does."""
    for name in ("band", "rotated", "pixel"):
        # Rows 5 to 40 of 37, columns 11 to 30.
        ranges = {"BAND": "..,5..40,11..30", "PIXEL": "5..40,11..30,.."}[RASTERS[name][2]]
        window = Window(11, 5, 20, HEIGHT - 5)
        with rasterio.open(f"{folder}/{name}.tif") as want, rasterio.open(point / name / f"data/subarray/{ranges}/raster/TDB_VALUES.tif") as got:
            checks.equal(f"part of {name}: values", np.array_equal(got.read(), want.read(window=window)), True)
            checks.equal(f"part of {name}: place", got.transform.almost_equals(want.window_transform(window)), True)
            checks.equal(f"part of {name}: crs", got.crs, want.crs)
    with rasterio.open(f"{folder}/band.tif") as want, rasterio.open(point / "band/data/subarray/2..3,..,../raster/TDB_VALUES.tif") as got:
        checks.equal("two of three bands", (got.descriptions, got.scales, got.count), (want.descriptions[1:], want.scales[1:], 2))
    with rasterio.open(point / "band/data/subarray/..,38..40,../raster/TDB_VALUES.tif") as got:
        checks.equal("a part of padding alone", (got.height, (got.read() == 77)[:, :, :WIDTH].all()), (3, True))


def opened(data, stem="array"):
    """The grids of a view or of a group, by reader: with what tells the reference system as coordinates."""
    yield "zarr", xarray.open_zarr(data / f"{stem}.zarr", decode_coords="all", mask_and_scale=False)
    yield "netcdf4", xarray.open_dataset(data / f"{stem}.nc", engine="netcdf4", decode_coords="all", mask_and_scale=False)


def values_of(dataset, name):
    """The bands of a raster as rasterio has them."""
    interleave = RASTERS[name][2]
    if interleave == "ATTRIBUTES":
        return np.stack([dataset[f"TDB_VALUES_{band + 1}"].values for band in range(RASTERS[name][1])])
    values = dataset["l_0" if "l_0" in dataset else "TDB_VALUES"].values
    return np.moveaxis(values, -1, 0) if interleave == "PIXEL" else values


def compare_grid(checks, what, dataset, name, want, window=None):
    """A grid is placed where the source is: reference system, transformation, coordinates, and what bands have in common."""
    box = window or Window(0, 0, WIDTH, HEIGHT)
    transform = want.window_transform(box)
    checks.equal(f"{what}: values", np.array_equal(values_of(dataset, name), want.read(window=box)), True)
    checks.equal(f"{what}: crs", dataset.rio.crs, want.crs)
    is_placed = "transform" in RASTERS[name][3]
    if is_placed:
        checks.equal(f"{what}: transform", dataset.rio.transform().almost_equals(transform), True)
    reference = dict(dataset["spatial_ref"].attrs) if "spatial_ref" in dataset.coords else {}
    checks.equal(f"{what}: attributes of spatial_ref", sorted(reference), sorted((["crs_wkt", "spatial_ref"] if want.crs else []) + ["GeoTransform"] * is_placed))
    first = next(iter(dataset.data_vars.values()))
    if is_placed and name != "rotated":
        x, y = transform @ (np.arange(box.width) + 0.5, 0.0), transform @ (0.0, np.arange(box.height) + 0.5)
        checks.equal(f"{what}: centres", (np.allclose(dataset["X"], x[0]), np.allclose(dataset["Y"], y[1]), dataset["X"].dtype, dataset["Y"].dtype),
                     (True, True, np.float64, np.float64))
        angles = dict.fromkeys(("EPSG:4326", "EPSG:4947"), ("longitude", "latitude", "degrees_east", "degrees_north"))
        words = angles.get(RASTERS[name][3].get("crs"), ("projection_x_coordinate", "projection_y_coordinate", "m", "m"))
        wanted = [{"axis": axis, **({"standard_name": words[i], "units": words[2 + i]} if want.crs else {})} for i, axis in enumerate("XY")]
        checks.equal(f"{what}: attributes of coordinates", [dict(dataset[axis].attrs) for axis in "XY"], wanted)
    elif "X" in dataset.coords:
        checks.equal(f"{what}: pixels are numbered", dataset["X"].values.tolist(), list(range(box.col_off, box.col_off + box.width)))
    nodata = RASTERS[name][3].get("nodata")
    if nodata is not None:
        of = np.dtype(RASTERS[name][0]).type
        checks.equal(f"{what}: no-data", str(of(first.attrs["_FillValue"])), str(of(nodata)))
    for number, variable in enumerate(dataset.data_vars.values()):
        bands = slice(number, number + 1) if len(dataset.data_vars) > 1 else slice(None)
        for key, of_bands, default in (("scale_factor", want.scales, 1), ("add_offset", want.offsets, 0), ("units", want.units, None),
                                       ("long_name", want.descriptions, None)):
            alike = set(of_bands[bands])
            checks.equal(f"{what}: {key} of {variable.name}", variable.attrs.get(key, default), alike.pop() if len(alike) == 1 else default)


def compare_grids(checks, point, folder):
    """array.nc and array.zarr, dataset.nc and dataset.zarr are the source too."""
    for name in RASTERS:
        with rasterio.open(f"{folder}/{name}.tif") as want:
            for reader, dataset in opened(point / name / "data"):
                compare_grid(checks, f"{name}, array by {reader}", dataset, name, want)
            if RASTERS[name][2] != "ATTRIBUTES":
                group = point / f"group_{name}"
                for reader, dataset in opened(group, "dataset"):
                    checks.equal(f"{name}: variables of dataset by {reader}", list(dataset.data_vars), ["l_0"])
                    compare_grid(checks, f"{name}, dataset by {reader}", dataset, name, want)
                said = json.loads((group / "dataset.json").read_text())
                checks.equal(f"{name}: dataset.json", (said["kind"], said["dimensions"]["X"], sorted(one["what"] for one in said["left_out"])), ("raster", WIDTH, ["l_1", "l_2"]))
            # GDAL's reader of NetCDF takes what has no rotation.
            if RASTERS[name][2] == "BAND" and name not in ("rotated", "plain"):
                for file in (point / name / "data/array.nc", point / f"group_{name}/dataset.nc"):
                    subdataset = "TDB_VALUES" if file.name == "array.nc" else "l_0"
                    done = subprocess.run(["gdalinfo", "-json", f"NETCDF:{file}:{subdataset}"], capture_output=True, timeout=60, check=True)
                    got = json.loads(done.stdout)
                    # This reader shows rows from the north, however they are stored.
                    corners = np.array([got["cornerCoordinates"][corner] for corner in ("upperLeft", "lowerRight")])
                    box = [*corners.min(axis=0), *corners.max(axis=0)]
                    left, bottom, right, top = want.bounds
                    is_same = np.allclose(box, [left, min(bottom, top), right, max(bottom, top)])
                    checks.equal(f"{name}: gdalinfo of {file.name}", (got["size"], is_same, bool(got.get("coordinateSystem", {}).get("wkt"))),
                                 ([WIDTH, HEIGHT], True, want.crs is not None))
    for name, ranges in (("band", "..,5..40,11..30"), ("rotated", "..,5..40,11..30"), ("pixel", "5..40,11..30,..")):
        window = Window(11, 5, 20, HEIGHT - 5)
        with rasterio.open(f"{folder}/{name}.tif") as want:
            for reader, dataset in opened(point / name / "data/subarray" / ranges):
                compare_grid(checks, f"part of {name} by {reader}", dataset, name, want, window)
    with xarray.open_zarr(point / "band/data/subarray/2,..,../array.zarr", mask_and_scale=False) as dataset:
        kept = dataset["TDB_VALUES"].attrs
        checks.equal("one of three bands", (kept["scale_factor"], kept["units"], kept["long_name"]), (0.5, "m", "band 2 <&>"))
    checks.equal("tables have all cells", json.loads((point / "band/data/view.json").read_text())["shape"], [3, 48, 64])


def write_group(folder, name):
    """What the driver makes of a raster with overviews: `l_0`, `l_1` and `l_2`."""
    group = f"{folder}/arrays/group_{name}"
    tiledb.Group.create(group)
    for level in range(3):
        write_array(f"{group}/l_{level}", name, f"{folder}/{name}.tif", step=2 ** level)
    with tiledb.Group(group, "w") as opened:
        for level in range(3):
            opened.add(f"{group}/l_{level}", name=f"l_{level}")
        opened.meta["dataset_type"] = "raster"


def write_moved(folder):
    """A pyramid that was moved after it was written as the driver does it: members have absolute URIs, and no names."""
    before, after = f"{folder}/before", f"{folder}/arrays/moved"
    tiledb.Group.create(before)
    with tiledb.Group(before, "w") as opened:
        for level in range(2):
            write_array(f"{before}/l_{level}", "band", f"{folder}/band.tif", step=2 ** level)
            opened.add(f"{before}/l_{level}")
        opened.meta["dataset_type"] = "raster"
    shutil.move(before, after)


def write_odd(folder):
    """A group whose `l_1` has other bands, one that says of no raster, and two of which a level was not written as a whole."""
    for group, levels, kind, partly in (("odd", ("band", "point"), "raster", None), ("untold", ("band", "band"), "other", None),
                                        ("partly", ("band", "band"), "raster", 0), ("partly_smaller", ("band", "band"), "raster", 1)):
        uri = f"{folder}/arrays/{group}"
        tiledb.Group.create(uri)
        with tiledb.Group(uri, "w") as opened:
            for level, name in enumerate(levels):
                rows = slice(BLOCK, None) if level == partly else slice(None)
                write_array(f"{uri}/l_{level}", name, f"{folder}/{name}.tif", step=2 ** level, rows=rows)
                opened.add(f"{uri}/l_{level}", name=f"l_{level}")
            opened.meta["dataset_type"] = kind


def compare_overviews(checks, point, folder):
    """GDAL finds the smaller levels of a pyramid as overviews of the largest."""
    for name in RASTERS:
        levels = point / f"group_{name}"
        with rasterio.open(f"{folder}/{name}.tif") as file:
            want = file.read()
        file = levels / "l_0/data/raster/TDB_VALUES.tif"
        with rasterio.open(file) as opened:
            checks.equal(f"{name}: overviews", [opened.overviews(band) for band in opened.indexes], [[2, 4]] * len(want))
        for number, step in enumerate((2, 4)):
            with rasterio.open(file, overview_level=number) as got, rasterio.open(levels / f"l_{number + 1}/data/raster/TDB_VALUES.tif") as level:
                checks.equal(f"{name}: values of overview {number}", (np.array_equal(got.read(), want[:, ::step, ::step]), np.array_equal(got.read(), level.read())), (True, True))
                checks.equal(f"{name}: colours of overview {number}", got.colorinterp, level.colorinterp)
        done = subprocess.run(["gdalinfo", "-json", file], capture_output=True, timeout=60, check=True)
        sizes = [[overview["size"] for overview in band["overviews"]] for band in json.loads(done.stdout)["bands"]]
        checks.equal(f"{name}: gdalinfo of overviews", sizes, [[[25, 19], [13, 10]]] * len(want))
        images = ["TDB_VALUES.tif"] + [f"TDB_VALUES_{band + 1}.tif" for band in range(len(want)) if RASTERS[name][2] == "ATTRIBUTES"]
        checks.equal(f"{name}: listed", sorted(os.listdir(file.parent)), sorted(images + [f"{image}.ovr" for image in images]))
        checks.equal(f"{name}: overviews of an overview", os.listdir(levels / "l_1/data/raster").count("TDB_VALUES.tif.ovr"), 0)
    with rasterio.open(point / "group_attributes/l_0/data/raster/TDB_VALUES_2.tif", overview_level=0) as got, rasterio.open(f"{folder}/attributes.tif") as want:
        checks.equal("an overview of one of several bands", np.array_equal(got.read(1), want.read(2)[::2, ::2]), True)
    with rasterio.open(point / "moved/l_0/data/raster/TDB_VALUES.tif") as opened:
        checks.equal("overviews of a pyramid that was moved", [opened.overviews(band) for band in opened.indexes], [[2]] * 3)
    said = json.loads((point / "moved/dataset.json").read_text())
    checks.equal("a pyramid that was moved", ([one["array"] for one in said["variables"]], [one["what"] for one in said["left_out"]]), (["l_0"], ["l_1"]))
    checks.equal("... has its members", json.loads((point / "moved/group.json").read_text())["unregistered"], [])
    first = point / "group_band/l_0"
    done = subprocess.run([binary(), "cat", f"{folder}/arrays/group_band", "l_0/data/raster/TDB_VALUES.tif.ovr"], capture_output=True, timeout=60, check=True)
    checks.equal("overviews by tiledbfs cat", done.stdout == (first / "data/raster/TDB_VALUES.tif.ovr").read_bytes(), True)
    there = {"at/2100/data": True, "at/latest/data": False, f"at/{sorted(os.listdir(first / 'at'))[0]}/data": False, "data/subarray/..,0..20,..": False, "../l_1/data": False,
             "../../band/data": False, "../../odd/l_0/data": False, "../../untold/l_0/data": False, "../../partly/l_0/data": False, "../../partly_smaller/l_0/data": False}
    for view, is_there in there.items():
        checks.equal(f"overviews in {view}", os.path.exists(first / view / "raster/TDB_VALUES.tif.ovr"), is_there)


def compare_info(checks, point, folder):
    """What an array and a group are, where they lie, and an image of them by the name that `tiledbfs info` has first."""
    for name, inside in (("band", "data"), ("group_band", "")):
        said = told_by_info(f"{folder}/arrays/{name}")
        checks.equal(f"{name}: info", [said.get(key) for key in ("kind", "crs", "extent")],
                     ["raster", "WGS 84 / UTM zone 32N", "X 399960..400460, Y 5299670..5300040"])
        with rasterio.open(point / name / inside / said["open"].split(", ")[0]) as file:
            checks.equal(f"{name}: what info says to open", (file.crs.to_epsg(), file.count), (32632, 3))
    said = told_by_info(f"{folder}/arrays/unlike_types")
    checks.equal("info of bands of several types", (said["kind"], said["open"].split(", ")[0]), ("raster", "raster"))
    checks.equal("info: units", told_by_info(f"{folder}/arrays/attributes")["units"], "Y m, X m, TDB_VALUES_1 K, TDB_VALUES_2 m, TDB_VALUES_3 kg m-2")


def write_together(folder):
    """Groups of two rasters, at one place and at two."""
    for group, origins in (("together", (5300040.0, 5300040.0)), ("apart", (5300040.0, 5300050.0))):
        uri = f"{folder}/arrays/{group}"
        tiledb.Group.create(uri)
        with tiledb.Group(uri, "w") as opened:
            for name, origin in zip("ab", origins):
                domain = tiledb.Domain(*[tiledb.Dim(axis, domain=(0, 15), tile=BLOCK, dtype=np.uint64) for axis in "YX"])
                tiledb.Array.create(f"{uri}/{name}", tiledb.ArraySchema(domain, [tiledb.Attr("v", dtype=np.int16)]))
                with tiledb.open(f"{uri}/{name}", "w") as array:
                    array[:] = np.arange(256, dtype=np.int16).reshape(16, 16)
                document = f"<PAMDataset><GeoTransform>399960, 10, 0, {origin}, 0, -10</GeoTransform></PAMDataset>"
                Lib().put_metadata(f"{uri}/{name}", [("_gdal", "UINT8", document.encode())])
                opened.add(f"{uri}/{name}", name=name)


def compare_together(checks, point):
    """Axes along which rasters lie at different places have no coordinates, and dataset.json says so."""
    for group, names, left_out in (("together", ["X", "Y"], []), ("apart", ["X"], ["Y"])):
        for reader, dataset in opened(point / group, "dataset"):
            checks.equal(f"{group}, {reader}: coordinates", sorted(name for name in dataset.coords if name in "XY"), names)
        said = json.loads((point / group / "dataset.json").read_text())["left_out"]
        checks.equal(f"{group}: what is left out", [one["what"] for one in said], left_out)
        checks.equal(f"{group}: with a reason", all("not at one place" in one["reason"] for one in said), True)


# Tags that name pixels, by domain: of the whole raster, and of the part that begins in row 5 and column 3.
COUNTED = {"RPC": ({"LINE_OFF": "18.25", "SAMP_OFF": "20", "LINE_SCALE": "18.5"}, {"LINE_OFF": "13.25", "SAMP_OFF": "17", "LINE_SCALE": "18.5"}),
           "GEOLOCATION": ({"LINE_OFFSET": "0", "PIXEL_OFFSET": "x", "LINE_STEP": "2"}, {"LINE_OFFSET": "-5", "LINE_STEP": "2"})}


def write_counted(uri):
    """A raster that a sensor model places."""
    tags = "".join(f"<Metadata domain='{domain}'>" + "".join(f"<MDI key='{key}'>{text}</MDI>" for key, text in of_whole.items()) + "</Metadata>"
                   for domain, (of_whole, _) in COUNTED.items())
    write_array(uri, "plain", f"{os.path.dirname(os.path.dirname(uri))}/plain.tif", f"<PAMDataset>{tags}</PAMDataset>".encode())


def write_unlike(uri, others):
    """A raster of which one band has a no-data value, and what `others` tells of the others."""
    bands = f"<PAMRasterBand band='1'><NoDataValue>7</NoDataValue></PAMRasterBand>{others}"
    write_array(uri, "band", f"{os.path.dirname(os.path.dirname(uri))}/band.tif", f"<PAMDataset>{bands}</PAMDataset>".encode())


def compare_unlike(checks, data):
    """The image has the one value, and it is told that this is not so of all bands; the grid has none."""
    with rasterio.open(data / "raster/TDB_VALUES.tif") as file:
        checks.equal("bands with unlike no-data values: the image", file.nodatavals, (7, 7, 7))
    with xarray.open_zarr(data / "array.zarr", mask_and_scale=False) as dataset:
        checks.equal("bands with unlike no-data values: the grid", "_FillValue" in dataset["TDB_VALUES"].attrs, False)
    reason = "bands differ in no-data values; an image has that of the first which has one"
    for part, want in ("", [reason]), ("subarray/1..2,..,..", [reason]), ("subarray/1,..,..", []), ("subarray/2..3,..,..", []):
        left_out = json.loads((data / part / "view.json").read_text())["left_out"] or []
        checks.equal(f"bands with unlike no-data values: the reason {part}", [entry["reason"] for entry in left_out], want)


TURNED = {"columns_first": ("X", "Y"), "bands_between": ("Y", "BANDS", "X")}


def write_turned(uri, names):
    """A raster whose axes are in an order that GDAL does not write."""
    ends = {"X": (0, 15), "Y": (0, 11), "BANDS": (1, 4)}
    domain = tiledb.Domain(*[tiledb.Dim(name, domain=ends[name], tile=4, dtype=np.uint64) for name in names])
    tiledb.Array.create(uri, tiledb.ArraySchema(domain, [tiledb.Attr("v", dtype="i4")]))
    with tiledb.open(uri, "w") as array:
        array[:] = np.arange(np.prod(array.shape), dtype="i4").reshape(array.shape)
    Lib().put_metadata(uri, [("_gdal", "UINT8", b"<PAMDataset><GeoTransform>100,1,0,500,0,-2</GeoTransform></PAMDataset>")])


def compare_turned(checks, point):
    """Rows and columns of the image are not those of the transform, so it has no place; the grid has, by names."""
    for name, axes in TURNED.items():
        data = point / name / "data"
        with rasterio.open(data / "raster/v.tif") as file:
            checks.equal(f"{name}: the image", (file.transform, file.read(1).ravel()[:3].tolist()), (Affine.identity(), [0, 1, 2]))
        for reader, dataset in opened(data):
            checks.equal(f"{name}: the grid by {reader}", (dataset["v"].dims, dataset["X"].values[:2].tolist(), dataset["Y"].values[:2].tolist()), (axes, [100.5, 101.5], [499, 497]))
        reasons = [entry["reason"] for entry in json.loads((data / "view.json").read_text())["left_out"]]
        checks.equal(f"{name}: the reason", reasons, ["images have it only if X comes right behind Y"])


def write_unlike_types(uri):
    """A raster whose bands are attributes of several types, which have no image together."""
    domain = tiledb.Domain(*[tiledb.Dim(name, domain=(0, 15), tile=4, dtype=np.uint64) for name in "YX"])
    types = {"TDB_VALUES_1": "u1", "TDB_VALUES_2": "f4"}
    tiledb.Array.create(uri, tiledb.ArraySchema(domain, [tiledb.Attr(name, dtype=of) for name, of in types.items()]))
    with tiledb.open(uri, "w") as array:
        array[:] = {name: np.ones((16, 16), of) for name, of in types.items()}
    Lib().put_metadata(uri, [("_gdal", "UINT8", b"<PAMDataset><GeoTransform>100,1,0,500,0,-2</GeoTransform></PAMDataset>")])


def compare_counted(checks, data):
    """Tags that name a pixel count from the first one of a part."""
    for view, number in ((data, 0), (data / "subarray/..,5..40,3..30", 1)):
        with rasterio.open(view / "raster/TDB_VALUES.tif") as file:
            for domain, wanted in COUNTED.items():
                checks.equal(f"{domain} of {'a part' if number else 'all'}", file.tags(ns=domain), wanted[number])


OWN_MAPPING = "__tiledb_attr.flagged.grid_mapping"


def write_multidimensional(uri):
    """An array of GDAL's multidimensional driver."""
    domain = tiledb.Domain(*[tiledb.Dim(name, domain=(0, 4), tile=5, dtype=np.uint64) for name in ("time", "spatial_ref")])
    attributes = [tiledb.Attr(name, dtype=of) for name, of in (("depth", "f4"), ("height", "i2"), ("flagged", "i2"), ("when", "datetime64[D]"))]
    tiledb.Array.create(uri, tiledb.ArraySchema(domain, attributes))
    with tiledb.open(uri, "w") as array:
        array[:] = {attribute.name: np.arange(25).reshape(5, 5).astype(attribute.dtype) for attribute in attributes}
        for key, value in {"_CRS": OWN, "_UNIT": "fathom", "__tiledb_attr.height.units": "m", OWN_MAPPING: "mine"}.items():
            array.meta[key] = value


def multidimensional(checks, data):
    """`_CRS` and `_UNIT` are attributes, unless variables have their own."""
    for reader, dataset in opened(data):
        checks.equal(f"multidimensional, {reader}: units", [dataset[name].attrs.get("units") for name in ("depth", "height", "flagged")], ["fathom", "m", "fathom"])
        checks.equal(f"multidimensional, {reader}: dates", dataset["when"].dtype.kind, "M")
        # A dimension has the name.
        checks.equal(f"multidimensional, {reader}: crs", dataset["spatial_ref_"].attrs, {"crs_wkt": OWN, "spatial_ref": OWN})
        checks.equal(f"multidimensional, {reader}: grid_mapping", [dataset[name].encoding.get("grid_mapping") for name in ("depth", "when")], ["spatial_ref_"] * 2)
    with netCDF4.Dataset(data / "array.nc") as file:
        checks.equal("multidimensional: a grid_mapping of its own", file["flagged"].grid_mapping, "mine")


def write_json_systems(uri):
    """A group of arrays whose reference system is PROJJSON, as GDAL's multidimensional driver writes it."""
    tiledb.Group.create(uri)
    systems = {"coded": "EPSG:32632", "uncoded": OWN, "compound": "EPSG:7415", "moving": "EPSG:9000", "paris": "EPSG:27572", "rotated": ROTATED + " +type=crs",
               "bound": "+proj=utm +zone=33 +ellps=bessel +towgs84=598.1,73.7,418.2,0.202,0.045,-2.455,6.7 +type=crs"}
    systems = {name: pyproj.CRS(system).to_json() for name, system in systems.items()}
    for name, system in systems.items():
        domain = tiledb.Domain(*[tiledb.Dim(axis, domain=(0, 4), tile=5, dtype=np.uint64) for axis in ("y", "x")])
        tiledb.Array.create(f"{uri}/{name}", tiledb.ArraySchema(domain, [tiledb.Attr(name, dtype="f4")]))
        with tiledb.open(f"{uri}/{name}", "w") as array:
            array[:] = np.ones((5, 5), "f4")
            array.meta["_CRS"] = system
        with tiledb.Group(uri, "w") as group:
            group.add(f"{uri}/{name}", name=name)
    return systems


def compare_json_systems(checks, folder, point, systems):
    """PROJJSON is told as the same system in WKT, which GDAL reads of NetCDF; with parts that are not known as it is, and view.json says so."""
    for name, system in systems.items():
        data = point / name / "data"
        is_known = name != "bound"
        for reader, dataset in opened(data):
            attributes = dict(dataset["spatial_ref"].attrs)
            checks.equal(f"PROJJSON, {name}, {reader}", sorted(attributes), ["crs_wkt", "spatial_ref"] if is_known else ["spatial_ref"])
            if is_known:
                told = pyproj.CRS.from_wkt(attributes["crs_wkt"])
                # PROJ itself loses something of a rotated pole.
                want = pyproj.CRS.from_wkt(pyproj.CRS(system).to_wkt("WKT2_2019"))
                checks.equal(f"PROJJSON, {name}, {reader}: the same", (told == want, attributes["spatial_ref"]), (True, attributes["crs_wkt"]))
            else:
                checks.equal(f"PROJJSON, {name}, {reader}: as it is", attributes["spatial_ref"], system)
            checks.equal(f"PROJJSON, {name}, {reader}: rioxarray", dataset[name].rio.crs == rasterio.crs.CRS.from_user_input(system), True)
        done = subprocess.run(["gdalinfo", f"NETCDF:{data}/array.nc:{name}"], capture_output=True, text=True, timeout=60, check=True)
        checks.equal(f"PROJJSON, {name}: gdalinfo", "Coordinate System is:" in done.stdout, is_known)
        left_out = [one["what"] for one in json.loads((data / "view.json").read_text())["left_out"]]
        checks.equal(f"PROJJSON, {name}: left out", left_out, [] if is_known else ["_CRS"])
        for reader, dataset in opened(point, "dataset"):
            mapping = dataset[dataset[name].encoding["grid_mapping"]].attrs
            checks.equal(f"PROJJSON, {name}, {reader}: dataset", mapping, attributes)
    names = [told_by_info(f"{folder}/{name}").get("crs") for name in ("coded", "uncoded")]
    checks.equal("PROJJSON: info", names, ["WGS 84 / UTM zone 32N", "my own"])


MALFORMED = {
    "not_xml": b"<PAMDataset><SRS>", "entity": b"<!DOCTYPE a [<!ENTITY b 'c'>]><PAMDataset>&b;</PAMDataset>", "bomb": b"<PAMDataset><SRS>&lol;</SRS></PAMDataset>",
    "deep": b"<a>" * 100000, "not_utf8": b"<PAMDataset>\xff</PAMDataset>", "other": b"<VRTDataset/>", "empty": b"\0",
    "lacking": b"<PAMDataset><PAMRasterBand band='1'><NoDataValue>1e300</NoDataValue></PAMRasterBand></PAMDataset>",
    "numbers": b"<PAMDataset><GeoTransform>1,2</GeoTransform><PAMRasterBand band='x'/></PAMDataset>",
    "sizes": b"<PAMDataset><Metadata domain='IMAGE_STRUCTURE'><MDI key='X_SIZE'>-3</MDI><MDI key='Y_SIZE'>5</MDI></Metadata></PAMDataset>",
}


def malformed(checks, point):
    """What is malformed is left out with the reason, and the image is there."""
    for name in MALFORMED:
        with rasterio.open(image(point, name)) as file:
            checks.equal(f"{name}: the image", (file.crs, file.transform, file.shape), (None, Affine.identity(), (48, 64)))
        for reader, dataset in opened(point / name / "data"):
            checks.equal(f"{name}: the grid by {reader}", (dict(dataset.sizes), "spatial_ref" in dataset.variables), ({"BANDS": 1, "Y": 48, "X": 64}, False))
        left_out = json.loads((point / name / "data/view.json").read_text())["left_out"]
        checks.equal(f"{name}: what is left out", {entry["what"] for entry in left_out if entry["reason"]}, {"_gdal"})


# Of one band of FLOAT64. No number of it has digits that a change would leave the same number.
DOCUMENT = """<PAMDataset><SRS dataAxisToSRSAxisMapping="1,2">LOCAL_CS["a &amp; b"]</SRS><GeoTransform> 4.5e+05, 10.25, 0, 5.3e6, 0.0, -10.5</GeoTransform>
<Metadata><MDI key="AREA_OR_POINT">Area</MDI></Metadata><Metadata domain="IMAGE_STRUCTURE"><MDI key="X_SIZE">13</MDI><MDI key="Y_SIZE">11</MDI></Metadata>
<PAMRasterBand band="1"><Description>red &lt; green</Description><NoDataValue>-9999</NoDataValue><Offset>-273.15</Offset><Scale>0.25</Scale>
<UnitType>K</UnitType></PAMRasterBand></PAMDataset>"""
MUTANTS = 200


def mutants():
    """The document with a few changes each."""
    chance = random.Random(2034)
    yield DOCUMENT
    for _ in range(MUTANTS):
        text = DOCUMENT
        for _ in range(chance.choice((1, 1, 2, 4))):
            start = chance.randrange(len(text))
            end = start + chance.choice((1, 1, 2, 20))
            other = chance.randrange(len(text))
            text = chance.choice((text[:start] + text[end:], text[:start] + chance.choice("<>&;\"'/,.-0159eXaN \t") + text[start + 1:],
                                  text[:start] + text[start:end] * 2 + text[end:], text[:other] + text[start:end] + text[other:]))
        yield text


def write_mutated(folder):
    """An array for each document."""
    base = f"{folder}/0"
    domain = tiledb.Domain(*[tiledb.Dim(axis, domain=(0, 15), tile=BLOCK, dtype=np.uint64) for axis in "YX"])
    tiledb.Array.create(base, tiledb.ArraySchema(domain, [tiledb.Attr("TDB_VALUES", dtype=np.float64)]))
    with tiledb.open(base, "w") as array:
        array[:] = np.arange(256.0).reshape(16, 16)
    documents = list(mutants())
    for number in range(1, len(documents)):
        shutil.copytree(base, f"{folder}/{number}")
    for number, document in enumerate(documents):
        Lib().put_metadata(f"{folder}/{number}", [("_gdal", "UINT8", document.encode())])
    return documents


def number_in(text, of=float):
    """A number as Rust reads it; None if there is none."""
    try:
        return None if "_" in text else of(text.strip())
    except ValueError:
        return None


def model(document):
    """What a document says by the parser of Python: size, attributes of spatial_ref, attributes of the variable. None if it is malformed."""
    try:
        root = xml.fromstring(document)
    except xml.ParseError:
        return None
    if root.tag != "PAMDataset":
        return None
    whole = lambda element: (element.text or "") + "".join(inner.tail or "" for inner in element)
    size, place, values = (16, 16), {}, {}
    for element in root:
        if element.tag == "SRS" and whole(element).strip():
            place["crs_wkt"] = place["spatial_ref"] = whole(element).strip()
        elif element.tag == "GeoTransform":
            numbers = [number_in(number) for number in whole(element).split(",")]
            if len(numbers) == 6 and None not in numbers and np.isfinite(numbers).all():
                _, a, b, _, c, d = numbers
                if a * d - b * c:
                    place["GeoTransform"] = numbers
        elif element.tag == "Metadata" and element.get("domain") == "IMAGE_STRUCTURE":
            found = [next((whole(item) for item in element if item.get("key") == key), "") for key in ("Y_SIZE", "X_SIZE")]
            found = [number_in(length, int) for length in found]
            if None not in found and min(found) > 0:
                size = tuple(min(length, 16) for length in found)
        elif element.tag == "PAMRasterBand" and number_in(element.get("band", ""), int) == 1:
            values = {}
            for inner in element:
                text, name = whole(inner), {"Description": "long_name", "UnitType": "units"}.get(inner.tag)
                if name:
                    values.pop(name, None)
                    values.update({name: text} if text else {})
                name = {"NoDataValue": "_FillValue", "Offset": "add_offset", "Scale": "scale_factor"}.get(inner.tag)
                if name:
                    number = number_in(text)
                    values.pop(name, None)
                    values.update({name: number} if number is not None and (name == "_FillValue" or np.isfinite(number)) else {})
    return size, place, values


def compare_mutated(checks, point, documents):
    """No document fails, and each says what another parser reads in it: what is malformed says nothing, but why."""
    wrong, told = [], 0
    for number, document in enumerate(documents):
        data = point / str(number) / "data"
        want = model(document)
        with xarray.open_zarr(data / "array.zarr", mask_and_scale=False) as dataset:
            place = dict(dataset["spatial_ref"].attrs) if "spatial_ref" in dataset.variables else {}
            if "GeoTransform" in place:
                place["GeoTransform"] = [float(part) for part in place["GeoTransform"].split()]
            values = {key: value for key, value in dataset["TDB_VALUES"].attrs.items() if key != "grid_mapping" and str(value) != "nan"}
            got = dataset["TDB_VALUES"].shape, place, values
        if got != (want or ((16, 16), {}, {})):
            wrong.append((document, got, want))
        left_out = json.loads((data / "view.json").read_text())["left_out"]
        if want is None and {entry["what"] for entry in left_out if entry["reason"]} != {"_gdal"}:
            wrong.append((document, "no reason"))
        with rasterio.open(data / "raster/TDB_VALUES.tif") as file:
            if (file.height, file.width) != (got[0]):
                wrong.append((document, file.shape))
        told += want is not None
    checks.equal("mutated documents that say something else", wrong[:3], [])
    checks.equal("mutated documents of which some are well-formed, and some not", (told > 20, told < len(documents) - 20), (True, True))


ROTATED = "+proj=ob_tran +o_proj=longlat +o_lon_p=0 +o_lat_p=39.25 +lon_0=18 +datum=WGS84"


def write_bare(uri, cells, pam, names=("TDB_VALUES",), of=None):
    """A raster of these cells, an array for each attribute, and a PAM document."""
    dims = [tiledb.Dim(name, domain=(0, length - 1), tile=length, dtype=np.uint64) for name, length in zip(("Y", "X"), cells[0].shape)]
    tiledb.Array.create(uri, tiledb.ArraySchema(tiledb.Domain(*dims), [tiledb.Attr(name, dtype=of or cells[0].dtype) for name in names]))
    with tiledb.open(uri, "w") as array:
        array[:] = dict(zip(names, cells))
    Lib().put_metadata(uri, [("_gdal", "UINT8", f"<PAMDataset>{pam}</PAMDataset>".encode())])


def write_colours(folder):
    """Four bands, of which GDAL says that they are no colours, in two resolutions; the first counts from 0."""
    group = f"{folder}/bands"
    tiledb.Group.create(group)
    cells = np.arange(4 * 16 * 16, dtype="u2").reshape(4, 16, 16)
    for level, step in enumerate((1, 2)):
        of = cells[:, ::step, ::step]
        dims = [tiledb.Dim(name, domain=(0, length - 1), tile=length, dtype=np.uint64) for name, length in zip(("BANDS", "Y", "X"), of.shape)]
        tiledb.Array.create(f"{group}/l_{level}", tiledb.ArraySchema(tiledb.Domain(*dims), [tiledb.Attr("TDB_VALUES", dtype="u2")]))
        with tiledb.open(f"{group}/l_{level}", "w") as array:
            array[:] = of
        told = "<ColorInterp>Gray</ColorInterp><Description>near M\xfcnchen</Description>" if level == 0 else "<Description>x</Description>"
        Lib().put_metadata(f"{group}/l_{level}", [("_gdal", "UINT8", f"<PAMDataset><PAMRasterBand band='1'>{told}</PAMRasterBand></PAMDataset>".encode("latin-1"))])
        with tiledb.Group(group, "w") as opened:
            opened.add(f"{group}/l_{level}", name=f"l_{level}")
            opened.meta["dataset_type"] = "raster"


def compare_colours(checks, point):
    """No band is alpha, and band 1 is the first of all. A byte that is not UTF-8 keeps nothing else from being shown."""
    data = point / "bands/l_0/data"
    with rasterio.open(data / "raster/TDB_VALUES.tif") as file:
        checks.equal("bands that are no colours", ([one.name for one in file.colorinterp], int((file.read_masks(1) == 0).sum())), (["gray"] + ["undefined"] * 3, 0))
        checks.equal("bands that count from 0", file.descriptions, ("near M\ufffdnchen", None, None, None))
    with rasterio.open(data / "raster/TDB_VALUES.tif", overview_level=0) as file:
        checks.equal("bands that are no colours: an overview", ([one.name for one in file.colorinterp], file.shape), (["gray"] + ["undefined"] * 3, (8, 8)))
    left_out = [one["reason"] for one in json.loads((data / "view.json").read_text())["left_out"]]
    checks.equal("bytes that are not UTF-8: the reason", left_out, ["bytes that are not UTF-8 are shown as U+FFFD"])


def write_bares(folder):
    """Statistics of all pixels; a rotated pole; complex numbers in an attribute each."""
    cells = np.arange(40 * 50).reshape(40, 50).astype("f4")
    items = {"MINIMUM": cells.min(), "MAXIMUM": cells.max(), "MEAN": cells.mean(), "STDDEV": cells.std()}
    items = "".join(f"<MDI key='STATISTICS_{key}'>{value}</MDI>" for key, value in items.items()) + "<MDI key='other'>x</MDI>"
    write_bare(f"{folder}/statistics", [cells], f"<PAMRasterBand band='1'><Metadata>{items}</Metadata></PAMRasterBand>")
    wkt = escape(rasterio.crs.CRS.from_string(ROTATED).to_wkt(version="WKT2_2019"))
    write_bare(f"{folder}/rotated_pole", [cells], f"<SRS>{wkt}</SRS><GeoTransform>-10,1,0,5,0,-1</GeoTransform>")
    bands = "".join(f"<PAMRasterBand band='{band}'><Description>band {band}</Description><Scale>{band + 1}</Scale></PAMRasterBand>" for band in (1, 2))
    write_bare(f"{folder}/complex", [cells + 1j, 2 * cells - 1j], bands, ("TDB_VALUES_1", "TDB_VALUES_2"), np.complex64)
    dims = [tiledb.Dim(name, domain=domain, tile=1, dtype=np.uint64) for name, domain in (("BANDS", (1, 2)), ("Y", (0, 39)), ("X", (0, 49)))]
    tiledb.Array.create(f"{folder}/complex_bands", tiledb.ArraySchema(tiledb.Domain(*dims), [tiledb.Attr("TDB_VALUES", dtype=np.complex128)]))
    with tiledb.open(f"{folder}/complex_bands", "w") as array:
        array[:] = np.stack([cells + 1j, 2 * cells - 1j]).astype(np.complex128)
    Lib().put_metadata(f"{folder}/complex_bands", [("_gdal", "UINT8", f"<PAMDataset>{bands}</PAMDataset>".encode())])
    for name, (of, colours) in INTERPRETED.items():
        told = "".join(f"<PAMRasterBand band='{band + 1}'><ColorInterp>{colour}</ColorInterp></PAMRasterBand>" for band, colour in enumerate(colours))
        write_bare(f"{folder}/{name}", [cells % 7] * len(colours), told, [f"TDB_VALUES_{band + 1}" for band in range(len(colours))], of)
    points = "".join(f"<GCP Id='{number}' Info='' Pixel='{column}' Line='{row}' X='{x}' Y='{y}' Z='{z}'/>" for number, (column, row, x, y, z) in enumerate(POINTS))
    wkt = escape(rasterio.crs.CRS.from_epsg(4326).to_wkt(), {'"': "&quot;"})
    for name, kind in ("points", "Area"), ("points_of_pixels", "Point"):
        told = f"<Metadata><MDI key='AREA_OR_POINT'>{kind}</MDI></Metadata>"
        write_bare(f"{folder}/{name}", [cells], f'{told}<GCPList Projection="{wkt}">{points}</GCPList>')


# Type, and what GDAL calls the bands.
INTERPRETED = {"alpha": ("u1", ("Gray", "Alpha")), "reversed": ("f4", ("Blue", "Green", "Red", "Alpha")), "three": ("u2", ("Red", "Green", "Blue"))}
# Column, row, and place.
POINTS = [(0.5, 0.5, 10.25, 50.5, 100.0), (49.5, 0.5, 11.0, 50.25, 0.0), (0.5, 39.5, 10.0, 49.5, -3.5), (20.25, 30.75, 10.5, 49.75, 7.0)]


def compare_interpreted(checks, point):
    """Bands are of the colour that GDAL calls them; one that is alpha hides pixels."""
    for name, (of, colours) in INTERPRETED.items():
        with rasterio.open(point / name / "data/raster/TDB_VALUES.tif") as file:
            # GDAL takes no floats for alpha.
            hidden = (np.arange(2000) % 7 == 0).sum() if "Alpha" in colours and of != "f4" else 0
            checks.equal(f"{name}: colours of bands", ([one.name for one in file.colorinterp], file.dtypes[0]), ([colour.lower() for colour in colours], np.dtype(of).name))
            checks.equal(f"{name}: hidden pixels", int((file.read_masks(1) == 0).sum()), int(hidden))


def compare_points(checks, point):
    """Ground control points are those of the source; in parts they count from the first pixel."""
    for name in "points", "points_of_pixels":
        for part, column, row in ("", 0, 0), ("subarray/5..39,10..29", 10, 5):
            with rasterio.open(point / name / "data" / part / "raster/TDB_VALUES.tif") as file:
                points, crs = file.gcps
                got = [(one.col, one.row, one.x, one.y, one.z) for one in points]
                checks.equal(f"{name} {part}", (got, crs, file.crs, file.transform), ([(c - column, r - row, *rest) for c, r, *rest in POINTS], rasterio.crs.CRS.from_epsg(4326), None, Affine.identity()))
                checks.equal(f"{name} {part}: areas", file.tags()["AREA_OR_POINT"], "Area" if name == "points" else "Point")
        left_out = json.loads((point / name / "data/view.json").read_text())["left_out"]
        checks.equal(f"{name}: left out", [one["reason"] for one in left_out], ["images alone tell ground control points"])


def compare_bares(checks, point):
    """What a part lacks, what coordinates on another globe are called, and to which samples a band's tags belong."""
    whole = {"STATISTICS_MINIMUM", "STATISTICS_MAXIMUM", "STATISTICS_MEAN", "STATISTICS_STDDEV", "other"}
    for part, want in ("", whole), ("subarray/..,..", whole), ("subarray/0..39,0..49", whole), ("subarray/..,0..9", {"other"}), ("subarray/1..,..", {"other"}):
        with rasterio.open(point / "statistics/data" / part / "raster/TDB_VALUES.tif") as file:
            checks.equal(f"statistics of {part or 'the whole'}: tags", set(file.tags(1)) - {"STATISTICS_VALID_PERCENT"}, want)
    for dataset in xarray.open_dataset(point / "rotated_pole/data/array.nc"), xarray.open_zarr(point / "rotated_pole/data/array.zarr"):
        told = {name: (dataset[name].attrs["standard_name"], dataset[name].attrs["units"]) for name in ("X", "Y")}
        checks.equal("a rotated pole: coordinates", told, {"X": ("grid_longitude", "degrees"), "Y": ("grid_latitude", "degrees")})
    values = np.arange(2000).reshape(40, 50)
    want = np.stack([values + 1j, 2 * values - 1j])
    for name, of in ("complex", "complex64"), ("complex_bands", "complex128"):
        with rasterio.open(point / name / "data/raster/TDB_VALUES.tif") as file:
            checks.equal(f"{name}: values", (file.dtypes, np.array_equal(file.read(), want)), ((of,) * 2, True))
            checks.equal(f"{name}: scales", (file.scales, file.descriptions), ((2, 3), ("band 1", "band 2")))
        file = tifffile.imread(point / name / "data/raster/TDB_VALUES.tif")
        checks.equal(f"{name}: tifffile", np.array_equal(file, want), True)
    with rasterio.open(point / "complex/data/raster/TDB_VALUES_2.tif") as file:
        checks.equal("complex numbers: the second band", (np.array_equal(file.read(), want[1:]), file.scales), (True, (3,)))


def write_few(folder):
    """An attribute that is the only band, and two bands of which one has a palette."""
    cells = np.arange(12, dtype="u1").reshape(3, 4)
    write_bare(f"{folder}/only", [cells], "<PAMRasterBand band='1'><Description>x</Description></PAMRasterBand>", ("TDB_VALUES_1",))
    palette = "<PAMRasterBand band='2'><ColorTable><Entry c1='1' c2='2' c3='3' c4='255'/></ColorTable></PAMRasterBand>"
    write_bare(f"{folder}/palettes", [cells, cells], palette, ("TDB_VALUES_1", "TDB_VALUES_2"))


def compare_few(checks, point):
    """The image of all bands is there, and what it lacks is told."""
    with rasterio.open(point / "only/data/raster/TDB_VALUES.tif") as file:
        checks.equal("the only band", (file.read().ravel().tolist(), file.descriptions), (list(range(12)), ("x",)))
    left_out = json.loads((point / "palettes/data/view.json").read_text())["left_out"]
    checks.equal("a palette among bands", [one["reason"] for one in left_out], ["images of several bands have no palette"])


def write_long(folder):
    """A reference system of which GDAL reads no code from images, and which is meant for many countries."""
    wkt = pyproj.CRS("EPSG:4979").to_wkt().replace('AREA["World', 'AREA["' + "World: a country, " * 150)
    write_bare(f"{folder}/long_system", [np.zeros((3, 4), "u1")], f"<SRS>{escape(wkt)}</SRS><GeoTransform>10,1,0,50,0,-1</GeoTransform>")


def compare_long(checks, point):
    """Images tell it."""
    with rasterio.open(point / "long_system/data/raster/TDB_VALUES.tif") as file:
        checks.equal("a long reference system", file.crs and pyproj.CRS(file.crs.to_wkt()).name, "WGS 84")


def write_told(folder):
    """Rasters of which something else is told: the year of the coordinates, a no-data value in too few digits, `_FillValue` of TileDB-CF."""
    cells = np.arange(10 * 12).reshape(10, 12).astype("f4")
    wkt = escape(pyproj.CRS.from_epsg(9000).to_wkt())
    write_bare(f"{folder}/moving", [cells], f'<SRS coordinateEpoch="2021.3">{wkt}</SRS><GeoTransform>10,1,0,50,0,-1</GeoTransform>')
    lacking = np.where(cells % 7 == 3, -np.finfo("f4").max, cells).astype("f4")
    write_bare(f"{folder}/digits", [lacking], '<PAMRasterBand band="1"><NoDataValue>-3.40282346638529E+38</NoDataValue></PAMRasterBand>')
    dims = [tiledb.Dim(name, domain=(0, length - 1), tile=length, dtype=np.int32) for name, length in (("lat", 10), ("lon", 12))]
    attributes = [tiledb.Attr("packed", dtype="i2", fill=-999), tiledb.Attr("told", dtype="f4"), tiledb.Attr("plain", dtype="i2", fill=-999)]
    tiledb.Array.create(f"{folder}/cf", tiledb.ArraySchema(tiledb.Domain(*dims), attributes))
    with tiledb.open(f"{folder}/cf", "w") as array:
        whole = np.where(cells % 7 == 3, -999, cells).astype("i2")
        array[:] = {"packed": whole, "plain": whole, "told": np.where(cells % 7 == 3, 1e20, cells).astype("f4")}
        array.meta["__tiledb_attr.packed.scale_factor"], array.meta["__tiledb_attr.told._FillValue"] = 0.1, float(np.float32(1e20))


def compare_told(checks, point):
    """Images tell it, so that readers mask what array.nc says is missing."""
    image = str(point / "moving/data/raster/TDB_VALUES.tif")
    done = subprocess.run(["gdalinfo", image], capture_output=True, text=True, timeout=60, check=True)
    checks.equal("the year of the coordinates", "Coordinate epoch: 2021.3" in done.stdout, True)
    left_out = json.loads((point / "moving/data/view.json").read_text())["left_out"]
    checks.equal("... which grids lack", [one["what"] for one in left_out], ["_gdal"])
    with rasterio.open(point / "digits/data/raster/TDB_VALUES.tif") as file:
        checks.equal("the least of FLOAT32", (file.nodata, int((file.read_masks(1) == 0).sum())), (float(-np.finfo("f4").max), 17))
    with tifffile.TiffFile(point / "digits/data/raster/TDB_VALUES.tif") as file:
        checks.equal("... in digits", float(file.pages[0].tags[42113].value), float(-np.finfo("f4").max))
    with xarray.open_dataset(point / "cf/data/array.nc") as dataset:
        for name, want in ("packed", 17), ("told", 17), ("plain", 0):
            with rasterio.open(point / f"cf/data/raster/{name}.tif") as file:
                masked = int((file.read_masks(1) == 0).sum())
            checks.equal(f"missing of {name}", (masked, int(dataset[name].isnull().sum())), (want, want))


def write_nulls(folder):
    """Rasters with nulls, whose no-data value GDAL or the metadata tell, and which is not their fill."""
    cells = np.arange(10, 22).reshape(3, 4)
    for of in NULLS:
        dims = [tiledb.Dim(name, domain=(0, length - 1), tile=2, dtype=np.uint64) for name, length in (("Y", 3), ("X", 4))]
        uri = f"{folder}/nulls_{of}"
        tiledb.Array.create(uri, tiledb.ArraySchema(tiledb.Domain(*dims), [tiledb.Attr("TDB_VALUES", dtype=of, nullable=True)]))
        validity = (cells.ravel() % 3 > 0).astype("u1")
        Lib().write(uri, {"TDB_VALUES": Column(cells.astype(of).ravel(), None, validity)}, layout="row-major")
        pam = b"<PAMDataset><PAMRasterBand band='1'><NoDataValue>7</NoDataValue></PAMRasterBand></PAMDataset>"
        Lib().put_metadata(uri, [("_gdal", "UINT8", pam)])
    return cells, cells % 3 == 0


NULLS = "u1", "i2", "i8", "f4"


def compare_nulls(checks, point, cells, null):
    """Nulls are missing to readers of images and grids."""
    want = np.where(null, np.nan, cells)
    for of in NULLS:
        data = point / f"nulls_{of}/data"
        for part, rows in ("", slice(None)), ("subarray/1..2,..", slice(1, 3)):
            with rasterio.open(data / part / "raster/TDB_VALUES.tif") as file:
                found = file.read(1, masked=True).astype("f8").filled(np.nan)
            checks.equal(f"nulls of {of}: the image {part}", found.tolist().__repr__(), want[rows].tolist().__repr__())
            for name, dataset in ("nc", xarray.open_dataset(data / part / "array.nc")), ("zarr", xarray.open_zarr(data / part / "array.zarr")):
                found = dataset["TDB_VALUES"].values.astype("f8")
                checks.equal(f"nulls of {of}: array.{name} {part}", found.tolist().__repr__(), want[rows].tolist().__repr__())


def main():
    """Writes the rasters and compares."""
    checks = Checks()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="tiledbfs-rasters-") as folder:
        for part in ("arrays", "malformed"):
            os.mkdir(f"{folder}/{part}")
        for name in RASTERS:
            write_source(f"{folder}/{name}.tif", name)
            write_array(f"{folder}/arrays/{name}", name, f"{folder}/{name}.tif")
            write_group(folder, name)
        write_odd(folder)
        write_moved(folder)
        write_together(folder)
        write_counted(f"{folder}/arrays/counted")
        write_unlike(f"{folder}/arrays/unlike", "<PAMRasterBand band='2'/>")
        write_unlike(f"{folder}/arrays/untold", "")
        for name, axes in TURNED.items():
            write_turned(f"{folder}/arrays/{name}", axes)
        write_bares(f"{folder}/arrays")
        write_colours(f"{folder}/arrays")
        write_few(f"{folder}/arrays")
        write_long(f"{folder}/arrays")
        nulls = write_nulls(f"{folder}/arrays")
        write_told(f"{folder}/arrays")
        write_unlike_types(f"{folder}/arrays/unlike_types")
        write_multidimensional(f"{folder}/arrays/multidimensional")
        systems = write_json_systems(f"{folder}/arrays/json_systems")
        for name, document in MALFORMED.items():
            write_array(f"{folder}/malformed/{name}", "plain", f"{folder}/plain.tif", document)
        with mounted(f"{folder}/arrays") as point:
            for name in RASTERS:
                os.stat(image(point, name))
                os.stat(point / name / "data/array.nc")
                (point / name / "data/array.zarr/zarr.json").read_bytes()
                os.stat(point / f"group_{name}/dataset.nc")
                os.stat(point / f"group_{name}/l_0/data/raster/TDB_VALUES.tif.ovr")
                (point / f"group_{name}/dataset.zarr/zarr.json").read_bytes()
                (point / name / "data/view.json").read_bytes()
            checks.equal("chunks decoded for lengths", stats(point)["chunks_decoded"], 0)
            compare(checks, point, folder)
            compare_parts(checks, point, folder)
            compare_grids(checks, point, folder)
            compare_overviews(checks, point, folder)
            compare_together(checks, point)
            compare_info(checks, point, folder)
            run_lines(checks, "rasters", f"{folder}/documented", {"array": point / "band"})
            compare_counted(checks, point / "counted/data")
            compare_unlike(checks, point / "unlike/data")
            compare_unlike(checks, point / "untold/data")
            compare_turned(checks, point)
            compare_bares(checks, point)
            compare_colours(checks, point)
            compare_few(checks, point)
            compare_long(checks, point)
            compare_interpreted(checks, point)
            compare_points(checks, point)
            compare_nulls(checks, point, *nulls)
            compare_told(checks, point)
            multidimensional(checks, point / "multidimensional/data")
            compare_json_systems(checks, f"{folder}/arrays/json_systems", point / "json_systems", systems)
            checks.equal("errors of the mount", errors(point), [])
        with mounted(f"{folder}/malformed") as point:
            malformed(checks, point)
            checks.equal("errors of the mount", errors(point), [])
        os.mkdir(f"{folder}/mutated")
        documents = write_mutated(f"{folder}/mutated")
        with mounted(f"{folder}/mutated") as point:
            compare_mutated(checks, point, documents)
            checks.equal("errors of the mount", errors(point), [])
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
