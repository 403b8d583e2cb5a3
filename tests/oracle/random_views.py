"""Hunts for wrong views with random arrays: `python3 random_views.py --seed N --count N [--keep FOLDER]`.

Schemas and lives are those of `random_schemas.py` and `random_lives.py`, with back-dated writes, attributes that come back, and conditions of
membership besides. Each array is written in a process of its own, because libtiledb may crash on what it is given. Then a mount of a batch is
compared with what libtiledb reads at random times and in random parts. Where libtiledb refuses to read, the mount's columns must be errors
too. Ranges of strings are applied to libtiledb's answer here: it answers them wrongly itself.

`--only I` writes and compares array `I` alone and prints its life. The last line is `N passed, N failed`, counting views.
"""

import argparse
import concurrent.futures
import copy
import errno
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from capi import VAR, Column, TileDBError, library_path, np_type
from columns import UNITS
from compare import ArrayComparison, Report
from facts import Facts, json_value
from mount import mounted
from random_arrays import KEY, PiecesLib, apart, secret
from random_lives import Life
from random_schemas import WORDS, Draw
from truth import ArrayTruth, gather, lengths
from view_files import Differs, ViewComparison, ViewField, ViewTruth, same

BATCH = 40
MOST_CELLS = 40_000
"""The most cells of a dense view to compare."""
BASE = 1_700_000_000_000
UNEVALUABLE = r"QueryCondition\] Error: (Field doesn't exist|.*size mismatch)"
"""libtiledb's message about a delete condition on a field that the schema lacks, or has with values of another size."""


# -- lives ---------------------------------------------------------------------------------------------------


class ViewLife(Life):
    """A life with more steps that are difficult for views."""

    def __init__(self, *args):
        super().__init__(*args)
        self.base, self.stamps, self.history, self.gone = BASE, set(), [], {}
        self.ties = self.d.chance(0.3)

    def now(self):
        """The next timestamp, an earlier one now and then. Only some lives have stamps that come twice, and none without duplicates, where libtiledb
        loses cells of equal times."""
        d = self.d
        self.time += d.choice([0, 1, 1, 2, 5, 40])
        when = self.base + (d.randint(10, self.time) if d.chance(0.2) else self.time)
        ties = self.ties and (self.schema.kind == "dense" or self.schema.dups)
        while when in self.stamps and not ties:
            when += 1
        self.time = max(self.time, when - self.base)
        self.stamps.add(when)
        return when

    def remember(self):
        """Notes the attributes from now on."""
        self.history.append((self.base + self.time, list(self.schema.attrs), self.schema.current_domain))

    def taken(self):
        """Names that new attributes may not have: a name never returns with another type."""
        return super().taken() | set(self.style)

    def write(self):
        """Writes a fragment with the attributes of its time."""
        when, now = self.now(), copy.copy(self.schema)
        then = [h for h in self.history if h[0] <= when] or self.history[:1]
        self.schema.attrs, self.schema.current_domain = then[-1][1:]
        try:
            if self.schema.kind == "dense":
                self.write_box(when)
            else:
                self.write_cells(when)
        finally:
            self.schema.attrs, self.schema.current_domain = now.attrs, now.current_domain

    def evolve(self):
        """Evolves the schema, or takes a dropped attribute back: with another fill value, or var-sized instead of fixed-size."""
        before = {a.name: a for a in self.schema.attrs}
        back = [name for name in self.gone if name not in before]
        if back and self.d.chance(0.6):
            self.come_back(self.d.choice(back))
        else:
            super().evolve()
        names = {a.name for a in self.schema.attrs}
        self.gone |= {name: a for name, a in before.items() if name not in names}
        self.remember()

    def consolidation(self):
        """Leaves out what gives fragments of equal stamps an order of its own: libtiledb takes those with consolidated commits first, and sorts more than
        16 in any order."""
        chosen = super().consolidation()
        if chosen and self.schema.dups:
            chosen[1].pop("sm__consolidation__max_fragment_size", None)
        return None if chosen and self.ties and chosen[0] == "commits" else chosen

    def come_back(self, name):
        """Takes a dropped attribute back."""
        attr = copy.copy(self.gone[name])
        if self.d.chance(0.4) and attr.type not in ("ANY",):
            attr.fill = self.d.values.bytes(np_type(attr.type).itemsize * (1 if attr.cvn == VAR else attr.cvn))
        elif self.d.chance(0.2) and attr.cvn != VAR and attr.enumeration is None and not attr.pipeline:
            attr.cvn, attr.fill = VAR, None
        self.time += 1
        with self.trying(f"take back {attr} at {self.base + self.time}"):
            self.lib.evolve(self.uri, self.base + self.time, [attr])
            self.schema.attrs = [*self.schema.attrs, attr]

    def comparison(self, fields):
        """A condition on one field, sometimes one of membership."""
        name, op, value = super().comparison(fields)
        if self.d.chance(0.2):
            return self.d.choice(["in", "not_in"]), name, [value, *(super(ViewLife, self).comparison([f for f in fields if f[0] == name])[2] for _ in range(2))]
        return name, op, value

    def live(self):
        """Creates the array and lets it live."""
        d = self.d
        self.create()
        self.remember()
        self.write()
        steps = [self.write] * 8 + [self.metadata, self.consolidate, self.consolidate, self.delete, self.delete, self.evolve, self.evolve, self.rewrite]
        for _ in range(d.choice([1, 2, 4, 6, 9, 14])):
            d.choice(steps)()


