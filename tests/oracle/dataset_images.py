"""Images that tiledb-bioimg itself wrote: image.ome.zarr through a mount, against what the package reads of them.

    python3 dataset_images.py

Read by zarr, ome-zarr and ome-zarr-models. Runs where requirements-datasets.txt is installed. The last line is `N passed, N failed`.
"""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["TQDM_DISABLE"] = "1"  # Progress of the package.

import numpy as np
import ome_zarr.io
import ome_zarr.reader
import tifffile
import tiledb
import zarr
from ome_zarr_models.v05.image import Image
from tiledb.bioimg.converters.ome_tiff import OMETiffConverter
from tiledb.bioimg.openslide import TileDBOpenSlide

from documented import described, run_lines
from mount import ROOT, errors, mounted, stats
from plain_tools import Checks
from serve_page import served

MICRO = "\u00b5m"
SIZES = {"PhysicalSizeX": 0.25, "PhysicalSizeXUnit": MICRO, "PhysicalSizeY": 500.0, "PhysicalSizeYUnit": "nm"}
NAMES = {"Channel": {"Name": ["blue", "gr\u00fcn", "red"]}}
# Name: axes, shape, type, what describes it, how it is stored.
IMAGES = {
    "channels": ("CYX", (3, 310, 405), "uint16", {**SIZES, **NAMES}, {}),
    "samples": ("YXS", (310, 405, 3), "uint8", SIZES, {"preserve_axes": True}),
    "webp": ("YXS", (310, 405, 3), "uint8", SIZES, {"compressor": tiledb.WebpFilter(lossless=True)}),
    "stack": ("TZCYX", (2, 3, 1, 90, 70), "float32", {"PhysicalSizeZ": 2, "PhysicalSizeZUnit": "mm", "TimeIncrement": 1.5, "TimeIncrementUnit": "s"}, {}),
    "grey": ("YX", (310, 405), "uint8", {}, {}),
    "deep": ("ZYX", (4, 300, 40), "int16", {"PhysicalSizeX": 3}, {"preserve_axes": True}),
}


def write(folder, name):
    """The group that the package makes of an OME-TIFF, with two smaller levels where it can shrink it."""
    axes, shape, of, told, how = IMAGES[name]
    values = np.random.default_rng(len(name)).integers(0, 200, shape).astype(of)
    source = f"{folder}/{name}.ome.tif"
    tifffile.imwrite(source, values, ome=True, metadata={"axes": axes, **told}, photometric="rgb" if "S" in axes else "minisblack")
    pyramid = {"pyramid_kwargs": {"scale_factors": [2, 4]}} if name in ("channels", "grey") else {}
    OMETiffConverter.to_tiledb(source, f"{folder}/groups/{name}", tiles={"Y": 64, "X": 100}, **how, **pyramid)


