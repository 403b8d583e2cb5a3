"""The truth about an array: what libtiledb reads from each of its fragments, and what its API reports.

Each fragment is read on its own: a scratch array is made of exactly that fragment's folder (its bytes unchanged), the one
schema that it names and its commit file. So no other fragment, delete condition or time range interferes. The sidecars of a
family of arrays (`arrays/` and `expected/`) that were made in the same way load into the same classes.
"""

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field

import numpy as np

from capi import VAR, TileDBError, np_type
from facts import Facts, Raw

TIMESTAMPS = "__timestamps"
SCHEMA_FILE = "__array_schema.tdb"


@dataclass
class FieldTruth:
    """The cells of one attribute or dimension, in the order of `FragmentTruth.positions`."""

    name: str
    type: str
    cvn: object
    nullable: bool
    data: np.ndarray
    offsets: np.ndarray | None = None
    validity: np.ndarray | None = None

    def cell_size(self):
        """Bytes of a cell; None when var-sized."""
        return None if self.cvn == "var" else self.cvn * np_type(self.type).itemsize


@dataclass
class FragmentTruth:
    """One fragment. `positions[k]` is the place in the column files of cell `k`; None: the same place."""

    name: str
    facts: dict
    fields: dict = field(default_factory=dict)
    unreadable: dict = field(default_factory=dict)
    positions: np.ndarray | None = None
    tile_num: int = 0
    deletes: bool = False
    """Deleted cells are missing here; the fragment's delete timestamps give their positions."""
    moments: dict = field(default_factory=dict)
    """For fragments with delete timestamps: {open timestamp: the fields that libtiledb reads at that time}."""
    directory: str = ""


@dataclass
class ArrayTruth:
    """One array."""

    path: str
    schema: dict
    schemas: dict = field(default_factory=dict)
    fragments: list = field(default_factory=list)
    metadata: dict = field(default_factory=dict)
    enumerations: dict = field(default_factory=dict)


# -- geometry of dense fragments -----------------------------------------------------------------------------


def _number(raw):
    return np.frombuffer(raw.bytes, np_type(raw.type))[0].item()


def dense_positions(schema, box):
    """Where the cells of a dense fragment lie in its column files.

    `box` is the non-empty domain as [lo, hi] numbers by dimension. The files hold whole tiles, one after the other in tile order, each in cell
    order. Returns the place of every cell of the box, the box taken in row-major order; the number of cells in the files; the number of tiles.
    """
    tiles, extents, inside = [], [], []
    for dim, (lo, hi) in zip(schema["dimensions"], box):
        first, extent = _number(dim["domain"][0]), _extent(dim["tile_extent"])
        t_lo, t_hi = (lo - first) // extent, (hi - first) // extent
        start = lo - (first + t_lo * extent)
        tiles.append(t_hi - t_lo + 1)
        extents.append(extent)
        inside.append((start, start + hi - lo + 1))
    n = len(tiles)
    shape = [t * e for t, e in zip(tiles, extents)]
    grid = np.arange(int(np.prod(shape)), dtype="<i8")
    # `grid` numbers the places of the files; giving it the axes of tiles and cells in their orders, and
    # bringing those into the order of the dimensions, yields an array that is indexed by coordinate.
    tile_axes = list(range(n)) if schema["tile_order"] == "row-major" else list(range(n))[::-1]
    cell_axes = list(range(n)) if schema["cell_order"] == "row-major" else list(range(n))[::-1]
    grid = grid.reshape([tiles[a] for a in tile_axes] + [extents[a] for a in cell_axes])
    order = []
    for d in range(n):
        order += [tile_axes.index(d), n + cell_axes.index(d)]
    grid = grid.transpose(order).reshape(shape)
    return grid[tuple(slice(a, b) for a, b in inside)].reshape(-1), int(np.prod(shape)), int(np.prod(tiles))


def _extent(raw):
    """A tile extent, which is effectively unsigned."""
    return int.from_bytes(raw.bytes, "little")


# -- reading with libtiledb ----------------------------------------------------------------------------------


