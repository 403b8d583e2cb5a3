"""The oracle test of `array.zarr/`: what programs that read Zarr get, against what libtiledb reads.

    python3 exports_zarr.py --family FOLDER               the group of `data/` of every dense array of a family of views
    python3 exports_zarr.py --family FOLDER --all         those of every view

Each array of a group is read by zarr (with consolidated metadata and without), xarray (as stored, and decoded as the CF conventions say), dask and
tensorstore. The last line is `N passed, N failed`, counting pairs of an array and a reader.
"""

import base64
import os
import struct
import warnings

import dask.array
import numpy as np
import tensorstore
import xarray
import zarr

from grids import NOT_A_TIME, Compared, chunk_shape, compare_all
from view_files import load, read, same

CF_UNITS = {"days": "D", "hours": "h", "minutes": "m", "seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


def number(value):
    """A number as JSON has it."""
    value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def fill_value(value):
    """A `_FillValue` as JSON has it."""
    return base64.b64encode(struct.pack("<d", value)).decode() if value.dtype.kind == "f" else number(value)


def attributes(variable):
    """The attributes of an array."""
    found = dict(variable.attributes)
    if variable.missing is not None:
        found["_FillValue"] = fill_value(np.asarray(variable.missing)[()])
    return found


def equal(got, want):
    """Fails unless type, shape and bytes are equal."""
    same("type", got.dtype, want.dtype)
    same("shape", got.shape, want.shape)
    same("values", got.tobytes(), want.tobytes())


class Groups(Compared):
    """Compares the groups of views."""

    def __init__(self, grids):
        super().__init__(grids)
        self.groups, self.arrays, self.chunks = 0, 0, 0

    def seen(self):
        """A summary of the comparisons."""
        return f"{self.groups} groups of {self.arrays} arrays and {self.chunks} chunks"

    def view(self, array, view, blob):
        """Compares the group of a view, or checks that there is none."""
        folder = os.path.join(self.point, array, view["path"])
        grid = self.grids.grid(array, view, blob)
        path = os.path.join(folder, "array.zarr")
        label = f"{array} {view['path']}"
        self.check(label, "listing", self.listing, folder, grid)
        if grid is None:
            return
        self.groups += 1
        extents = [d["tile_extent"] for d in view["schema"]["dimensions"]]
        self.check(label, "files", self.files, path, grid, extents)
        for variable in grid.variables:
            self.arrays += 1
            where = f"{label}/array.zarr/{variable.name}"
            self.check(where, "zarr", self.zarr, path, True, variable)
            self.check(where, "zarr without consolidated metadata", self.zarr, path, False, variable)
            self.check(where, "dask", self.dask, path, variable)
            self.check(where, "tensorstore", self.tensorstore, path, variable)
        self.check(label, "xarray, as stored", self.stored, path, grid)
        self.check(label, "xarray, decoded", self.decoded, path, grid)

    @staticmethod
    def listing(folder, grid):
        """Whether there is a group, in the listing and in `view.json`."""
        same("whether array.zarr is listed", "array.zarr" in os.listdir(folder), grid is not None)
        export = load(os.path.join(folder, "view.json"))["exports"]["array.zarr"]
        same("whether view.json says so", export["exists"], grid is not None)
        same("whether there is a reason not to exist", export["reason"] is None, grid is not None)
        if grid is None:
            same("whether it is there by name", os.path.exists(os.path.join(folder, "array.zarr")), False)

    def files(self, path, grid, extents):
        """The documents, and every chunk by its own bytes."""
        names = [variable.name for variable in grid.variables]
        same("list of array.zarr/", os.listdir(path), ["zarr.json", *names])
        arrays = {}
        for variable in grid.variables:
            where = os.path.join(path, variable.name)
            same(f"list of {where}", sorted(os.listdir(where)), ["c", "zarr.json"])
            arrays[variable.name] = load(os.path.join(where, "zarr.json"))
            self.document(where, arrays[variable.name], grid, variable, extents)
        group = load(os.path.join(path, "zarr.json"))
        consolidated = {"kind": "inline", "must_understand": False, "metadata": arrays}
        same("zarr.json", group, {"zarr_format": 3, "node_type": "group", "attributes": grid.attributes, "consolidated_metadata": consolidated})

    def document(self, where, got, grid, variable, extents):
        """`zarr.json` of an array, and its chunks."""
        values = variable.values
        cell = values.dtype.itemsize * (values.shape[-1] if len(variable.dims) > len(grid.shape) else 1)
        sides = list(values.shape) if variable.of == "axis" else chunk_shape(grid.shape, extents, cell)
        sides += values.shape[len(sides) :]
        codec = {"name": "bytes"} if values.dtype.itemsize == 1 else {"name": "bytes", "configuration": {"endian": "little"}}
        fill = np.zeros(1, values.dtype) if variable.fill is None else variable.fill.astype(values.dtype)
        want = {
            "zarr_format": 3, "node_type": "array", "shape": list(values.shape), "data_type": values.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": sides}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": number(fill[0]), "codecs": [codec], "dimension_names": variable.dims, "attributes": attributes(variable),
        }
        same(f"{where}/zarr.json", got, want)
        counts = [-(-n // side) for n, side in zip(values.shape, sides)]
        same(f"order of keys in {where}/zarr.json", list(got), list(want))
        for numbers in np.ndindex(*counts):
            chunk = np.empty(sides, values.dtype)
            chunk[...] = fill if len(variable.dims) > len(grid.shape) else fill[0]
            part = values[tuple(slice(i * side, (i + 1) * side) for i, side in zip(numbers, sides))]
            chunk[tuple(slice(0, n) for n in part.shape)] = part
            same(f"chunk {numbers} of {where}", read(os.path.join(where, "c", *map(str, numbers))), chunk.tobytes())
            self.chunks += 1
        folder = os.path.join(where, "c")
        for count in counts:
            same(f"list of {folder}", os.listdir(folder), [str(i) for i in range(count)])
            for name in (str(count), "00", "-1", "x", "zarr.json"):
                same(f"whether there is {name} in {folder}", os.path.exists(os.path.join(folder, name)), False)
            folder = os.path.join(folder, "0")

    @staticmethod
    def zarr(path, consolidated, variable):
        group = zarr.open_group(path, mode="r", use_consolidated=consolidated)
        array = group[variable.name]
        equal(np.asarray(array[...]), variable.values)
        middle = tuple(slice(n // 2, n) for n in variable.values.shape)
        equal(np.asarray(array[middle]), variable.values[middle])
        same("dimensions", list(array.metadata.dimension_names), variable.dims)
        same("attributes", dict(array.attrs), attributes(variable))
        if variable.fill is not None:
            same("fill value", repr(array.fill_value), repr(variable.fill.astype(variable.values.dtype)[0]))

    @staticmethod
    def dask(path, variable):
        equal(dask.array.from_zarr(path, component=variable.name).compute(scheduler="synchronous"), variable.values)

    @staticmethod
    def tensorstore(path, variable):
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": os.path.join(path, variable.name) + "/"}}
        store = tensorstore.open(spec, read=True).result()
        equal(np.asarray(store.read().result()), variable.values)
        same("dimensions", list(store.domain.labels), variable.dims)

    @staticmethod
    def stored(path, grid):
        with xarray.open_zarr(path, chunks=None, mask_and_scale=False, decode_times=False, decode_coords=False) as found:
            same("variables", sorted(found.variables), sorted(variable.name for variable in grid.variables))
            same("coordinates", sorted(found.coords), sorted(variable.name for variable in grid.variables if variable.of == "axis"))
            same("attributes", found.attrs, grid.attributes)
            for variable in grid.variables:
                got = found[variable.name]
                same(f"dimensions of {variable.name}", list(got.dims), variable.dims)
                equal(got.values, variable.values)

    @staticmethod
    def decoded(path, grid):
        with warnings.catch_warnings():
            # For dates before 1582 and the like.
            warnings.simplefilter("ignore")
            for variable in grid.variables:
                want = decoded(variable)
                if want is None:
                    continue
                left = [other.name for other in grid.variables if other is not variable]
                with xarray.open_zarr(path, chunks=None, drop_variables=left) as found:
                    got = found[variable.name].values
                same(f"type of {variable.name}", got.dtype.kind, want.dtype.kind)
                same(f"values of {variable.name}", np.array_equal(got, want, equal_nan=want.dtype.kind in "fM"), True)


def decoded(variable):
    """A variable as xarray decodes it alone; None if its dates are outside the range that xarray decodes."""
    values = variable.values
    if "units" in variable.attributes:
        unit = CF_UNITS[variable.attributes["units"].split()[0]]
        known = values[values != NOT_A_TIME] if variable.missing is not None else values
        finest = {"D": "s", "h": "s", "m": "s"}.get(unit, unit)
        most = {"D": 2**63 // 86400, "h": 2**63 // 3600, "m": 2**63 // 60}.get(unit, 2**62)
        # It uses nanoseconds since an epoch in places.
        seconds = {"D": 86400, "h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
        if any(abs(int(v)) * seconds > 9e9 or abs(int(v)) > most // 2 for v in known.reshape(-1)):
            return None
        return values.astype(f"M8[{unit}]").astype(f"M8[{finest}]")
    if variable.missing is None:
        return values
    if values.dtype.kind == "f":
        masked = values.copy()
        if not np.isnan(variable.missing):
            masked[values == variable.missing] = np.nan
        return masked
    # Integers with a mask become floats; those that become equal to the mask are masked, too.
    floats = values.astype("f4" if values.dtype.itemsize <= 2 else "f8")
    floats[floats == floats.dtype.type(variable.missing)] = np.nan
    return floats


if __name__ == "__main__":
    compare_all(__doc__, Groups)