def write(uri, seed, index):
    """Writes one array; its life."""
    lib, draw = PiecesLib(library_path()), Draw(seed, index)
    life = ViewLife(lib, uri, draw, lib.release, KEY if secret(draw, lib.release) else None)
    try:
        life.live()
    finally:
        life.log.append("encrypted" if life.key else "plain")
    for fragments in (Path(uri, "__fragments"),):
        for folder in fragments.iterdir() if fragments.is_dir() else ():
            if not (folder / "__fragment_metadata.tdb").exists():
                shutil.rmtree(folder)  # libtiledb refused the cells half-way
    return life.log


# -- reading with libtiledb ----------------------------------------------------------------------------------


class ViewLib(PiecesLib):
    """`Lib` with reads that leave dimensions open."""

    def _set_ranges(self, array, query, ranges):
        subarray = self.get("tiledb_subarray_alloc", array)
        for i, ends in enumerate(ranges):
            if ends is not None:
                self.call("tiledb_subarray_add_range", subarray, i, ends[:1].copy(), ends[1:].copy(), None)
        self.call("tiledb_query_set_subarray_t", query, subarray)

    def read_some(self, array, needed, wanted, layout, ranges, cells=1 << 16):
        """Reads fields of an open array. If all of `wanted` fail together, reads those that can be read alone."""
        try:
            return self.read(array, needed + wanted, layout, ranges, cells)
        except TileDBError:
            columns = self.read(array, needed, layout, ranges, cells) if needed else {}
        errors = []
        for one in wanted:
            try:
                columns |= self.read(array, [one], layout, ranges, cells)
            except TileDBError as error:
                errors.append(error)
        if errors and not columns:
            raise errors[0]
        return columns

    def covered(self, array, index, datatype):
        """The non-empty domain of an open array along a dimension; None if nothing is visible."""
        ends, empty = np.zeros(2, np_type(datatype)), np.zeros(1, "<i4")
        self.call("tiledb_array_get_non_empty_domain_from_index", array, index, ends, empty)
        return None if empty[0] else [end.item() for end in ends]


