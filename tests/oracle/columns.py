"""Compares the column files of one fragment with its truth, cell by cell, and with each other."""

import hashlib
import os

import numpy as np

import names
from capi import np_type
from truth import gather, lengths

UNITS = {"YEAR": "Y", "MONTH": "M", "WEEK": "W", "DAY": "D", "HR": "h", "MIN": "m", "SEC": "s", "MS": "ms", "US": "us", "NS": "ns", "PS": "ps", "FS": "fs", "AS": "as"}
NEVER = np.uint64(2**64 - 1)
MOST_TILES = 64
"""The most tiles of one column whose own files are read: of more, some at the start, in the middle and at the end."""


def npy_type(datatype, cvn):
    """The expected NumPy type of a `data.npy` and its values per cell (None: one dimension)."""
    one = 1 if cvn == "var" else cvn
    if datatype in ("CHAR", "STRING_ASCII", "STRING_UTF8", "GEOM_WKT"):
        return np.dtype(f"S{one}"), None
    if datatype in ("STRING_UTF32", "STRING_UCS4"):
        return np.dtype(f"<U{one}"), None
    if datatype.startswith(("DATETIME_", "TIME_")):
        kind, unit = datatype.split("_")
        dtype = np.dtype(f"<{'M' if kind == 'DATETIME' else 'm'}8[{UNITS[unit]}]")
    else:
        dtype = np.dtype(bool) if datatype == "BOOL" else np_type(datatype)
    return dtype, None if one == 1 else one


