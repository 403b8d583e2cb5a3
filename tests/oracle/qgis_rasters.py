"""Rasters described as GDAL's driver does it, opened by QGIS through a mount, against the GeoTIFF that each was made from.

    python3 qgis_rasters.py

Runs where requirements-datasets.txt is installed; QGIS is that of the distribution, whose Python is /usr/bin/python3. The last line is
`N passed, N failed`.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

from dataset_rasters import RASTERS, image, write_array, write_source
from mount import errors, mounted
from plain_tools import Checks

LAYERS = Path(__file__).with_name("qgis_layers.py")


def layers(sources):
    """What QGIS says of each."""
    done = subprocess.run(["/usr/bin/python3", LAYERS, *map(str, sources)], capture_output=True, text=True, timeout=300, check=True)
    # Qt writes of its own.
    return json.loads(done.stdout.splitlines()[-1])


def scaled(name, bands, source, grid):
    """The values of a grid with the scales and offsets of the source, where bands have different ones: a variable has one of each."""
    if grid["scale"] == source["scale"]:
        return bands
    # QGIS computes in the type of the band.
    of = {"uint16": np.float32, "float64": np.float64}[RASTERS[name][0]]
    scales = zip(bands, source["scale"])
    return [[[None if cell is None else float(of(cell * scale + offset)) for cell in row] for row in band] for band, (scale, offset) in scales]


def main():
    """Writes the rasters and compares."""
    checks = Checks()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="tiledbfs-qgis-") as folder:
        os.mkdir(f"{folder}/arrays")
        for name in RASTERS:
            write_source(f"{folder}/{name}.tif", name)
            write_array(f"{folder}/arrays/{name}", name, f"{folder}/{name}.tif")
        sources = layers([f"{folder}/{name}.tif" for name in RASTERS])
        print(f"QGIS {sources['version']}")
        sources = dict(zip(RASTERS, sources["layers"]))
        # GDAL's reader of NetCDF counts the first axis as bands, and takes no rotation.
        grids = [name for name in RASTERS if RASTERS[name][2] == "BAND" and name not in ("rotated", "plain")]
        with mounted(f"{folder}/arrays") as point:
            images = layers([image(point, name) for name in RASTERS])["layers"]
            for name, got in zip(RASTERS, images):
                checks.equal(f"{name}: QGIS opens the source", sources[name] is not None, True)
                for key, want in sources[name].items():
                    # Like the driver: three bands are red, green and blue.
                    want = ["Red", "Green", "Blue"] if key == "colours" and name == "band" else want
                    checks.equal(f"{name}, image: {key}", got and got[key], want)
            found = layers([f"NETCDF:{point / name}/data/array.nc:TDB_VALUES" for name in grids])["layers"]
            for name, got in zip(grids, found):
                for key in ("crs", "extent", "size"):
                    checks.equal(f"{name}, array.nc: {key}", got and got[key], sources[name][key])
                checks.equal(f"{name}, array.nc: values", got and scaled(name, got["values"], sources[name], got), sources[name]["values"])
            checks.equal("errors of the mount", errors(point), [])
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
