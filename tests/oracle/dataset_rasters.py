"""Rasters laid out and described as GDAL's driver does it: raster/*.tif through a mount, against the GeoTIFF that each was made from.

    python3 dataset_rasters.py

The GDAL of distributions lacks its TileDB driver, so the arrays are written by TileDB-Py. What describes them GDAL writes: the elements of a virtual
raster (VRT) of the same source are those of PAM; the driver's IMAGE_STRUCTURE is added. Runs where requirements-datasets.txt is installed, with
GDAL's programs. The last line is `N passed, N failed`.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings
import xml.etree.ElementTree as xml

import numpy as np
import rasterio
import tiledb
from rasterio.transform import Affine
from rasterio.windows import Window

from capi import Lib
from mount import errors, mounted, stats
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
    "local": ("int32", 1, "BAND", dict(transform=UTM)),
    "plain": ("float32", 1, "BAND", {}),
    "point": ("uint8", 3, "PIXEL", dict(crs="EPSG:32632", transform=UTM)),
    "palette": ("uint8", 1, "BAND", dict(crs="EPSG:4326", transform=UPWARDS)),
}
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
        if name == "palette":
            file.write_colormap(1, {value: (value, 255 - value, value // 2, 255) for value in range(256)})


def described(source, interleave):
    """The PAM document of a raster."""
    done = subprocess.run(["gdal_translate", "-q", "-of", "VRT", source, "/vsistdout/"], capture_output=True, text=True, timeout=60, check=True)
    root = xml.fromstring(done.stdout)
    root.tag, root.attrib = "PAMDataset", {}
    for element in list(root):
        if element.tag == "OverviewList" or element.get("domain") == "IMAGE_STRUCTURE":
            root.remove(element)
        elif element.tag == "VRTRasterBand":
            element.tag, element.attrib = "PAMRasterBand", {"band": element.get("band")}
            for other in element.findall("SimpleSource") + element.findall("ColorInterp"):
                element.remove(other)
    with rasterio.open(source) as file:
        # Which virtual rasters lack.
        tags = file.tags(ns=DOMAIN)
    if tags:
        other = xml.SubElement(root, "Metadata", domain=DOMAIN)
        for key, value in tags.items():
            xml.SubElement(other, "MDI", key=key).text = value
    structure = xml.SubElement(root, "Metadata", domain="IMAGE_STRUCTURE")
    for key, value in {"X_SIZE": WIDTH, "Y_SIZE": HEIGHT, "INTERLEAVE": interleave, "NBITS": 8, "DATASET_TYPE": "raster"}.items():
        xml.SubElement(structure, "MDI", key=key).text = str(value)
    return xml.tostring(root)


def write_array(uri, name, source, document=None):
    """The array that the driver makes of the GeoTIFF: whole blocks."""
    of, bands, interleave, _ = RASTERS[name]
    with rasterio.open(source) as file:
        values = file.read()
    height, width = -(-HEIGHT // BLOCK) * BLOCK, -(-WIDTH // BLOCK) * BLOCK
    padded = np.full((bands, height, width), 77, of)
    padded[:, :HEIGHT, :WIDTH] = values
    y = tiledb.Dim("Y", domain=(0, height - 1), tile=BLOCK, dtype=np.uint64)
    x = tiledb.Dim("X", domain=(0, width - 1), tile=BLOCK, dtype=np.uint64)
    band = tiledb.Dim("BANDS", domain=(1, bands), tile=1, dtype=np.uint64)
    dims, cells = {"BAND": ((band, y, x), padded), "PIXEL": ((y, x, band), np.moveaxis(padded, 0, -1)), "ATTRIBUTES": ((y, x), None)}[interleave]
    names = [f"TDB_VALUES_{number + 1}" for number in range(bands)] if cells is None else ["TDB_VALUES"]
    attributes = [tiledb.Attr(attribute, dtype=of, filters=[tiledb.ZstdFilter()]) for attribute in names]
    tiledb.Array.create(uri, tiledb.ArraySchema(tiledb.Domain(*dims), attributes))
    with tiledb.open(uri, "w") as array:
        array[:] = dict(zip(names, padded)) if cells is None else {names[0]: np.ascontiguousarray(cells)}
        array.meta["dataset_type"] = "raster"
    document = described(source, interleave) if document is None else document
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


MALFORMED = {
    "not_xml": b"<PAMDataset><SRS>", "entity": b"<!DOCTYPE a [<!ENTITY b 'c'>]><PAMDataset>&b;</PAMDataset>", "bomb": b"<PAMDataset><SRS>&lol;</SRS></PAMDataset>",
    "deep": b"<a>" * 100000, "not_utf8": b"<PAMDataset>\xff</PAMDataset>", "other": b"<VRTDataset/>", "empty": b"\0",
    "numbers": b"<PAMDataset><GeoTransform>1,2</GeoTransform><PAMRasterBand band='x'/></PAMDataset>",
    "sizes": b"<PAMDataset><Metadata domain='IMAGE_STRUCTURE'><MDI key='X_SIZE'>-3</MDI><MDI key='Y_SIZE'>5</MDI></Metadata></PAMDataset>",
}


def malformed(checks, point):
    """What is malformed is left out with the reason, and the image is there."""
    for name in MALFORMED:
        with rasterio.open(image(point, name)) as file:
            checks.equal(f"{name}: the image", (file.crs, file.transform, file.shape), (None, Affine.identity(), (48, 64)))
        left_out = json.loads((point / name / "data/view.json").read_text())["left_out"]
        checks.equal(f"{name}: what is left out", {entry["what"] for entry in left_out if entry["reason"]}, {"_gdal"})


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
        for name, document in MALFORMED.items():
            write_array(f"{folder}/malformed/{name}", "plain", f"{folder}/plain.tif", document)
        with mounted(f"{folder}/arrays") as point:
            for name in RASTERS:
                os.stat(image(point, name))
                (point / name / "data/view.json").read_bytes()
            checks.equal("chunks decoded for lengths", stats(point)["chunks_decoded"], 0)
            compare(checks, point, folder)
            compare_parts(checks, point, folder)
            checks.equal("errors of the mount", errors(point), [])
        with mounted(f"{folder}/malformed") as point:
            malformed(checks, point)
            checks.equal("errors of the mount", errors(point), [])
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