class Moment:
    """An array opened by libtiledb in a range of time."""

    def __init__(self, lib, uri, key, times):
        self.lib, self.times = lib, times
        self.array = lib.open(uri, 0, times[1], key, times[0])
        facts = Facts(lib)
        self.schema = facts.schema(lib.get("tiledb_array_get_schema", self.array))
        self.dims, self.attrs = self.schema["dimensions"], self.schema["attributes"]
        self.dense = self.schema["array_type"] == "dense"
        self.documents = ArrayTruth(uri, self.schema, metadata=facts.metadata(self.array), enumerations=facts.enumerations(self.array, self.schema))
        current = self.schema["current_domain"] or [None] * len(self.dims)
        self.bounds = [_numbers(c or d["domain"], d["datatype"]) for c, d in zip(current, self.dims)]
        self.region = None
        if self.dense:
            covered = [lib.covered(self.array, i, d["datatype"]) for i, d in enumerate(self.dims)]
            if None not in covered:
                self.region = [[max(a, c), min(b, d)] for (a, b), (c, d) in zip(covered, self.bounds)]

    def close(self):
        """Closes the array."""
        self.lib.close(self.array)

    def fields(self):
        """All fields, as arguments of `Lib.read`."""
        dims = [(d["name"], d["datatype"], VAR if d["cell_val_num"] == "var" else 1, False) for d in self.dims]
        attrs = [(a["name"], a["datatype"], VAR if a["cell_val_num"] == "var" else a["cell_val_num"], a["nullable"]) for a in self.attrs]
        return dims, attrs

    def dense_view(self, path, box):
        """A box, or all that is covered; None among the ranges marks an empty box."""
        box = box or self.region or [None] * len(self.dims)
        shape = [0 if ends is None else ends[1] - ends[0] + 1 for ends in box]
        cells = int(np.prod(shape, dtype=object))
        truth = ViewTruth(path, self.times, True, "row-major", shape, cells, None if None in box else box, [])
        if max(cells, *shape) > MOST_CELLS:
            truth.complete = False
            return truth
        dims, attrs = self.fields()
        types = [np_type(d["datatype"]) for d in self.dims]
        if cells:
            ranges = [np.array(ends, t) for ends, t in zip(box, types)]
            columns = self.lib.read_some(self.array, [], attrs, "row-major", ranges, cells)
        else:
            columns = {name: _nothing(cvn, nullable) for name, _, cvn, nullable in attrs}
        for i, (one, ends, datatype) in enumerate(zip(dims, box, types)):
            axis = [] if ends is None else range(ends[0], ends[1] + 1)
            truth.fields.append(_field(one, "dimension", Column(np.array(axis, datatype)), [shape[i]]))
        truth.fields += [_field(one, "attribute", columns[one[0]], shape) for one in attrs if one[0] in columns]
        truth.complete = len(columns) == len(attrs)
        return truth

    def sparse_view(self, path, picks):
        """All cells, or those in the ranges, where None leaves a dimension open."""
        dims, attrs = self.fields()
        ranges = None
        if picks:
            ranges = [None if d["cell_val_num"] == "var" or p is None else np.array(p, np_type(d["datatype"])) for d, p in zip(self.dims, picks)]
        columns = self.lib.read_some(self.array, dims, attrs, "global-order", ranges)
        complete, attrs = attrs, [one for one in attrs if one[0] in columns]
        count = _count(dims[0], columns[dims[0][0]])
        for dim, pick in zip(self.dims, picks or [None] * len(dims)):
            if dim["cell_val_num"] == "var" and pick is not None:
                keep = np.flatnonzero([(pick[0] is None or pick[0] <= cell) and (pick[1] is None or cell <= pick[1]) for cell in _cells(columns[dim["name"]])])
                columns = {one[0]: _select(one, columns[one[0]], keep) for one in dims + attrs}
                count = keep.size
        fields = [_field(one, "dimension", columns[one[0]], [count]) for one in dims]
        fields += [_field(one, "attribute", columns[one[0]], [count]) for one in attrs]
        order = "hilbert" if self.schema["cell_order"] == "hilbert" else "global"
        return ViewTruth(path, self.times, False, order, [count], count, None, fields, complete == attrs)


