"""`array.zarr/` and `raster/` of arrays written for it: the examples of the documentation, odd names, all types, colours, edges; how much is decoded for
how much is read; a million chunks, and images of more than 4 GiB.

The last line is `N passed, N failed`.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import rasterio
import tifffile
import xarray
import zarr
from PIL import Image

from capi import Attr, Column, Dim, Lib, Pipeline, Schema
from exports_tiff import bands_of
from mount import ROOT, errors, mounted, stats
from plain_tools import Checks

NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
ODD = ["zarr.json", "a/b", "100%", ".dot", 'a,b "c"', "größe", "x" * 255, "c", "n", "n__validity", "", "c\\", "c\\n", "<|>\\"]
SHOWN = ["%7Aarr.json", "a%2Fb", "100%25", "%2Edot", 'a,b "c"', "größe", "x" * 255, "c", "n", "n__validity", "__attr", "c%5C", "c%5Cn", "<|>%5C"]


LIB = Lib()
ZSTD = Pipeline([("ZSTD", {"level": 1})])
TYPES = {name: {"i": "INT", "u": "UINT", "f": "FLOAT"}[name[0]] + str(8 * int(name[1])) for name in NUMBERS}


def create(path, domains, tiles, attributes):
    """A dense array; attributes are (name, NumPy's name of the type, values per cell) or `Attr`."""
    names = "yxzct" if len(tiles) > 1 else "x"
    dims = [Dim(name, "INT64", *domain, tile) for name, domain, tile in zip(names, domains, tiles)]
    attributes = [a if isinstance(a, Attr) else Attr(a[0], TYPES[a[1]], a[2], pipeline=ZSTD) for a in attributes]
    LIB.create(str(path), Schema("dense", dims, attributes))


def write(path, box, **values):
    """Values in a box."""
    LIB.write(str(path), {name: Column(v.reshape(-1)) for name, v in values.items()}, ranges=[np.array(ends) for ends in box])


def extremes(rng, dtype, shape):
    """Numbers over the whole range of a type, with its ends."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        values = (rng.standard_normal(shape) * 10.0 ** rng.integers(-30, 30, shape)).astype(dtype)
        special = [np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal]
    else:
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        special = [info.min, info.max]
    values.reshape(-1)[: len(special)] = special
    return values


# -- what it is ----------------------------------------------------------------------------------------------


def examples(root, point, checks):
    """The arrays whose bytes the documentation shows."""
    text = (ROOT / "src/export/zarr.rs").read_text()
    block = re.search(r"//! ```json\n(.*?)//! ```", text, re.S).group(1)
    documented = "".join(line.removeprefix("//! ").strip() for line in block.splitlines())
    with open(point / "example/data/array.zarr/a/zarr.json") as f:
        checks.equal("the example of array.zarr", f.read(), documented)
    array = zarr.open_array(str(point / "example/data/array.zarr/a"), mode="r")
    checks.equal("that to zarr", (array.shape, array.chunks, array.dtype, array.fill_value), ((5, 6), (5, 6), np.dtype("i4"), -(2**31)))

    rows = re.findall(r"^//! +(\d+)  ((?:[0-9a-f]{2} )+)", (ROOT / "src/export/tiff.rs").read_text(), re.M)
    documented = bytearray(204)
    for place, row in rows:
        documented[int(place) : int(place) + len(row.split())] = bytes.fromhex(row)
    path = point / "image/data/raster/a.tif"
    checks.equal("the example of an image", path.read_bytes(), bytes(documented))
    with tifffile.TiffFile(path) as tiff:
        tags = [(tag.code, int(tag.dtype), tag.count, tag.value) for tag in tiff.pages[0].tags]
    number = lambda row, at, size: int.from_bytes(bytes.fromhex(row)[at : at + size], "little")  # noqa: E731
    listed = [(number(row, 0, 2), number(row, 2, 2), number(row, 4, 4), number(row, 8, 4)) for _, row in rows if len(row.split()) == 12][:11]
    plain = [(code, kind, count, value[0] if isinstance(value, tuple) else int(value)) for code, kind, count, value in tags]
    checks.equal("its tags to tifffile", plain, listed)


def odd_names(root, point, checks):
    """Attributes with difficult names."""
    group = zarr.open_group(str(point / "names/data/array.zarr"), mode="r")
    checks.equal("odd names to zarr", sorted(group), sorted(["y", "x", "n__validity_", *SHOWN]))
    got = [int(group[name][1, 2]) for name in SHOWN]
    checks.equal("values of odd names", got, list(range(len(ODD))))
    with xarray.open_zarr(str(point / "names/data/array.zarr"), chunks=None) as found:
        checks.equal("odd names to xarray", sorted(found.data_vars), sorted(["n__validity_", *SHOWN]))
    images = os.listdir(point / "names/data/raster")
    checks.equal("odd names of images", len(images), len(ODD))
    # `raster/` has no `zarr.json` of its own, so the name is free.
    shown = {"%7Aarr.json": "zarr.json"} | {name: name.replace("%5C", "\\") for name in SHOWN if "%5C" in name}
    for number, name in enumerate(SHOWN):
        name = shown.get(name, name)
        path = point / "names/data/raster" / (name + ".tif")
        if len(name) > 251:
            path = next(point / "names/data/raster" / image for image in images if image.startswith("xxx"))
            checks.equal("bytes of a long name", len(path.name), 255)
        checks.equal(f"the image {name[:20]}", int(tifffile.imread(path)[1, 2]), number)


def all_types(root, point, checks, written):
    """300 x 511 cells of all types of numbers, in two and three dimensions."""
    for name in ("two", "three"):
        group = zarr.open_group(str(point / name / "data/array.zarr"), mode="r")
        for dtype in NUMBERS:
            want = written[name][dtype]
            checks.equal(f"{dtype} in {name} dimensions to zarr", group[dtype][...].tobytes(), want.tobytes())
            path = point / name / "data/raster" / f"{dtype}.tif"
            checks.equal(f"{dtype} in {name} dimensions to tifffile", tifffile.imread(path).tobytes(), want.tobytes())
            checks.equal(f"{dtype} in {name} dimensions to rasterio", bands_of(path).tobytes(), want.tobytes())


def colours(root, point, checks, written):
    """Several values per cell."""
    want = written["colours"]
    for name in ("rgb", "rgba"):
        path = point / "colours/data/raster" / f"{name}.tif"
        with Image.open(path) as image:
            checks.equal(f"mode of {name} to Pillow", image.mode, name.upper())
            checks.equal(f"{name} to Pillow", np.asarray(image).tobytes(), want[name].tobytes())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with rasterio.open(path) as image:
                checks.equal(f"colours of {name} to rasterio", [c.name for c in image.colorinterp], ["red", "green", "blue", "alpha"][: len(name)])
    for name, values in want.items():
        path = point / "colours/data/raster" / f"{name}.tif"
        checks.equal(f"{name} to rasterio", bands_of(path).tobytes(), np.ascontiguousarray(np.moveaxis(values, 2, 0)).tobytes())
        got = zarr.open_array(str(point / "colours/data/array.zarr" / name), mode="r")
        checks.equal(f"{name} to zarr", (got.metadata.dimension_names, got[...].tobytes()), (("y", "x", f"{name}_cell"), values.tobytes()))


def third_axes(root, point, checks, written):
    """Colours along the first or the last of three dimensions, and planes of five."""
    names = ["red", "green", "blue", "alpha"]
    for array, values in written["third"].items():
        chunky = array.startswith("last")
        bands = np.moveaxis(values, 2, 0) if chunky else values
        path = point / array / "data/raster/a.tif"
        checks.equal(f"{array} to rasterio", bands_of(path).tobytes(), np.ascontiguousarray(bands).tobytes())
        with tifffile.TiffFile(path) as tiff:
            page = tiff.pages[0]
            checks.equal(f"{array} to tifffile", page.asarray().tobytes(), values.tobytes())
            colours = "colours" in array
            checks.equal(f"tags of {array}", (page.photometric, page.planarconfig), (2 if colours else 1, 1 if chunky else 2))
            extra = [2 if colours else 0] * (len(bands) - (3 if colours else 1))
            checks.equal(f"extra samples of {array}", list(page.extrasamples), extra)
        if colours:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with rasterio.open(path) as image:
                    checks.equal(f"colours of {array} to rasterio", [c.name for c in image.colorinterp], names[: len(bands)])
            if values.dtype.itemsize == 1 and chunky:
                with Image.open(path) as image:
                    checks.equal(f"{array} to Pillow", np.asarray(image).tobytes(), values.tobytes())
    five = written["five"]
    data = point / "five/data"
    checks.equal("whether five dimensions have images", os.path.exists(data / "raster"), False)
    for part, want in (("1,0..6,0..0", five[1:2, 0:7, 0:1]), ("1,2,1", five[1:2, 2:3, 1:2]), ("0,0..2,1", five[0:1, 0:3, 1:2]), ("0..1,3,0", five[:, 3:4, 0:1])):
        path = data / "subarray" / f"{part},..,.." / "raster/a.tif"
        checks.equal(f"planes {part} of five dimensions", bands_of(path).tobytes(), want.tobytes())
    with rasterio.open(data / "subarray/0,0..2,1,..,../raster/a.tif") as image:
        checks.equal("colours of three planes", [c.name for c in image.colorinterp], names[:3])
    checks.equal("whether two axes of planes have images", os.path.exists(data / "subarray/..,0..2,..,..,../raster"), False)


def edges(root, point, checks, written):
    """A region that begins within a tile, on a negative domain, and chunks that extend beyond it."""
    want = written["edges"]
    group = zarr.open_group(str(point / "edges/data/array.zarr"), mode="r")
    array = group["a"]
    checks.equal("shape and chunks of a region within a domain", (array.shape, array.chunks), (want.shape, (400, 224)))
    checks.equal("values of it", array[...].tobytes(), want.tobytes())
    checks.equal("its coordinates", [group[d][...].tolist()[:: n - 1] for d, n in zip("yx", want.shape)], [[-957, 2], [-949, -10]])
    part = point / "edges/data/subarray/-900..-895,-20..-11/array.zarr"
    checks.equal("values of a part", zarr.open_group(str(part), mode="r")["a"][...].tobytes(), want[57:63, 929:939].tobytes())
    with xarray.open_zarr(str(point / "edges/data/array.zarr")) as found:
        checks.equal("a cell by its coordinates to xarray", int(found.a.sel(y=-900, x=-20)), int(want[57, 929]))
    nothing = point / "empty/data"
    checks.equal("an empty array has neither", [os.path.exists(nothing / n) for n in ("array.zarr", "raster")], [False, False])


# -- what it costs -------------------------------------------------------------------------------------------


def decoded(point, function, *args):
    """The number of data chunks decoded meanwhile."""
    before = stats(point)["chunks_decoded"]
    function(*args)
    return stats(point)["chunks_decoded"] - before


def laziness(root, source, checks):
    """8192 x 1024 INT32 in tiles of 256 x 256, each with 4 chunks of 64 rows: the chunks decoded for each read."""
    zarr_path, image = "lazy/data/array.zarr", "lazy/data/raster/a.tif"
    with mounted(source) as point:
        checks.equal("chunks decoded by looking at all", decoded(point, lambda: subprocess.run(["ls", "-lR", point / "lazy/data"], check=True, capture_output=True)), 0)
        checks.equal("chunks decoded by opening a group", decoded(point, lambda: xarray.open_zarr(str(point / zarr_path))), 0)
        found = xarray.open_zarr(str(point / zarr_path), chunks=None)
        box = {"y": slice(300, 310), "x": slice(520, 760)}
        checks.equal("chunks decoded by a box within one tile", decoded(point, lambda: found.a.isel(box).values), 4)
        box = {"y": slice(250, 260), "x": slice(0, 10)}
        checks.equal("chunks decoded by a box within two tiles", decoded(point, lambda: found.a.isel(box).values), 8)
    with mounted(source) as point:
        # Without read-ahead. Between the first and the last of these rows, because pages extend beyond rows.
        with open(point / image, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            start = tifffile.TiffFile(point / image).pages[0].dataoffsets[0]
            got = []
            count = decoded(point, lambda: got.append(os.pread(f.fileno(), 40 << 12, start + (330 << 12))))
        checks.equal("values of 40 rows", got[0], np.arange(330 << 10, 370 << 10, dtype="<i4").tobytes())
        checks.equal("chunks decoded by 40 rows of 1024, in one chunk of each of four tiles", count, 4)
    with mounted(source) as point, tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.tif")
        window = ["gdal_translate", "-q", "-srcwin", "0", "6720", "1024", "64", str(point / image), out]
        count = decoded(point, lambda: subprocess.run(window, check=True, capture_output=True))
        checks.equal("values of 64 rows to GDAL", tifffile.imread(out).tobytes(), np.arange(6720 << 10, 6784 << 10, dtype="<i4").tobytes())
        # Those rows, the kernel's read-ahead, and the same for the header.
        print(f"     {count} of 512 chunks were decoded for 64 rows of 8192")
        checks.equal("whether 64 rows decode few chunks", 4 <= count <= 64, True)


def process_of(point):
    """The process that serves a mount."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"mount" in command and str(point).encode() in command:
            return int(folder.name)
    raise AssertionError(f"nothing serves {point}")


def many_chunks(root, source, checks):
    """A million chunks of 2^36 cells, of which two fragments store the first and the last."""
    with mounted(source, "--cache-size", "64M") as point:
        pid = process_of(point)
        memory = lambda: int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1))  # noqa: E731
        data = point / "million/data"
        checks.equal("whether array.zarr of a million chunks is listed", "array.zarr" in os.listdir(data), False)
        group = zarr.open_group(str(data / "array.zarr"), mode="r")
        checks.equal("chunks of an array", group["a"].nchunks, 1 << 20)
        before, inodes, start = memory(), stats(point)["inodes"], time.time()
        with os.scandir(data / "array.zarr/a/c") as entries:
            first = next(entries).name
            took = time.time() - start
            count = 1 + sum(1 for _ in entries)
        print(f"     the first name after {took * 1000:.0f} ms, all after {time.time() - start:.1f} s, {memory() - before} KiB more memory")
        checks.equal("names of chunks", (first, count), ("0", 1 << 20))
        checks.equal("whether listing remembers few of them", stats(point)["inodes"] - inodes < 2000, True)
        checks.equal("whether listing takes little memory", memory() - before < 16384, True)
        checks.equal("the first and the last cells", [group["a"][:3].tolist(), group["a"][-3:].tolist()], [[1, 2, 3], [8, 9, 10]])
        checks.equal("cells between", group["a"][1 << 30 : (1 << 30) + 2].tolist(), [-128, -128])
        checks.equal("the last coordinate", int(group["x"].shape[0]), 1 << 36)
        with open(data / "array.zarr/x/c/0", "rb") as f:
            f.seek(-8, os.SEEK_END)
            checks.equal("the same in its file", int.from_bytes(f.read(), "little"), (1 << 36) - 1)
        checks.equal("a chunk behind the last", os.path.exists(data / f"array.zarr/a/c/{1 << 20}"), False)

        square = point / "square/data/array.zarr/a/c"
        checks.equal("names in two dimensions", [len(os.listdir(square)), len(os.listdir(square / "1023"))], [1024, 1024])
        checks.equal("errors", errors(point), [])