def compare(checks, group, point):
    """All levels have the values, and all readers open them."""
    name = Path(group).name
    image = point / name / "image.ome.zarr"
    ome = json.loads((image / "zarr.json").read_text())["attributes"]["ome"]
    (scales,) = ome["multiscales"]
    axes = "".join(axis["name"] for axis in scales["axes"])
    opened = zarr.open_group(image, mode="r")
    (node, *_) = list(ome_zarr.reader.Reader(ome_zarr.io.parse_url(image))())
    with TileDBOpenSlide(group) as slide:
        source = slide.properties["axes"].lower()
        checks.equal(f"{name}: axes", axes, "".join(sorted(source, key="tczyx".index)))
        checks.equal(f"{name}: levels", [one["path"] for one in scales["datasets"]], [str(level) for level in slide.levels])
        first = opened["0"].shape
        for level in slide.levels:
            want = slide.read_level(level, to_original_axes=True)
            want = np.transpose(want, [source.index(axis) for axis in axes])
            got = opened[str(level)]
            checks.equal(f"{name}, {level}: zarr", (got.dtype, got.metadata.dimension_names, np.array_equal(got[:], want)), (want.dtype, tuple(axes), True))
            checks.equal(f"{name}, {level}: ome-zarr", np.array_equal(np.asarray(node.data[level]), want), True)
            checks.equal(f"{name}, {level}: a part", np.array_equal(got[..., 5:70, 11:33], want[..., 5:70, 11:33]), True)
            (transform,) = scales["datasets"][level]["coordinateTransformations"]
            told = json.loads(slide.properties["metadata"])
            sizes = {"t": told.get("timeIncrement", 1), **{axis: told.get(f"physicalSize{axis.upper()}", 1) for axis in "zyx"}, "c": 1}
            checks.equal(f"{name}, {level}: scale", np.allclose(transform["scale"], [sizes[axis] * first[i] / want.shape[i] for i, axis in enumerate(axes)]), True)
        channels = json.loads(slide.properties["metadata"])["channels"]["intensity"]
        colours = ["{red:02X}{green:02X}{blue:02X}".format(**channel["color"]) for channel in channels]
        checks.equal(f"{name}: channels", [(one["label"], one["color"], one["window"]["start"], one["window"]["end"]) for one in ome["omero"]["channels"]],
                     [(one["name"], colour, one["min"], one["max"]) for one, colour in zip(channels, colours)])
    model = Image.from_zarr(zarr.open_group(image, mode="r"))
    checks.equal(f"{name}: ome-zarr-models", len(model.ome_attributes.multiscales[0].datasets), len(scales["datasets"]))
    said = json.loads((point / name / "dataset.json").read_text())
    checks.equal(f"{name}: dataset.json", (said["kind"], [one["array"] for one in said["variables"]], said["dimensions"], said["left_out"]),
                 ("image", [f"l_{one['path']}.tdb" for one in scales["datasets"]], dict(zip(axes, first)), []))
    return ome