def _numbers(ends, datatype):
    """[lo, hi] of a domain as numbers or byte strings; None if there is none."""
    if ends is None or datatype == "STRING_ASCII":
        return ends and [end.bytes for end in ends]
    return [np.frombuffer(end.bytes, np_type(datatype))[0].item() for end in ends]


def _nothing(cvn, nullable):
    return Column(np.zeros(0, "u1"), np.zeros(0, "<u8") if cvn == VAR else None, np.zeros(0, "u1") if nullable else None)


def _count(one, column):
    return column.offsets.size if one[2] == VAR else column.data.nbytes // (one[2] * np_type(one[1]).itemsize)


def _cells(column):
    ends = [*column.offsets.tolist()[1:], column.data.size]
    raw = column.data.tobytes()
    return [raw[a:b] for a, b in zip(column.offsets.tolist(), ends)]


def _select(one, column, keep):
    """The cells of a column at the positions `keep`."""
    validity = None if column.validity is None else column.validity[keep]
    if one[2] != VAR:
        size = one[2] * np_type(one[1]).itemsize
        return Column(column.data.view("u1").reshape(-1, size)[keep].reshape(-1), None, validity)
    sizes = lengths(column.offsets, column.data.size)[keep]
    return Column(gather(column.data.view("u1"), column.offsets[keep], sizes), (np.cumsum(sizes) - sizes).astype("<u8"), validity)


def _field(one, kind, column, shape):
    name, datatype, cvn, nullable = one
    offsets = None if cvn != VAR else np.append(column.offsets, np.uint64(column.data.nbytes)).astype("<u8").tobytes()
    validity = None if column.validity is None else column.validity.tobytes()
    return ViewField(name, kind, datatype, "var" if cvn == VAR else cvn, nullable, shape, column.data.tobytes(), offsets, validity)


# -- paths ---------------------------------------------------------------------------------------------------


def time_text(d, when):
    """One of the spellings of an instant."""
    ms = str(np.datetime64(when, "ms"))
    return d.choice([str(when), ms + "Z", ms, ms.replace(":", "") + "Z", ms.replace("T", "t") + "z", ms + "+00:00"])


def encoded(raw):
    """Any bytes as part of the name of a subarray."""
    return "".join(chr(b) if 0x20 < b < 0x7F and chr(b) not in ",:=%./" else f"%{b:02X}" for b in raw)


def bound_text(d, dim, value):
    """One of the spellings of a coordinate."""
    if isinstance(value, bytes):
        return encoded(value)
    if dim["datatype"].startswith("FLOAT"):
        return str(np_type(dim["datatype"]).type(value))
    if dim["datatype"].startswith("DATETIME_") and d.chance(0.5):
        text = str(np.datetime64(value, UNITS[dim["datatype"][9:]]))
        if re.fullmatch(r"\d{4}(-\d\d(-.*)?)?", text):
            return text
    year = dim["datatype"].startswith("DATETIME_") and 1000 <= value <= 9999
    return d.choice(["+" if year else "", "+"]) * (value >= 0) + str(value)


def subarray_text(d, dims, picks):
    """The name of a subarray; `picks` has [lo, hi] per dimension, with None for an open end."""
    texts = []
    for dim, (lo, hi) in zip(dims, picks):
        low, high = ("" if end is None else bound_text(d, dim, end) for end in (lo, hi))
        lone = lo is None and hi is None or lo == hi and d.chance(0.5)
        texts.append(low if lone else f"{low}..{high}")
    if not d.chance(0.3):
        return ",".join(texts)
    named = [f"{encoded(dim['name'].encode()) if dim['name'] else f'__dim_{i}'}{d.choice(':=')}{text}" for i, (dim, text) in enumerate(zip(dims, texts)) if text]
    d.shuffle(named)
    return ",".join(named)