class Reader:
    """Makes truths with libtiledb. A context manager, for its scratch folder."""

    def __init__(self, lib, scratch=None):
        self.lib, self.facts = lib, Facts(lib)
        self.scratch = tempfile.mkdtemp(prefix="tiledbfs-truth-", dir=scratch)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def array(self, path, key=None, columns=True):
        """The truth about the array at `path`. With `columns` false, only the facts."""
        lib = self.lib
        array = lib.open(path, 0, key=key)
        try:
            schema = self.facts.schema(lib.get("tiledb_array_get_schema", array))
            truth = ArrayTruth(path, schema)
            truth.metadata = self.facts.metadata(array)
            truth.enumerations = self.facts.enumerations(array, schema)
        finally:
            lib.close(array)
        truth.schemas = self.schemas(path, key)
        for facts in self.facts.fragments(path, key):
            fragment = FragmentTruth(facts["name"], facts, directory=fragment_directory(path, facts))
            if columns:
                with self.scratch_array(path, fragment, key) as uri:
                    self.read_fragment(uri, fragment, key)
            truth.fragments.append(fragment)
        return truth

    def schemas(self, path, key=None):
        """{file name: schema} of every schema of an array, each loaded on its own."""
        out = {}
        for where in schema_files(path):
            with self.folder() as uri:
                self._take_schema(path, where, uri)
                self.lib.use(key)
                out[os.path.basename(where)] = self.facts.schema(self.lib.get("tiledb_array_schema_load", uri))
                self.lib.use()
        return out

    @contextlib.contextmanager
    def folder(self):
        """A scratch folder."""
        uri = tempfile.mkdtemp(dir=self.scratch)
        try:
            yield uri
        finally:
            shutil.rmtree(uri, ignore_errors=True)

    @contextlib.contextmanager
    def scratch_array(self, path, fragment, key=None):
        """An array with only this fragment."""
        facts = fragment.facts
        with self.folder() as uri:
            where = "__schema/" + facts["schema_name"] if facts["schema_name"] != SCHEMA_FILE else SCHEMA_FILE
            self._take_schema(path, where, uri)
            relative = os.path.relpath(fragment.directory, path)
            take(fragment.directory, os.path.join(uri, relative))
            if facts["format_version"] >= 12:
                os.makedirs(os.path.join(uri, "__commits"))
                open(os.path.join(uri, "__commits", facts["name"] + ".wrt"), "w").close()
            elif facts["format_version"] >= 5:
                open(os.path.join(uri, facts["name"] + ".ok"), "w").close()
            if has_file(fragment, "t.tdb", 14):
                self._allow_duplicates(uri, where, key)
            yield uri

    @staticmethod
    def _take_schema(path, where, uri):
        if where != SCHEMA_FILE:
            os.makedirs(os.path.join(uri, "__schema"), exist_ok=True)
        take(os.path.join(path, where), os.path.join(uri, where))
        for neighbour in ("__schema/__enumerations", "__labels"):
            if os.path.isdir(os.path.join(path, neighbour)):
                take(os.path.join(path, neighbour), os.path.join(uri, neighbour))

    def _allow_duplicates(self, uri, where, key):
        """Replaces the schema of a scratch array by one that allows duplicates, so that no cell is hidden."""
        self.lib.use(key)
        schema = self.lib.get("tiledb_array_schema_load", uri)
        self.lib.call("tiledb_array_schema_set_allows_dups", schema, 1)
        with self.folder() as other:
            self.lib.create(other, schema, key=key)
            made = [p for p in schema_files(other)]
            os.replace(os.path.join(other, made[0]), os.path.join(uri, where))

    def read_fragment(self, uri, fragment, key):
        """Fills in the columns of a fragment from its scratch array."""
        facts = fragment.facts
        array = self.lib.open(uri, 0, key=key)
        try:
            schema = self.facts.schema(self.lib.get("tiledb_array_get_schema", array))
            wanted = [(a["name"], a["datatype"], a["cell_val_num"], a["nullable"]) for a in schema["attributes"]]
            if facts["dense"]:
                box = [[_number(e) for e in ends] for ends in facts["non_empty_domain"]]
                fragment.positions, cells, fragment.tile_num = dense_positions(schema, box)
                assert cells == facts["cell_num"], (fragment.name, cells, facts["cell_num"])
                types = [np_type(d["datatype"]) for d in schema["dimensions"]]
                ranges = [np.array(ends, t) for ends, t in zip(box, types)]
                fragment.fields = self._read(array, fragment, wanted, "row-major", len(fragment.positions), ranges)
                return
            fragment.tile_num = len(facts["mbrs"])
            wanted += [(d["name"], d["datatype"], d["cell_val_num"], False) for d in schema["dimensions"]]
            if has_file(fragment, "t.tdb", 14):
                wanted.append((TIMESTAMPS, "UINT64", 1, False))
            fragment.deletes = has_file(fragment, "dt.tdb", 15)
            fragment.fields = self._read(array, fragment, wanted, "unordered", facts["cell_num"])
        finally:
            self.lib.close(array)
        if fragment.deletes:
            for moment in range(facts["timestamp_range"][0], facts["timestamp_range"][1] + 1):
                if len(fragment.moments) < 256:
                    fragment.moments[moment] = self._read_at(uri, fragment, wanted, moment, key)

    def _read_at(self, uri, fragment, wanted, moment, key):
        """What a reader of the scratch array sees at an earlier time."""
        array = self.lib.open(uri, 0, timestamp=moment, key=key)
        try:
            return self._read(array, fragment, wanted, "unordered", fragment.facts["cell_num"])
        finally:
            self.lib.close(array)

    def _read(self, array, fragment, wanted, layout, cells, ranges=None):
        """All fields at once; if that fails, one by one, so that an unreadable field does not affect the others."""
        fields = [(n, t, VAR if c == "var" else c, v) for n, t, c, v in wanted]
        try:
            columns = self.lib.read(array, fields, layout, ranges, cells)
        except TileDBError:
            columns = {}
            for one in fields:
                try:
                    columns |= self.lib.read(array, [one], layout, ranges, cells)
                except TileDBError as error:
                    fragment.unreadable[one[0]] = str(error)
        return {
            n: FieldTruth(n, t, c, v, columns[n].data, columns[n].offsets, columns[n].validity)
            for n, t, c, v in wanted
            if n in columns
        }


