"""Writes groups with TileDB-CF itself, which runs with TileDB-Py up to 0.32 only: `python3 write_cf.py SOURCE.nc FOLDER`."""

import sys
import warnings

import tiledb.cf
import xarray

warnings.simplefilter("ignore")
source, folder = sys.argv[1:]
tiledb.cf.from_netcdf(source, f"{folder}/ocean")
tiledb.cf.from_netcdf(source, f"{folder}/single", collect_attrs=False)
with xarray.open_dataset(source, decode_cf=False) as dataset:
    dataset.encoding.clear()  # It would make dimensions of 2^32 cells.
    tiledb.cf.from_xarray(dataset[["rain", "y", "time"]], f"{folder}/xarray")
