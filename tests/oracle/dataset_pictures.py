"""The pictures of docs/datasets.md: a map and an image, each read through a mount.

    python3 dataset_pictures.py DIRECTORY

Writes `datasets-map.png` and `datasets-image.png`. Runs where requirements-datasets.txt, matplotlib and scikit-image are installed: the elevations
(Jacksboro Fault, by the US Geological Survey) are sample data of the one, the tissue (immunohistochemistry, CC0) of the other.
"""

import io
import os
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["TQDM_DISABLE"] = "1"  # Progress of the package.

import matplotlib
import numpy as np
import ome_zarr.io
import ome_zarr.reader
import rasterio
import skimage.data
import tifffile
import tiledb
import xarray
from matplotlib import pyplot
from matplotlib.cbook import get_sample_data
from matplotlib.colors import LightSource
from PIL import Image
from tiledb.bioimg.converters.ome_tiff import OMETiffConverter

from capi import Lib
from mount import mounted

matplotlib.use("Agg")


def write_map(uri):
    """Elevations as GDAL's driver writes them."""
    with get_sample_data("jacksboro_fault_dem.npz") as sample:
        values, left, right, bottom, top = (sample[name] for name in ("elevation", "xmin", "xmax", "ymin", "ymax"))
    # The first row is in the north, whatever the sample calls its ends.
    bottom, top = sorted((float(bottom), float(top)))
    height, width = values.shape
    band = tiledb.Dim("BANDS", domain=(1, 1), tile=1, dtype=np.uint64)
    y, x = (tiledb.Dim(name, domain=(0, length - 1), tile=128, dtype=np.uint64) for name, length in (("Y", height), ("X", width)))
    tiledb.Array.create(uri, tiledb.ArraySchema(tiledb.Domain(band, y, x), [tiledb.Attr("TDB_VALUES", dtype=np.int16)]))
    with tiledb.open(uri, "w") as array:
        array[:] = values[np.newaxis].astype(np.int16)
    transform = f"{left}, {(right - left) / width}, 0, {top}, 0, {(bottom - top) / height}"
    document = f"<PAMDataset><SRS>{rasterio.CRS.from_epsg(4269).to_wkt()}</SRS><GeoTransform>{transform}</GeoTransform>" \
               "<PAMRasterBand band='1'><UnitType>m</UnitType><Description>elevation</Description></PAMRasterBand></PAMDataset>"
    Lib().put_metadata(uri, [("_gdal", "UINT8", document.encode())])


def draw_map(array):
    """What xarray has of it: coordinates, units and all."""
    with xarray.open_zarr(array / "data/array.zarr", decode_coords="all") as dataset:
        band = dataset["TDB_VALUES"].isel(BANDS=0).load()
    figure, axes = pyplot.subplots(figsize=(6.4, 4.6), layout="constrained")
    x, y = band["X"], band["Y"]
    box = [float(x[0]), float(x[-1]), float(y[-1]), float(y[0])]
    shaded = LightSource(315, 45).shade(band.values, pyplot.get_cmap("gist_earth"), blend_mode="soft", vert_exag=0.1)
    axes.imshow(shaded, extent=box, aspect=1 / np.cos(np.radians(float(y.mean()))))
    colours = pyplot.cm.ScalarMappable(pyplot.Normalize(band.min(), band.max()), "gist_earth")
    figure.colorbar(colours, ax=axes, label=f"{band.attrs['long_name']} ({band.attrs['units']})")
    axes.set(xlabel=f"{x.attrs['standard_name']} ({x.attrs['units']})", ylabel=f"{y.attrs['standard_name']} ({y.attrs['units']})")
    return figure


def write_image(folder, uri):
    """A picture of tissue and two smaller levels, as tiledb-bioimg writes them."""
    source = f"{folder}/tissue.ome.tif"
    sizes = {"PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "\u00b5m", "PhysicalSizeY": 0.5, "PhysicalSizeYUnit": "\u00b5m"}
    tifffile.imwrite(source, skimage.data.immunohistochemistry(), ome=True, metadata={"axes": "YXS", **sizes}, photometric="rgb")
    OMETiffConverter.to_tiledb(source, uri, tiles={"Y": 128, "X": 128}, preserve_axes=True, pyramid_kwargs={"scale_factors": [2, 4]})


def draw_image(group):
    """What ome-zarr has of it: the smallest level, and a part of the largest."""
    (node, *_) = list(ome_zarr.reader.Reader(ome_zarr.io.parse_url(group / "image.ome.zarr"))())
    small, part = (np.moveaxis(np.asarray(level), 0, -1) for level in (node.data[2], node.data[0][:, 180:308, 200:328]))
    scales = [transforms[0]["scale"][-1] for transforms in node.metadata["coordinateTransformations"]]
    figure, both = pyplot.subplots(1, 2, figsize=(6.4, 3.2), layout="constrained")
    for axes, level, values in zip(both, (2, 0), (small, part)):
        end = values.shape[0] * scales[level]
        axes.imshow(values, extent=[0, end, end, 0])
        axes.set(title=f"level {level}: {scales[level]} \u00b5m a pixel", xlabel="\u00b5m")
    return figure


def save(figure, path):
    """As a small PNG."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=100)
    Image.open(drawn).convert("RGB").quantize(96).save(path, optimize=True)


def main():
    """Writes both."""
    warnings.simplefilter("ignore")
    output = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="tiledbfs-pictures-") as folder:
        os.mkdir(f"{folder}/source")
        write_map(f"{folder}/source/map")
        write_image(folder, f"{folder}/source/image")
        with mounted(f"{folder}/source") as point:
            save(draw_map(point / "map"), output / "datasets-map.png")
            save(draw_image(point / "image"), output / "datasets-image.png")


if __name__ == "__main__":
    main()