def between(d, lo, hi, near):
    """A number between two, often near one of some others."""
    if isinstance(lo, float):
        inside = [x for x in near if lo <= x <= hi]
        return d.choice([lo, hi, *inside[:20]])
    value = d.choice([lo, hi, d.randint(lo, hi), *near]) + d.choice([0, 0, 1, -1])
    return min(max(value, lo), hi)


# -- comparing -----------------------------------------------------------------------------------------------


class ArrayHunt:
    """Compares one array at random times and in random parts."""

    def __init__(self, d, uri, shown, key, views):
        self.d, self.uri, self.shown, self.key, self.views = d, uri, shown, key, views
        self.lib = ViewLib(library_path())
        self.passed, self.unread, self.failures = 0, 0, []
        self.comparison = ViewComparison(shown)

    def run(self):
        """Compares all views."""
        stamps = sorted({int(t) for at, folders, files in os.walk(self.uri) for n in folders + files for t in re.findall(rf"(?<=_){BASE // 10**9}\d{{9}}(?=_)", n)})
        for times in [(None, None), *(self.times(stamps) for _ in range(self.views))]:
            self.moment(list(times))
        return self.passed, self.unread, self.comparison.files, self.failures

    def times(self, stamps):
        """A range of time."""
        d = self.d
        one = lambda: d.choice(stamps) + d.choice([0, 0, 0, -1, 1])  # noqa: E731
        if d.chance(0.6):
            return None, one()
        start, end = one(), one()
        return (start, end) if start <= end or d.chance(0.1) else (end, start)

    def moment(self, times):
        """`data` at one time, and parts of it."""
        d, (start, end) = self.d, times
        if start is None and end is None:
            path = "data"
        else:
            path = f"at/{'' if start is None else time_text(d, start) + '..'}{time_text(d, end)}/data"
        try:
            moment = Moment(self.lib, self.uri, self.key, times)
        except TileDBError as error:
            self.failures.append(f"{path}: libtiledb does not open the array: {error}")
            return
        try:
            self.check(path, self.documents, moment, path[: -len("data")])
            self.check(path, self.view, moment, path, None)
            for _ in range(d.choice([0, 1, 2])):
                picks = self.picks(moment)
                text = subarray_text(d, moment.dims, picks)
                if text not in ("", ".", "..") and len(text) <= 1024:
                    self.check(f"{path}/subarray/{text}", self.view, moment, f"{path}/subarray/{text}", picks)
            for text in self.outside(moment):
                self.check(f"{path}/subarray/{text}", self.comparison.absent, f"{path}/subarray/{text}")
        finally:
            moment.close()

    def check(self, label, function, *args):
        """Counts one comparison."""
        try:
            function(*args)
            self.passed += 1
        except Differs as error:
            self.failures.append(f"{label}: {error}")

    def documents(self, moment, prefix):
        """Compares schema, metadata and enumerations of that time."""
        report = Report(0)
        comparison = ArrayComparison(Path(self.shown, prefix), moment.documents, prefix, report)
        got = comparison.json("schema.json")
        if got is not None:
            comparison.schema(f"{prefix}schema.json", got, moment.schema)
        comparison.metadata()
        comparison.enumerations()
        if report.failures:
            raise Differs("; ".join(report.failures[:5]))

    def truth(self, moment, path, picks):
        """What libtiledb has in one view."""
        if moment.dense:
            return moment.dense_view(path, picks and self.box(moment, picks))
        return moment.sparse_view(path, picks and [None if p == [None, None] else self.closed(p, b) for p, b in zip(picks, moment.bounds)])

    def view(self, moment, path, picks):
        """One view."""
        try:
            truth = self.truth(moment, path, picks)
        except TileDBError as error:
            self.refused(path, error)
            return
        self.unread += not truth.complete and bool(truth.fields)
        self.comparison.compare(truth)

    def refused(self, path, error):
        """If a condition cannot be evaluated, columns must be errors. Other failures of libtiledb are its own faults."""
        self.unread += 1
        if not re.search(UNEVALUABLE, str(error)):
            return
        folder = Path(self.shown, path, "columns")
        for column in sorted(folder.iterdir()):
            try:
                (column / "data.bin").read_bytes()
            except OSError as found:
                same(f"errno of {column}/data.bin", errno.errorcode[found.errno], "EIO")
                continue
            raise Differs(f"{column}/data.bin can be read, and libtiledb says: {error}")

    @staticmethod
    def closed(pick, bounds):
        """The range for libtiledb: open bounds become those of the domain."""
        if bounds is None or isinstance(bounds[0], bytes):
            return pick
        return [b if end is None else end for end, b in zip(pick, bounds)]

    @staticmethod
    def box(moment, picks):
        """The box of a dense view: open bounds become those of its region. None for an axis without coordinates."""
        box = []
        for (lo, hi), region in zip(picks, moment.region or [None] * len(picks)):
            if region is None:
                box.append([lo, hi] if lo is not None and hi is not None else None)
                continue
            lo, hi = region[0] if lo is None else lo, region[1] if hi is None else hi
            box.append([lo, hi] if lo <= hi else None)
        return box

    def picks(self, moment):
        """A range per dimension, sometimes with open bounds."""
        d, out = self.d, []
        for i, (dim, bounds) in enumerate(zip(moment.dims, moment.bounds)):
            if dim["cell_val_num"] == "var":
                words = [w for w in WORDS if w and (bounds is None or bounds[0] <= w <= bounds[1])]
                ends = sorted([d.choice(words), d.choice(words)]) if words else [None, None]
            else:
                near = self.near(moment, i, dim)
                ends = sorted(between(d, *bounds, near) for _ in range(2))
                if moment.dense and ends[1] - ends[0] > 30:
                    ends[1] = ends[0] + d.randint(0, 30)
            if d.chance(0.15):
                ends = [None, None]
            elif d.chance(0.2):
                ends[d.randint(0, 1)] = None
            out.append(ends)
        return out

    def near(self, moment, i, dim):
        """Existing coordinates."""
        if moment.dense:
            return moment.region[i] if moment.region else []
        if not hasattr(moment, "coordinates"):
            try:
                moment.coordinates = self.lib.read(moment.array, moment.fields()[0], "global-order")
            except TileDBError:
                moment.coordinates = {}
        if dim["name"] not in moment.coordinates:
            return []
        known = moment.coordinates[dim["name"]].data.view(np_type(dim["datatype"]))
        return [x.item() for x in known[self.d.values.integers(0, known.size, 6)]] if known.size else []

    def outside(self, moment):
        """Names of subarrays that do not exist."""
        d, n = self.d, len(moment.dims)
        i = d.randrange(n)
        dim, bounds = moment.dims[i], moment.bounds[i]
        alone = lambda text: ",".join(text if k == i else "" for k in range(n))  # noqa: E731
        names = ["," * n, alone("%zz")]
        # As the only range of a string dimension it is text.
        if n > 1 or bounds is not None and not isinstance(bounds[0], bytes):
            names += [f"no such dimension {n}=1", f"no such dimension {n}:1"]
        if bounds is not None and not isinstance(bounds[0], bytes):
            names += [alone("x~")]
            if not isinstance(bounds[0], float):
                names += [alone(f"{bounds[0] - 1}.."), alone(f"..{bounds[1] + 1}")]
                if bounds[0] < bounds[1]:
                    names.append(alone(f"{bounds[1]}..{bounds[0]}"))
        return d.sample(names, 1)