def take(source, target):
    """Copies a file or a folder, as hard links if the file system has them."""

    def link(a, b):
        try:
            os.link(a, b)
        except OSError:
            shutil.copyfile(a, b)

    if os.path.isdir(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copytree(source, target, copy_function=link)
    else:
        link(source, target)


def schema_files(path):
    """Paths of the schema files of an array, relative to it."""
    folder = os.path.join(path, "__schema")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = ["__schema/" + n for n in names if os.path.isfile(os.path.join(folder, n))]
    return ([SCHEMA_FILE] if os.path.isfile(os.path.join(path, SCHEMA_FILE)) else []) + found


def fragment_directory(path, facts):
    """The path of a fragment."""
    return os.path.join(path, "__fragments" if facts["format_version"] >= 12 else "", facts["name"])


def has_file(fragment, name, version):
    """Whether a fragment of this format version or later has a file."""
    return fragment.facts["format_version"] >= version and os.path.exists(os.path.join(fragment.directory, name))


# -- loading sidecars ----------------------------------------------------------------------------------------


def _load(path, default=None):
    if not os.path.exists(path):
        return default
    with open(path) as f:
        return json.load(f)


def load_sidecar(family, path):
    """The columns of the array `path` of a family as [FragmentTruth], from `expected/<path>.expected/`.

    Only names, columns and cells: facts come from the API in either case.
    """
    root = os.path.join(family, "expected", path + ".expected")
    info = _load(os.path.join(root, "fragments.json"), {"fragments": []})
    return [_load_fragment(os.path.join(root, f["sidecar"]), f) for f in info["fragments"]]


def _load_fragment(folder, facts):
    fragment = FragmentTruth(facts["name"], facts, deletes=bool(facts.get("sidecar_cells_differ")))
    described = _load(os.path.join(folder, "fields.json"), {"fields": []})
    mask = None
    if os.path.exists(os.path.join(folder, "mask.u8")):
        mask = np.fromfile(os.path.join(folder, "mask.u8"), "u1").astype(bool)
        fragment.positions = np.flatnonzero(mask)
    for entry in described["fields"]:
        base = os.path.join(folder, entry["file"])
        parts = [np.fromfile(base + e, t) if os.path.exists(base + e) else None
                 for e, t in ((".data", "u1"), (".offs", "<u8"), (".valid", "u1"))]
        one = FieldTruth(entry["name"], entry["type"], entry["cell_val_num"], bool(entry["nullable"]), *parts)
        fragment.fields[one.name] = one if mask is None else select(one, fragment.positions)
    return fragment


def lengths(offsets, size):
    """Byte lengths of var-sized cells from their offsets (none trailing) and the size of the data."""
    ends = np.append(offsets, np.uint64(size)).astype("<i8")
    return np.diff(ends)


def gather(data, starts, sizes):
    """The bytes of the cells that start at `starts` and have these sizes, one after the other."""
    total = int(sizes.sum())
    shift = np.repeat(starts.astype("<i8") - (np.cumsum(sizes) - sizes), sizes)
    return data[shift + np.arange(total)]


def select(column, cells):
    """The given cells of a `FieldTruth`."""
    validity = None if column.validity is None else column.validity[cells]
    if column.offsets is None:
        data = column.data.reshape(-1, column.cell_size())[cells].reshape(-1)
        return FieldTruth(column.name, column.type, column.cvn, column.nullable, data, None, validity)
    sizes = lengths(column.offsets, column.data.size)[cells]
    data = gather(column.data, column.offsets[cells], sizes)
    offsets = (np.cumsum(sizes) - sizes).astype("<u8")
    return FieldTruth(column.name, column.type, column.cvn, column.nullable, data, offsets, validity)
