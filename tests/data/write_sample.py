"""Writes the sample group with libtiledb: `python3 tests/data/write_sample.py [DIRECTORY]` (default: `sample` beside this file).

Values, timestamps and names of fields are always the same; the unique identifiers in file names are new each time.
"""

import shutil
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "oracle"))
from capi import VAR, Attr, Column, Dim, Enum, Lib, Pipeline, Schema  # noqa: E402

DAY = 86_400_000
START = 1_704_067_200_000  # 2024-01-01T00:00:00Z in milliseconds
DAYS, STATIONS = 365, 6
SKY = [b"clear", b"cloudy", b"rain", b"snow"]
NOTES = [b"", b"", b"gust 21 m/s", b"instrument replaced", "Temperaturfühler vereist".encode(), b"fog"]


def weather_schema():
    """Dense, days by stations, 73 x 3 cells a tile."""
    attrs = [
        Attr("temperature", "FLOAT32", pipeline=Pipeline([("BYTESHUFFLE", {}), ("ZSTD", {"level": 9})])),
        Attr("rain", "UINT16", nullable=True, pipeline=Pipeline([("BIT_WIDTH_REDUCTION", {"window": 256}), ("LZ4", {})])),
        Attr("wind", "FLOAT64", cvn=2, pipeline=Pipeline([("BITSHUFFLE", {}), ("GZIP", {"level": 6})])),
        Attr("measured", "DATETIME_MS", pipeline=Pipeline([("DOUBLE_DELTA", {}), ("CHECKSUM_SHA256", {})])),
        Attr("sky", "UINT8", enumeration="sky", pipeline=Pipeline([("RLE", {})])),
        Attr("note", "STRING_UTF8", VAR, True, Pipeline([("BZIP2", {"level": 9})])),
    ]
    dims = [
        Dim("day", "INT32", 1, DAYS, 73, Pipeline([("ZSTD", {})])),
        Dim("station", "INT32", 0, STATIONS - 1, 3, Pipeline([("ZSTD", {})])),
    ]
    offsets = Pipeline([("POSITIVE_DELTA", {"window": 1024}), ("ZSTD", {})])
    return Schema("dense", dims, attrs, offsets=offsets, enums=[Enum("sky", "STRING_ASCII", SKY)])


def weather_columns(first, last, seed):
    """Cells of the days `first` to `last` at all stations, in row-major order."""
    rng = np.random.default_rng(seed)
    day = np.repeat(np.arange(first, last + 1), STATIONS)
    station = np.tile(np.arange(STATIONS), last - first + 1)
    season = -np.cos(2 * np.pi * (day - 20) / 365)
    temperature = np.round(9 + 9 * season - 1.5 * station + rng.normal(0, 3, day.size), 1).astype("<f4")
    rain = (rng.gamma(0.4, 8, day.size) * 10).astype("<u2")
    sky = np.where(rain < 5, day % 7 // 4, np.where(temperature < 0, 3, 2)).astype("u1")
    notes = [NOTES[k] for k in rng.integers(0, len(NOTES), day.size)]
    wind = np.round(rng.rayleigh(4, (day.size, 2)), 2).astype("<f8")
    return {
        "temperature": Column(temperature),
        "rain": Column(rain, validity=(rng.random(day.size) > 0.1).astype("u1")),
        "wind": Column(wind),
        "measured": Column((START + DAY * (day - 1) + 43_200_000 + 60_000 * station).astype("<i8")),
        "sky": Column(sky),
        "note": Column.of_cells(notes, np.array([bool(n) for n in notes], "u1")),
    }


def write_weather(lib, uri):
    """The year, then a correction of eleven days at the end of February."""
    lib.create(uri, weather_schema(), timestamp=START)
    for first, last, timestamp in ((1, DAYS, START + 400 * DAY), (50, 60, START + 410 * DAY)):
        ranges = [np.array([first, last], "<i4"), np.array([0, STATIONS - 1], "<i4")]
        lib.write(uri, weather_columns(first, last, timestamp % 1000 + first), ranges=ranges, timestamp=timestamp)
    text = "Made-up weather of a year at six stations".encode()
    items = [("title", "STRING_UTF8", text), ("station_heights", "FLOAT32", [12, 105, 230, 341, 560, 1020])]
    lib.put_metadata(uri, items, timestamp=START + 401 * DAY)


def write_lightning(lib, uri):
    """Sparse, with float coordinates, a string dimension and Hilbert order."""
    fixed = Pipeline([("BYTESHUFFLE", {}), ("ZSTD", {})])
    dims = [
        Dim("lat", "FLOAT64", -90.0, 90.0, pipeline=fixed),
        Dim("lon", "FLOAT64", -180.0, 180.0, pipeline=fixed),
    ]
    attrs = [
        Attr("time", "DATETIME_NS", pipeline=Pipeline([("DOUBLE_DELTA", {}), ("ZSTD", {})])),
        Attr("current", "INT32", nullable=True, pipeline=Pipeline([("BIT_WIDTH_REDUCTION", {}), ("CHECKSUM_MD5", {})])),
        Attr("network", "STRING_ASCII", VAR, pipeline=Pipeline([("GZIP", {})])),
    ]
    schema = Schema("sparse", dims, attrs, cell_order="hilbert", capacity=200, dups=True)
    lib.create(uri, schema, timestamp=START)
    for part in range(2):
        rng = np.random.default_rng(part)
        n = 500
        columns = {
            "lat": Column(np.round(rng.uniform(45, 55, n), 4)),
            "lon": Column(np.round(rng.uniform(5, 15, n), 4)),
            "time": Column(np.sort(rng.integers(0, 30 * DAY, n)) * 1_000_000 + (START + 180 * DAY) * 1_000_000),
            "current": Column(rng.normal(0, 20_000, n).astype("<i4"), validity=(rng.random(n) > 0.05).astype("u1")),
            "network": Column.of_cells([(b"alpine", b"north", b"")[k] for k in rng.integers(0, 3, n)]),
        }
        lib.write(uri, columns, timestamp=START + (420 + part) * DAY)


def main():
    """Writes the group anew."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "sample"
    shutil.rmtree(target, ignore_errors=True)
    lib = Lib()
    lib.create_group(str(target))
    write_weather(lib, str(target / "weather"))
    write_lightning(lib, str(target / "lightning"))
    members = [("weather", True, "weather"), ("lightning", True, "lightning")]
    lib.change_group(str(target), add=members, timestamp=START + 430 * DAY)
    source = [("source", "STRING_UTF8", "tests/data/write_sample.py".encode())]
    lib.put_metadata(str(target), source, timestamp=START + 431 * DAY, kind="group")


if __name__ == "__main__":
    main()