def compare(seed, index, uri, shown, key, views):
    """Compares one array of a mount."""
    return ArrayHunt(Draw(seed, index + 5_000_000), uri, shown, key, views).run()


class Hunt:
    """Writes and compares batch after batch."""

    def __init__(self, args):
        self.args = args
        self.total = dict.fromkeys(("arrays", "refused", "crashed", "unread", "files", "passed", "failed"), 0)

    def batch(self, first, count):
        """One batch."""
        with tempfile.TemporaryDirectory(prefix="tiledbfs-views-", dir=self.args.scratch) as top, concurrent.futures.ThreadPoolExecutor(self.args.processes) as pool:
            folder, lives = os.path.join(top, "arrays"), {}
            os.mkdir(folder)
            indexes = range(first, first + count)
            for index, (kind, what) in zip(indexes, pool.map(lambda i: apart(write, f"{folder}/{i}", self.args.seed, i), indexes)):
                if kind == "ok":
                    lives[index] = what
                    if self.args.only is not None:
                        print("\n".join(what))
                    continue
                self.total["refused" if kind == "refused" else "crashed"] += 1
                if kind == "error":
                    print(f"array {index} not written: {what}", flush=True)
                shutil.rmtree(f"{folder}/{index}", ignore_errors=True)
            if lives:
                self.look(top, folder, lives, pool)

    def look(self, top, folder, lives, pool):
        """Compares the batch."""
        key = Path(top, "key")
        key.write_bytes(KEY)
        with mounted(folder, "--key-file", str(key)) as point:

            def one(index):
                secret_key = KEY if lives[index][-1] == "encrypted" else None
                return apart(compare, self.args.seed, index, f"{folder}/{index}", str(point / str(index)), secret_key, self.args.views)

            for index, (kind, what) in zip(lives, pool.map(one, lives)):
                self.total["arrays"] += 1
                if kind == "crash":
                    self.total["crashed"] += 1  # libtiledb, in reading what it wrote
                    print(f"array {index}: libtiledb crashes in reading: {what}", flush=True)
                    continue
                passed, unread, files, failures = what if kind == "ok" else (0, 0, 0, [f"{kind} {what}"])
                self.total["passed"] += passed
                self.total["unread"] += unread
                self.total["files"] += files
                self.total["failed"] += len(failures)
                if failures:
                    self.tell(index, f"{folder}/{index}", lives[index], failures)

    def tell(self, index, path, life, failures):
        """Prints what differs, and keeps the array."""
        for line in failures[:8]:
            print(f"FAIL array {index}: {line[:700]}", flush=True)
        if len(failures) > 8:
            print(f"FAIL array {index}: and {len(failures) - 8} more", flush=True)
        if self.args.keep:
            to = os.path.join(self.args.keep, f"{self.args.seed}_{index}")
            shutil.copytree(path, to, dirs_exist_ok=True)
            Path(to + ".log").write_text("\n".join(life) + "\n\n" + "\n".join(failures) + "\n")


def arguments(description, count, views):
    """What a hunt can be told."""
    parser = argparse.ArgumentParser(description=description.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--views", type=int, default=views, help="times of an array, besides now")
    parser.add_argument("--scratch")
    parser.add_argument("--keep")
    return parser


def run(args, make, batch):
    """Runs the hunt that `make` makes, by batches of so many arrays."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves no mount behind
    start, hunt = time.time(), make()
    if args.only is not None:
        hunt.batch(args.only, 1)
    else:
        for first in range(args.first, args.first + args.count, batch):
            hunt.batch(first, min(batch, args.first + args.count - first))
    print(f"seed {args.seed}: " + ", ".join(f"{n} {what}" for what, n in hunt.total.items()) + f"; {time.time() - start:.0f} s")
    print(f"{hunt.total['passed']} passed, {hunt.total['failed']} failed")
    sys.exit(1 if hunt.total["failed"] or not hunt.total["passed"] else 0)


def main():
    """Runs the hunt."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # forks of a process with threads
    parser = arguments(__doc__, 40, 5)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    run(args, lambda: Hunt(args), BATCH)


if __name__ == "__main__":
    main()
