"""Compares a view in a mount with its expected content: columns byte for byte, `view.json`, and the schema, metadata and enumerations of its time."""

import io
import json
import os
from dataclasses import dataclass, field

import numpy as np

import names
from columns import npy_type


@dataclass
class ViewField:
    """One column of a view: raw little-endian bytes; var-sized ones with cells + 1 byte offsets, nullable ones with one byte per cell."""

    name: str
    kind: str
    """`dimension` or `attribute`."""
    type: str
    cvn: object
    nullable: bool
    shape: list
    """One number per axis of the view's cells; a dense view has each coordinate of an axis once."""
    data: bytes
    offsets: bytes | None = None
    validity: bytes | None = None


@dataclass
class ViewTruth:
    """The expected content of a view."""

    path: str
    """The path below the array."""
    time: list
    dense: bool
    order: str
    shape: list
    cells: int
    region: list | None
    fields: list
    complete: bool = True
    """Whether the view has no other fields."""
    facts: dict = field(default_factory=dict)
    """`schema`, `metadata`, `enumerations`: parts of the documents of that time."""


class Differs(Exception):
    """A view differs from its expected content."""


def same(what, got, want):
    """Fails unless both are equal."""
    if got != want:
        raise Differs(f"{what}: got {str(got)[:300]}, expected {str(want)[:300]}")


def contains(what, got, want):
    """Fails unless `got` has what `want` has; in objects it may have more."""
    if isinstance(want, dict) and isinstance(got, dict):
        for key, value in want.items():
            if key not in got:
                raise Differs(f"{what}: no {key!r}")
            contains(f"{what}.{key}", got[key], value)
    elif isinstance(want, list) and isinstance(got, list):
        same(f"length of {what}", len(got), len(want))
        for i, (a, b) in enumerate(zip(got, want)):
            contains(f"{what}[{i}]", a, b)
    else:
        same(what, got, want)


def read(path):
    """A whole file, whose size must be what `stat` says."""
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as f:
            raw = f.read()
    except OSError as error:
        raise Differs(f"{path}: {error}") from error
    same(f"size of {path}", size, len(raw))
    return raw


def load(path):
    """A JSON file."""
    try:
        return json.loads(read(path))
    except ValueError as error:
        raise Differs(f"{path}: {error}") from error