def large_images(root, source, checks):
    """An image of 8 GiB of one band, and one of 3 bands of 2 GiB each."""
    with mounted(source) as point:
        path = point / "square/data/raster/a.tif"
        with open(path, "rb") as f:
            checks.equal("a BigTIFF", f.read(4), b"II\x2b\0")
        checks.equal("its length is beyond 2^32", os.stat(path).st_size > 1 << 36, True)
        with tifffile.TiffFile(path) as tiff:
            checks.equal("that to tifffile", (tiff.is_bigtiff, tiff.pages[0].shape), (True, (1 << 18, 1 << 18)))
        mapped = tifffile.memmap(path, mode="r")
        checks.equal("its corners to tifffile, mapped", [int(mapped[0, 0]), int(mapped[-1, -1]), int(mapped[1 << 17, 5])], [1, 9, -128])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with rasterio.open(path) as image:
                corner = image.read(1, window=(((1 << 18) - 2, 1 << 18), ((1 << 18) - 2, 1 << 18)))
            checks.equal("its last corner to rasterio", corner.tolist(), [[6, 7], [8, 9]])
            path = point / "bands/data/raster/a.tif"
            with rasterio.open(path) as image:
                checks.equal("bands of an image of 6 GiB", (image.count, image.shape), (3, (1 << 15, 1 << 16)))
                got = image.read(3, window=(((1 << 15) - 1, 1 << 15), ((1 << 16) - 3, 1 << 16)))
            checks.equal("its last corner", got.tolist(), [[1, 2, 3]])
        checks.equal("errors", errors(point), [])