def compare_zarrita(checks, groups, point):
    """Zarrita, by which viewers in browsers read: from files in Node, and over HTTP."""
    modules = os.environ.get("TILEDBFS_ZARRITA")
    if not modules:
        print("zarrita: not run, TILEDBFS_ZARRITA is not set")
        return

    def levels(place):
        script = Path(__file__).with_name("zarrita.mjs")
        done = subprocess.run(["node", script, modules, place], capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    with served(groups) as host:
        for name in IMAGES:
            image = point / name / "image.ome.zarr"
            (scales,) = zarr.open_group(image, mode="r").attrs["ome"]["multiscales"]
            want = []
            for one in scales["datasets"]:
                values = zarr.open_array(image / one["path"], mode="r")[:]
                want.append({"path": one["path"], "scale": one["coordinateTransformations"][0]["scale"], "type": values.dtype.name,
                             "shape": list(values.shape), "sha256": hashlib.sha256(np.ascontiguousarray(values)).hexdigest()})
            checks.equal(f"{name}: zarrita, files", levels(image), want)
            checks.equal(f"{name}: zarrita, HTTP", levels(f"http://{host}/{name}/image.ome.zarr"), want)


def units(ome):
    """The units of an image's axes."""
    return {axis["name"]: axis.get("unit") for axis in ome["multiscales"][0]["axes"]}


def write_malformed(groups, source):
    """Groups in which something does not fit, and the keys or members that are left out."""
    def changed(name, left_out, **pairs):
        shutil.copytree(source, f"{groups}/{name}")
        with tiledb.Group(f"{groups}/{name}", "w") as group:
            for key, value in pairs.items():
                group.meta[key] = value
        cases[name] = left_out

    cases = {}
    changed("no_json", ["metadata"], metadata="{")
    changed("no_object", ["metadata"], metadata="[]")
    changed("size", ["metadata"], metadata=json.dumps({"physicalSizeX": -1, "physicalSizeY": "2"}))
    changed("colour", ["metadata"], metadata=json.dumps({"channels": {"intensity": [{"name": "a", "min": 0, "max": 1}]}}))
    changed("too_few", ["metadata"], metadata=json.dumps({"channels": {"intensity": []}}))
    changed("one_of_three", ["metadata"], metadata=json.dumps(
        {"channels": {"intensity": [{"color": {"red": 1, "green": 2, "blue": 3}, "min": 0, "max": 1}]}}))
    changed("axes", ["axes"], axes="CYXQ")
    changed("no_text", ["axes"], axes=5)
    changed("depths", ["pixel_depth"], pixel_depth="{\"0\": 0}")
    changed("depth_of_channels", ["l_0.tdb", "metadata"], pixel_depth="{\"0\": 3}")
    # As the package writes it of QPTIFF: capital chi and upsilon.
    greek = {"physicalSizeX": 5e-05, "physicalSize\u03a5": 6e-05, "physicalSize\u03a7Unit": "cm", "physicalSize\u03a5Unit": "cm"}
    changed("greek", [], metadata=json.dumps(greek))
    changed("no_level", ["l_1.tdb"])
    with tiledb.open(f"{groups}/no_level/l_1.tdb", "w") as array:
        del array.meta["level"]
    changed("same_level", ["l_1.tdb"])
    with tiledb.open(f"{groups}/same_level/l_1.tdb", "w") as array:
        array.meta["level"] = 2
    cases["too_few"] = []
    return cases


def malformed(checks, cases, point):
    """What does not fit is left out with a reason, and all else is an image."""
    for name, left_out in cases.items():
        group = point / name
        said = json.loads((group / "dataset.json").read_text())
        # Of two members with one level, the first is shown; libtiledb orders members as it likes.
        what = {"l_2.tdb": "l_1.tdb"}.get if name == "same_level" else lambda key, default: default
        checks.equal(f"{name}: what is left out", sorted({what(one["what"], one["what"]) for one in said["left_out"] if one["reason"]}), left_out)
        opened = zarr.open_group(group / "image.ome.zarr", mode="r")
        wanted = 3 - len([one for one in left_out if one.endswith(".tdb")])
        checks.equal(f"{name}: levels", len([array[:] for _, array in opened.arrays()]), wanted)
        Image.from_zarr(opened)
    shown = {name: json.loads((point / name / "image.ome.zarr/zarr.json").read_text())["attributes"]["ome"] for name in cases}
    sizes = lambda name: [one["coordinateTransformations"][0]["scale"][1:] for one in shown[name]["multiscales"][0]["datasets"]]
    checks.equal("sizes without level 0", (np.round(sizes("depth_of_channels")).tolist(), units(shown["depth_of_channels"])), ([[1, 1], [2, 2]], dict.fromkeys("cyx")))
    checks.equal("sizes in Greek letters", (sizes("greek")[0], units(shown["greek"])), ([6e-05, 5e-05], {"c": None, "y": "centimeter", "x": "centimeter"}))
    checks.equal("channels that do not fit", ["omero" in shown[name] for name in ("no_json", "colour", "one_of_three", "axes")], [False, False, False, True])


MUTANTS = 40


def write_mutated(groups, source):
    """Groups whose documents of JSON have a few bytes changed, by name, with the documents."""
    chance = random.Random(2035)
    with tiledb.Group(source) as group:
        document = group.meta["metadata"]
    documents = {}
    for number in range(MUTANTS):
        text = document
        for _ in range(chance.choice((1, 1, 2, 5))):
            start = chance.randrange(len(text))
            end = start + chance.choice((1, 2, 20))
            text = chance.choice((text[:start] + text[end:], text[:start] + chance.choice("{}[],:\"\\-.019 a") + text[start + 1:],
                                  text[:start] + text[start:end] * 2 + text[end:]))
        documents[str(number)] = text
        shutil.copytree(source, f"{groups}/{number}")
        with tiledb.Group(f"{groups}/{number}", "w") as group:
            group.meta["metadata"] = text
    return documents


def mutated(checks, documents, point):
    """No document fails. One that is no object of JSON is left out, and the sizes of others are as the parser of Python has them."""
    wrong, told = [], 0
    for name, document in documents.items():
        try:
            all_of_it = json.loads(document)
        except ValueError:
            all_of_it = None
        is_object = isinstance(all_of_it, dict)
        told += is_object
        said = json.loads((point / name / "dataset.json").read_text())
        ome = json.loads((point / name / "image.ome.zarr/zarr.json").read_text())["attributes"]["ome"]["multiscales"][0]
        sizes = [all_of_it.get(f"physicalSize{axis['name'].upper()}", 1) if is_object else 1 for axis in ome["axes"]]
        sizes = [size if isinstance(size, (int, float)) and not isinstance(size, bool) and size > 0 else 1 for size in sizes]
        (scale,) = ome["datasets"][0]["coordinateTransformations"]
        if not np.allclose(scale["scale"], sizes):
            wrong.append((document, scale["scale"], sizes))
        if not is_object and "metadata" not in [one["what"] for one in said["left_out"] if one["reason"]]:
            wrong.append((document, "no reason"))
        Image.from_zarr(zarr.open_group(point / name / "image.ome.zarr", mode="r"))
    checks.equal("mutated documents that say something else", wrong[:3], [])
    checks.equal("mutated documents of which some are JSON, and some not", 3 < told < len(documents) - 3, True)


def main():
    """Writes the images and compares."""
    checks = Checks()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="tiledbfs-images-") as folder:
        groups = f"{folder}/groups"
        os.mkdir(groups)
        for name in IMAGES:
            write(folder, name)
        # As tiledb-bioimg before 0.2.2 told the samples of pixels.
        shutil.copytree(f"{groups}/webp", f"{groups}/webp_of_old")
        with tiledb.Group(f"{groups}/webp_of_old", "w") as group:
            group.meta["pixel_depth"] = 3
        with mounted(groups) as point:
            for name in IMAGES:
                group = point / name
                checks.equal(f"{name}: listed", sorted(entry for entry in os.listdir(group) if not entry.startswith("l_")),
                             ["dataset.json", "group.json", "image.ome.zarr", "metadata.json"])
                checks.equal(f"{name}: no data set", ((group / "dataset.nc").exists(), (group / "dataset.zarr").exists()), (False, False))
                for path in (group / "image.ome.zarr").rglob("*"):
                    path.stat()
                    path.name == "zarr.json" and path.read_bytes()
            checks.equal("chunks decoded for lengths and descriptions", stats(point)["chunks_decoded"], 0)
            told = {name: compare(checks, f"{groups}/{name}", point) for name in IMAGES}
            checks.equal("units", units(told["channels"]), {"c": None, "y": "nanometer", "x": "micrometer"})
            checks.equal("units of a stack", units(told["stack"])["z"], "millimeter")
            chunks = [len(list((point / name / "image.ome.zarr/0/c").rglob("*"))) for name in ("channels", "webp")]
            checks.equal("more than one chunk", min(chunks) > 4, True)
            values = [zarr.open_array(point / name / "image.ome.zarr/0", mode="r")[:] for name in ("webp", "webp_of_old")]
            checks.equal("webp of old", np.array_equal(*values), True)
            compare_zarrita(checks, groups, point)
            said = described(f"{groups}/channels")
            checks.equal("info", [said.get(key) for key in ("kind", "open", "pixel", "channels", "0")],
                         ["image", "image.ome.zarr", "y 500.0 nanometer, x 0.25 micrometer", "blue, gr\u00fcn, red", "uint16 c y x 3 \u00d7 310 \u00d7 405"])
            run_lines(checks, "images", f"{folder}/documented", {"image": point / "channels"})
            checks.equal("errors of the mount", errors(point), [])
        cases_in = f"{folder}/malformed"
        os.mkdir(cases_in)
        cases = write_malformed(cases_in, f"{groups}/channels")
        with mounted(cases_in) as point:
            malformed(checks, cases, point)
            checks.equal("errors of the mount", errors(point), [])
        os.mkdir(f"{folder}/mutated")
        documents = write_mutated(f"{folder}/mutated", f"{groups}/samples")
        with mounted(f"{folder}/mutated") as point:
            mutated(checks, documents, point)
            checks.equal("errors of the mount", errors(point), [])
        real = ROOT / "target/real/arrays/packages/bioimg"
        if real.exists():
            with mounted(real) as point:
                compare(checks, str(real / "image.tdb"), point)
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
