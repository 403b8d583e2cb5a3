"""The oracle test of `raster/<attr>.tif`: what programs that read TIFF get, against what libtiledb reads.

    python3 exports_tiff.py --family FOLDER               every image of `data/` of a family of views
    python3 exports_tiff.py --family FOLDER --all         those of every view

Each is read by tifffile, whole and mapped into memory, by rasterio, and where it knows the type by Pillow; a share also by the programs of GDAL. The
last line is `N passed, N failed`, counting pairs of an image and a reader.
"""

import json
import os
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
import rasterio
import tifffile
from PIL import Image

import names
from grids import IMAGED, Compared, compare_all, within
from view_files import load, same
from views import chosen

PILLOW = {"<u1", "|u1", "<u2", "<i2", "<i4", "<f4"}
"""The types that Pillow reads right, with one band; and UINT8 with three or four samples."""
COMMANDS_SHARE = 8
"""One image in this many is also read by GDAL's programs."""


def digits(value):
    """A fill value as GDAL_NODATA has it, as a number."""
    return float(value) if value.dtype.kind == "f" else int(value)


class Images(Compared):
    """Compares the images of views."""

    def __init__(self, grids):
        super().__init__(grids)
        self.images = 0

    def seen(self):
        """A summary of the comparisons."""
        return f"{self.images} images"

    def view(self, array, view, blob):
        """Compares the images of a view, and their names."""
        folder = os.path.join(self.point, array, view["path"])
        grid = self.grids.grid(array, view, blob)
        wanted = {}
        for variable in grid.variables if grid else []:
            if variable.of == "values" and arranged(view["shape"], variable.stored):
                wanted[within(variable.name, 251) + ".tif"] = variable
        self.check(f"{array} {view['path']}", "listing", self.listing, folder, wanted, view)
        for name, variable in wanted.items():
            path = os.path.join(folder, "raster", name)
            self.image(f"{array} {view['path']}/raster/{name}", path, view["shape"], variable)

    def listing(self, folder, wanted, view):
        """The names of the images, in `raster/` and in `view.json`."""
        raster = os.path.join(folder, "raster")
        same("list of raster/", sorted(os.listdir(raster)) if os.path.exists(raster) else [], sorted(wanted))
        same("whether raster/ is listed", "raster" in os.listdir(folder), bool(wanted))
        exports = load(os.path.join(folder, "view.json"))["exports"]
        images = {name.removeprefix("raster/"): export for name, export in exports.items() if name.startswith("raster/")}
        same("images in view.json", sorted(name for name, export in images.items() if export["exists"]), sorted(wanted))
        attributes = [f["name"] for f in view["fields"] if f["kind"] == "attribute"]
        same("attributes in view.json", sorted(images), sorted(within(names.attribute(name), 251) + ".tif" for name in attributes))
        for name, export in images.items():
            same(f"whether {name} has a reason not to exist", export["reason"] is None, export["exists"])

    def image(self, label, path, shape, variable):
        """Compares an image with the values of a variable in a view of this shape."""
        self.images += 1
        values, planar = arranged(shape, variable.stored)
        nodata = None if variable.missing is None else digits(variable.missing)
        self.check(label, "tifffile", self.tifffile, path, planar, values, nodata)
        self.check(label, "tifffile, mapped", self.mapped, path, values)
        self.check(label, "rasterio", self.rasterio, path, planar, values, nodata)
        one = values.ndim == 2 and values.dtype.str in PILLOW
        colour = not planar and values.ndim == 3 and values.shape[2] in (3, 4) and values.dtype.str == "|u1"
        if one or colour:
            self.check(label, "Pillow", self.pillow, path, values)
        if chosen((1, COMMANDS_SHARE), label, "commands"):
            self.check(label, "gdalinfo", self.gdalinfo, path, planar, values, nodata)
            self.check(label, "gdal_translate", self.translate, path, planar, values)

    @staticmethod
    def tifffile(path, planar, values, nodata):
        with tifffile.TiffFile(path) as tiff:
            page = tiff.pages[0]
            got = page.asarray()
            tags = {tag.code: tag.value for tag in page.tags}
            same("pages", len(tiff.pages), 1)
        equal(got, values)
        samples = values.shape[0] if planar else values.shape[2] if values.ndim == 3 else 1
        height, width = values.shape[1:] if planar else values.shape[:2]
        colour = samples in (3, 4) and values.dtype.kind == "u" and values.dtype.itemsize < 3
        extra = samples - (3 if colour else 1)
        several = lambda value: value if samples == 1 else (value,) * samples  # noqa: E731
        want = {
            256: width, 257: height, 258: several(values.dtype.itemsize * 8), 259: 1, 262: 2 if colour else 1, 277: samples,
            284: 2 if planar else 1, 339: several(IMAGED[values.dtype.kind]),
        }
        if extra:
            want[338] = (2 if colour else 0,) * extra
        strips = [tags.pop(273), tags.pop(279)]
        rows = tags.pop(278)
        text = tags.pop(42113, None)
        same("tags", {tag: tuple(value) if tag == 338 else value for tag, value in tags.items()}, want)
        planes = samples if planar else 1
        same("strips", [len(s) for s in strips], [planes * -(-height // rows)] * 2)
        same("bytes of strips", sum(strips[1]), values.nbytes)
        same("whether values lie together", [a + b for a, b in zip(*strips)][:-1], list(strips[0])[1:])
        same("alignment", strips[0][0] % 64, 0)
        same("whether there is no data", text is not None, nodata is not None)
        if text is not None:
            kind = float if isinstance(nodata, float) else int
            same("no data", repr(values.dtype.type(kind(text))), repr(values.dtype.type(nodata)))

    @staticmethod
    def mapped(path, values):
        equal(np.asarray(tifffile.memmap(path, mode="r")), values)

    @staticmethod
    def rasterio(path, planar, values, nodata):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with rasterio.open(path) as image:
                got, found = image.read(), image.nodata
                height, width = image.shape
                window = ((height // 2, height), (width // 3, width))
                part = image.read(window=window)
        bands = values if planar else values[None] if values.ndim == 2 else np.moveaxis(values, 2, 0)
        equal(got, bands)
        equal(part, bands[:, height // 2 :, width // 3 :])
        # It returns all numbers as doubles, and takes 2^64 - 1, meaning none, for a number that the type
        # cannot hold.
        lost = nodata == 2**64 - 1
        same("whether there is no data", found is not None, nodata is not None and not lost)
        if found is not None:
            same("no data", repr(float(found)), repr(float(nodata)))

    @staticmethod
    def pillow(path, values):
        with Image.open(path) as image:
            got = np.asarray(image)
        same("values", got.astype(values.dtype).tobytes(), values.tobytes())

    @staticmethod
    def gdalinfo(path, planar, values, nodata):
        done = subprocess.run(["gdalinfo", "-json", path], capture_output=True, text=True, timeout=60)
        same("exit code", (done.returncode, done.stderr), (0, ""))
        info = json.loads(done.stdout)
        height, width = values.shape[1:] if planar else values.shape[:2]
        same("size", info["size"], [width, height])
        bands = values.shape[0] if planar else values.shape[2] if values.ndim == 3 else 1
        same("bands", len(info["bands"]), bands)
        same("whether there is no data", "noDataValue" in info["bands"][0], nodata is not None)

    @staticmethod
    def translate(path, planar, values):
        height, width = values.shape[1:] if planar else values.shape[:2]
        box = [width // 2, height // 2, width - width // 2, height - height // 2]
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.tif")
            command = ["gdal_translate", "-q", "-srcwin", *map(str, box), path, out]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            same("exit code", (done.returncode, done.stderr), (0, ""))
            got = bands_of(out)
        bands = values if planar else values[None] if values.ndim == 2 else np.moveaxis(values, 2, 0)
        equal(got, bands[:, height // 2 :, width // 2 :])


def arranged(shape, values):
    """Values as rows and columns, pixels of samples, or bands, and whether they are bands. None if a view of this shape has no image of them."""
    lengths, samples = list(shape), list(values.shape[len(shape) :])
    while len(lengths) > 3 and 1 in lengths[:-2]:
        lengths.remove(1)
    if not 2 <= len(lengths) <= 3 or len(lengths) == 3 and samples:
        return None
    colours = len(lengths) == 3 and values.dtype.kind == "u" and values.dtype.itemsize < 3 and lengths[0] > 4 and lengths[2] in (3, 4)
    return values.reshape(lengths + samples), len(lengths) == 3 and not colours


def bands_of(path):
    """All values of an image, by band, row and column."""
    with warnings.catch_warnings():
        # It has no georeference.
        warnings.simplefilter("ignore")
        with rasterio.open(path) as image:
            return image.read()


def equal(got, want):
    """Fails unless type, shape and bytes are equal, apart from axes of length 1."""
    same("type", got.dtype, want.dtype)
    same("shape", [n for n in got.shape if n != 1], [n for n in want.shape if n != 1])
    same("values", got.tobytes(), want.tobytes())


if __name__ == "__main__":
    compare_all(__doc__, Images)