class FieldFiles:
    """The files of one column, read whole."""

    def __init__(self, folder, report):
        self.folder, self.report = folder, report
        self.data = self.read("data.bin")
        self.offsets = self.read("offsets.bin", "<u8")
        self.validity = self.read("validity.bin")

    def read(self, name, dtype="u1"):
        """The content of a file, None if there is none; its size must be what `stat` says."""
        path = os.path.join(self.folder, name)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return None
        with open(path, "rb") as f:
            raw = f.read()
        self.report.equal(f"{path} stat size", len(raw), size)
        self.report.read[path] = hashlib.sha256(raw).hexdigest()
        return np.frombuffer(raw[: len(raw) // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize], dtype)


class Columns:
    """Compares all columns of one fragment."""

    def __init__(self, folder, fragment, label, report):
        self.folder, self.fragment, self.label, self.report = folder, fragment, label, report
        self.cells = fragment.facts["cell_num"]
        self.positions = fragment.positions
        if fragment.deletes:
            alive = FieldFiles(os.path.join(folder, "__delete_timestamps"), report)
            self.positions = np.flatnonzero(alive.data.view("<u8") == NEVER)

    def field(self, directory, truth):
        """Compares one column; returns the number of cells."""
        where = f"{self.label} field {truth.name!r}"
        files = FieldFiles(os.path.join(self.folder, directory), self.report)
        if files.data is None:
            return self.report.fail(f"{where}: no data.bin")
        self._shape(where, files, truth)
        if not self._validity(where, files, truth) or not self._values(where, files, truth):
            return None
        self._npy(where, files, truth.type, truth.cvn)
        self._tiles(where, files)
        return None

    def internal(self, directory, datatype="UINT64", cvn=1):
        """Checks the files of a column without a truth against each other; returns its values."""
        where = f"{self.label} field {directory!r}"
        files = FieldFiles(os.path.join(self.folder, directory), self.report)
        if files.data is None:
            return self.report.fail(f"{where}: no data.bin")
        self._npy(where, files, datatype, cvn)
        self._tiles(where, files)
        return files.data.view(np_type(datatype))

    def _shape(self, where, files, truth):
        """The expected files, and their sizes."""
        self.report.equal(f"{where} has offsets.bin", files.offsets is not None, truth.cvn == "var")
        self.report.equal(f"{where} has validity.bin", files.validity is not None, truth.nullable)
        if truth.cvn != "var":
            self.report.equal(f"{where} size of data.bin", files.data.size, self.cells * truth.cell_size())
        elif files.offsets is not None:
            self.report.equal(f"{where} number of offsets", files.offsets.size, self.cells + 1)
            self.report.equal(f"{where} last offset", int(files.offsets[-1]), files.data.size)
            self.report.equal(f"{where} first offset", int(files.offsets[0]), 0)
            self.report.true(f"{where} offsets never fall", bool(np.all(files.offsets[1:] >= files.offsets[:-1])))
        if files.validity is not None:
            self.report.equal(f"{where} size of validity.bin", files.validity.size, self.cells)

    def _place(self, k):
        """The position in the files of cell `k` of the truth."""
        return int(k if self.positions is None else self.positions[k])

    def _differ(self, where, k, got, want):
        self.report.fail(f"{where} cell {self._place(k)}: got {got!r}, libtiledb reads {want!r}")
        return False

    def _validity(self, where, files, truth):
        if truth.validity is None or files.validity is None:
            return True
        got = files.validity if self.positions is None else files.validity[self.positions]
        if got.size != truth.validity.size:
            return self.report.fail(f"{where}: {got.size} validity bytes, libtiledb reads {truth.validity.size}")
        wrong = np.flatnonzero((got != 0) != (truth.validity != 0))
        return True if not wrong.size else self._differ(f"{where} validity", wrong[0], int(got[wrong[0]]), int(truth.validity[wrong[0]]))

    def _values(self, where, files, truth):
        """Value bytes; also those under a null, because libtiledb returns them as stored."""
        if truth.cvn == "var":
            return self._var(where, files, truth)
        size = truth.cell_size()
        if files.data.size != self.cells * size:
            return False
        got = files.data.reshape(-1, size)
        got = got if self.positions is None else got[self.positions]
        want = truth.data.reshape(-1, size)
        if got.shape != want.shape:
            return self.report.fail(f"{where}: {len(got)} cells, libtiledb reads {len(want)}")
        if np.array_equal(got, want):
            return True
        k = int(np.flatnonzero((got != want).any(axis=1))[0])
        return self._differ(where, k, got[k].tobytes(), want[k].tobytes())

    def _var(self, where, files, truth):
        if files.offsets is None or files.offsets.size != self.cells + 1 or files.offsets[-1] != files.data.size:
            return False
        sizes = np.diff(files.offsets.astype("<i8"))
        starts = files.offsets[:-1]
        if self.positions is not None:
            sizes, starts = sizes[self.positions], starts[self.positions]
        wanted = lengths(truth.offsets, truth.data.size)
        if sizes.size != wanted.size:
            return self.report.fail(f"{where}: {sizes.size} cells, libtiledb reads {wanted.size}")
        wrong = np.flatnonzero(sizes != wanted)
        if not wrong.size:
            got = files.data if self.positions is None else gather(files.data, starts, sizes)
            if np.array_equal(got, truth.data):
                return True
            byte = int(np.flatnonzero(got != truth.data)[0])
            wrong = [int(np.searchsorted(truth.offsets, byte, "right")) - 1]
        k = int(wrong[0])
        start, end = int(starts[k]), int(starts[k] + sizes[k])
        begin = int(truth.offsets[k])
        return self._differ(where, k, files.data[start:end].tobytes()[:200], truth.data[begin : begin + int(wanted[k])].tobytes()[:200])

    def _npy(self, where, files, datatype, cvn):
        """The `.npy` files, loaded like users do."""
        dtype, values = npy_type(datatype, cvn)
        self._one_npy(f"{where} data.npy", files, "data", files.data, dtype, values)
        if files.offsets is not None:
            self._one_npy(f"{where} offsets.npy", files, "offsets", files.offsets, np.dtype("<u8"), None)
        if files.validity is not None:
            self._one_npy(f"{where} validity.npy", files, "validity", files.validity, np.dtype("u1"), None)

    def _one_npy(self, where, files, name, plain, dtype, values):
        path = os.path.join(files.folder, name + ".npy")
        array = np.load(path) if not plain.size else np.load(path, mmap_mode="r")
        self.report.equal(f"{where} dtype", array.dtype, dtype)
        count = plain.nbytes // dtype.itemsize
        self.report.equal(f"{where} shape", array.shape, (count,) if values is None else (count // values, values))
        self.report.true(f"{where} values", array.tobytes() == plain.tobytes())
        header = os.stat(path).st_size - plain.nbytes
        self.report.true(f"{where} header of {header} bytes", header > 0 and header % 64 == 0)

    def _tiles(self, where, files):
        """The files of the tiles, concatenated, against the column."""
        folder = os.path.join(files.folder, "tiles")
        found = {}
        for name in os.listdir(folder):
            number, part, ending = name.split(".")
            self.report.equal(f"{where} tiles/{name}", ending, "bin")
            found.setdefault(part, set()).add(int(number))
        parts = ["data"] + ["offsets"] * (files.offsets is not None) + ["validity"] * (files.validity is not None)
        self.report.equal(f"{where} kinds of tile files", sorted(found), sorted(parts) if self.fragment.tile_num else [])
        for part in found:
            self.report.equal(f"{where} tiles of {part}", found[part], set(range(self.fragment.tile_num)))
        if set(found) == set(parts):
            self._tile_bytes(where, files, folder, parts)

    def _tile_bytes(self, where, files, folder, parts):
        count = self.fragment.tile_num
        some = range(count) if count <= MOST_TILES else [*range(20), *range(count // 2, count // 2 + 20), *range(count - 20, count)]
        at = dict.fromkeys(parts, 0)
        for tile in range(count):
            sizes = {p: os.stat(os.path.join(folder, f"{tile}.{p}.bin")).st_size for p in parts}
            if tile in some:
                for part in parts:
                    self._tile(where, files, folder, tile, part, at)
            for part in parts:
                at[part] += sizes[part]
        self.report.equal(f"{where} bytes in tiles of data", at["data"], files.data.size)
        if "offsets" in parts:
            self.report.equal(f"{where} bytes in tiles of offsets", at["offsets"], 8 * self.cells)

    def _tile(self, where, files, folder, tile, part, at):
        with open(os.path.join(folder, f"{tile}.{part}.bin"), "rb") as f:
            raw = f.read()
        start = at[part]
        if part == "offsets":
            shifted = np.frombuffer(raw, "<u8") + np.uint64(at["data"])
            same = np.array_equal(shifted, files.offsets[start // 8 : start // 8 + shifted.size])
        else:
            same = raw == getattr(files, part)[start : start + len(raw)].tobytes()
        self.report.true(f"{where} tiles/{tile}.{part}.bin is part of the column", same)


def check_moments(columns, fragment, report):
    """Delete timestamps: at every time, exactly the cells that libtiledb still shows are those written by then and not yet deleted."""
    written = columns.internal("__timestamps") if fragment.moments else None
    deleted = columns.internal("__delete_timestamps")
    index = columns.internal("__delete_condition_index")
    if deleted is None or index is None:
        return
    report.true(f"{columns.label}: a condition index for each deleted cell and no other", bool(np.array_equal(deleted == NEVER, index == NEVER)))
    for moment, fields in fragment.moments.items():
        alive = np.flatnonzero((written <= moment) & (deleted > moment))
        for name, truth in fields.items():
            if truth.cvn == "var" or name.startswith("__"):
                continue
            path = os.path.join(columns.folder, names.attribute(name), "data.bin")
            with open(path, "rb") as f:
                got = np.frombuffer(f.read(), "u1").reshape(-1, truth.cell_size())[alive]
            report.true(f"{columns.label} field {name!r} at time {moment}", np.array_equal(got.reshape(-1), truth.data))