def arrays(root):
    """Writes the arrays; returns their content."""
    rng = np.random.default_rng(14)
    written = {}
    create(root / "example", [(0, 4), (0, 5)], [3, 4], [Attr("a", "INT32", 1, True)])
    values = Column(np.arange(30, dtype="i4"), validity=np.ones(30, "u1"))
    LIB.write(str(root / "example"), {"a": values}, ranges=[np.array([0, 4]), np.array([0, 5])])
    create(root / "image", [(0, 1), (0, 2)], [2, 2], [("a", "u2", 1)])
    write(root / "image", [(0, 1), (0, 2)], a=np.arange(1, 7, dtype="u2"))
    create(root / "names", [(0, 2), (0, 3)], [2, 2], [Attr(name, "INT16", 1, name == "n") for name in ODD])
    column = lambda number, name: Column(np.full(12, number, "i2"), validity=np.ones(12, "u1") if name == "n" else None)  # noqa: E731
    values = {name: column(number, name) for number, name in enumerate(ODD)}
    LIB.write(str(root / "names"), values, ranges=[np.array([0, 2]), np.array([0, 3])])
    for name, shape in {"two": (300, 511), "three": (3, 300, 511)}.items():
        create(root / name, [(0, n - 1) for n in shape], [min(n, 100) for n in shape], [(dtype, dtype, 1) for dtype in NUMBERS])
        written[name] = {dtype: extremes(rng, dtype, shape) for dtype in NUMBERS}
        write(root / name, [(0, n - 1) for n in shape], **written[name])
    several = {"rgb": ("u1", 3), "rgba": ("u1", 4), "rgb16": ("u2", 3), "pair": ("f8", 2), "five": ("i4", 5)}
    written["colours"] = {name: extremes(rng, dtype, (40, 30, k)) for name, (dtype, k) in several.items()}
    create(root / "colours", [(0, 39), (0, 29)], [16, 16], [(n, t, k) for n, (t, k) in several.items()])
    write(root / "colours", [(0, 39), (0, 29)], **written["colours"])
    written["third"] = {
        "last_colours": extremes(rng, "u1", (40, 30, 3)), "last_colours_alpha": extremes(rng, "u2", (5, 30, 4)), "first_colours": extremes(rng, "u1", (3, 30, 4)),
        "first_colours_alpha": extremes(rng, "u2", (4, 30, 20)), "first_signed": extremes(rng, "i1", (3, 30, 20)), "first_wide": extremes(rng, "u4", (6, 30, 3)),
    }
    for name, values in written["third"].items():
        box = [(0, n - 1) for n in values.shape]
        create(root / name, box, [min(n, 16) for n in values.shape], [("a", values.dtype.str[1:], 1)])
        write(root / name, box, a=values)
    written["five"] = extremes(rng, "u1", (2, 7, 2, 30, 20))
    box = [(0, n - 1) for n in written["five"].shape]
    create(root / "five", box, [1, 1, 1, 16, 16], [("a", "u1", 1)])
    write(root / "five", box, a=written["five"])
    create(root / "edges", [(-1000, 1000)] * 2, [100, 7], [("a", "i8", 1)])
    written["edges"] = extremes(rng, "i8", (960, 940))
    write(root / "edges", [(-957, 2), (-949, -10)], a=written["edges"])
    create(root / "empty", [(0, 9)] * 2, [5, 5], [("a", "i8", 1)])
    return written