class ViewComparison:
    """Compares the views of one array. The documents of a time, which views share, are compared once."""

    def __init__(self, folder):
        self.folder = folder
        self.compared = set()
        self.files = 0

    def compare(self, view):
        """Raises `Differs` if the view differs from its expected content."""
        folder = os.path.join(self.folder, view.path)
        self._view_json(folder, view)
        self._columns(os.path.join(folder, "columns"), view)
        moment = view.path.split("data", 1)[0]
        if moment not in self.compared:
            self._documents(os.path.join(self.folder, moment), view.facts)
            self.compared.add(moment)

    def absent(self, path):
        """Fails if there is something at `path`."""
        try:
            os.lstat(os.path.join(self.folder, path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise Differs(f"{path}: {error}, and not that there is no such directory") from error
        raise Differs(f"{path}: is there")

    def _view_json(self, folder, view):
        got = load(os.path.join(folder, "view.json"))
        wanted = {"time_range": view.time, "dense": view.dense, "order": view.order, "shape": view.shape}
        wanted["cells"] = view.cells if view.cells < 1 << 64 else None
        wanted["fields"] = [
            {"name": f.name, "role": f.kind, "datatype": f.type, "cell_val_num": f.cvn, "nullable": f.nullable, "shape": f.shape}
            for f in view.fields
        ]
        if "/subarray/" not in view.path or view.dense and view.cells:
            wanted["region"] = view.region
        if not view.complete:
            known = {f.name for f in view.fields}
            got["fields"] = [f for f in got.get("fields", []) if f["name"] in known]
        contains("view.json", got, wanted)
        moment = os.path.join(self.folder, view.path.split("data", 1)[0])
        visible = [f["name"] for f in load(os.path.join(moment, "fragments.json")) if f["visible"]]
        same("fragments of view.json", got["fragments"], visible)

    def _columns(self, folder, view):
        directories = {names.encode(f.name) if f.name else self._anonymous(view, f): f for f in view.fields}
        if view.complete:
            same(f"list of {folder}", sorted(os.listdir(folder)), sorted(directories))
        for directory, one in directories.items():
            self._column(os.path.join(folder, directory), one)

    @staticmethod
    def _anonymous(view, one):
        return names.dimension("", view.fields.index(one)) if one.kind == "dimension" else names.attribute("")

    def _column(self, folder, one):
        parts = {"data": one.data, "offsets": one.offsets, "validity": one.validity}
        parts = {part: raw for part, raw in parts.items() if raw is not None}
        same(f"list of {folder}", sorted(os.listdir(folder)), sorted(p + e for p in parts for e in (".bin", ".npy")))
        # Offsets first: if they differ, the data differs for that reason.
        for part in sorted(parts, key=["offsets", "validity", "data"].index):
            raw = parts[part]
            plain = read(os.path.join(folder, part + ".bin"))
            if plain != raw:
                raise Differs(difference(os.path.join(folder, part + ".bin"), one, part, plain, raw))
            self._npy(os.path.join(folder, part + ".npy"), one, part, raw)
            self.files += 2

    @staticmethod
    def _npy(path, one, part, raw):
        dtype, shape = npy_header(one, part)
        got = read(path)
        stream = io.BytesIO(got)
        try:
            version = np.lib.format.read_magic(stream)
            header = np.lib.format.read_array_header_1_0(stream)
        except ValueError as error:
            raise Differs(f"{path}: {error}") from error
        same(f"header of {path}", (version, *header), ((1, 0), shape, False, dtype))
        same(f"size of the header of {path}", stream.tell() % 64, 0)
        if got[stream.tell() :] != raw:
            raise Differs(difference(path, one, part, got[stream.tell() :], raw))

    def _documents(self, folder, facts):
        for name in facts.keys() & {"schema", "metadata"}:
            got = load(os.path.join(folder, name + ".json"))
            contains(f"{folder}/{name}.json", got, facts[name])
            if name == "metadata":
                same(f"keys of {folder}/metadata.json", sorted(got), sorted(facts[name]))
        if "enumerations" in facts:
            where = os.path.join(folder, "enumerations")
            files = {names.encode(name) + ".json": values for name, values in facts["enumerations"].items()}
            same(f"list of {where}", sorted(os.listdir(where)) if files or os.path.isdir(where) else [], sorted(files))
            for name, values in files.items():
                same(f"{where}/{name}", load(os.path.join(where, name))["values"], values)


def npy_header(one, part):
    """The dtype and the shape of a `.npy` file."""
    shape = tuple(one.shape)
    if part == "offsets":
        return np.dtype("<u8"), (len(one.offsets) // 8,)
    if part == "validity":
        return np.dtype("u1"), shape
    dtype, values = npy_type(one.type, one.cvn)
    if one.cvn == "var":
        return dtype, (len(one.data) // dtype.itemsize,)
    return dtype, shape if values is None else (*shape, values)


def difference(path, one, part, got, want):
    """The first difference of two columns, in words."""
    if len(got) != len(want):
        return f"{path}: {len(got)} bytes, expected {len(want)}"
    a, b = np.frombuffer(got, "u1"), np.frombuffer(want, "u1")
    wrong = np.flatnonzero(a != b)
    byte = int(wrong[0])
    if part == "data" and one.cvn == "var":
        return f"{path}: {wrong.size} bytes of {a.size} differ, the first at {byte}: got {got[byte : byte + 32]!r}, expected {want[byte : byte + 32]!r}"
    cells = max(int(np.prod(one.shape)), 1) + (part == "offsets")
    size = max(len(want) // cells, 1)
    cell = byte // size
    first = got[cell * size : cell * size + size], want[cell * size : cell * size + size]
    count = np.unique(wrong // size).size
    return f"{path}: {count} cells of {cells} differ, the first is {cell}: got {first[0][:64].hex()}, expected {first[1][:64].hex()}"