def large_arrays(root):
    """Writes arrays that are mostly empty."""
    create(root / "lazy", [(0, 8191), (0, 1023)], [256, 256], [("a", "i4", 1)])
    write(root / "lazy", [(0, 8191), (0, 1023)], a=np.arange(1 << 23, dtype="i4"))
    create(root / "million", [(0, (1 << 36) - 1)], [1 << 16], [("a", "i1", 1)])
    write(root / "million", [(0, 2)], a=np.arange(1, 4, dtype="i1"))
    write(root / "million", [((1 << 36) - 3, (1 << 36) - 1)], a=np.arange(8, 11, dtype="i1"))
    last = (1 << 18) - 1
    create(root / "square", [(0, last)] * 2, [256, 256], [("a", "i1", 1)])
    write(root / "square", [(0, 1), (0, 1)], a=np.arange(1, 5, dtype="i1").reshape(2, 2))
    write(root / "square", [(last - 1, last)] * 2, a=np.arange(6, 10, dtype="i1").reshape(2, 2))
    shape = (3, 1 << 15, 1 << 16)
    create(root / "bands", [(0, n - 1) for n in shape], [1, 256, 256], [("a", "u1", 1)])
    write(root / "bands", [(0, 0)] * 3, a=np.full((1, 1, 1), 5, "u1"))
    write(root / "bands", [(2, 2), (shape[1] - 1,) * 2, (shape[2] - 3, shape[2] - 1)], a=np.array([[[1, 2, 3]]], "u1"))


def main():
    """Runs all."""
    start, checks = time.time(), Checks()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-grids-") as folder:
        root = Path(folder, "small")
        root.mkdir()
        written = arrays(root)
        with mounted(root) as point:
            examples(root, point, checks)
            odd_names(root, point, checks)
            for test in (all_types, colours, third_axes, edges):
                test(root, point, checks, written)
            checks.equal("errors", errors(point), [])
        large = Path(folder, "large")
        large.mkdir()
        large_arrays(large)
        for test in (laziness, many_chunks, large_images):
            test(root, large, checks)
    print(f"{time.time() - start:.0f} s")
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
