"""Compares a mounted array or group with its truth: every column of every fragment and every fact in JSON.

What libtiledb cannot read, or reads wrongly, stands in `EXCEPTIONS` by name; nothing else is passed over.
"""

import collections
import json
import os
import re

import numpy as np

import names
from capi import DATATYPES, np_type
from columns import Columns, check_moments
from facts import Raw, json_value
from truth import has_file

EXCEPTIONS = [
    # (pattern of the array's path, pattern of the field, why)
    (r"lib-2\.2\.2/sparse_nullable$", r"a|allnull", "libtiledb 2.30 does not read nullable fixed attributes of sparse arrays of 2.2.2"),
    (r"lib-2\.1[12456]\.\d/filters_float32$", r"f_fs2_pd_zstd", "libtiledb 2.30 does not read scaled floats behind other filters of 2.11 to 2.16"),
    (r"mixed-2\.30/1_7_7__sparse_multifrag_consolidate$", r"x|y", "libtiledb 2.30 does not read what it consolidated itself with a schema of version 4"),
]
UNREADABLE_ARRAYS = {"fixtures/dense_array_v1_3_0": "written before the format had versions; libtiledb 2.30 does not open it"}
"""Unreadable arrays: the end of the path, and why. Their schema must be an error."""
WEBP_FORMATS = ("NONE", "RGB", "BGR", "RGBA", "BGRA")
INTERNAL = ("__timestamps", "__delete_timestamps", "__delete_condition_index")


def pipeline_json(facts):
    """A pipeline in the words of the tree, with only the options that the API reports."""
    filters = []
    for one in facts["filters"]:
        one = dict(one)
        if "window" in one:
            one["max_window_size"] = one.pop("window")
        if "reinterpret" in one:
            number = one.pop("reinterpret")
            one["reinterpret_datatype"] = None if DATATYPES[number] == "ANY" else DATATYPES[number]
        if "format" in one:
            one |= {"format": WEBP_FORMATS[one["format"]], "lossless": bool(one["lossless"])}
        filters.append(one)
    return {"max_chunk_size": facts["max_chunk_size"], "filters": filters}


class Report:
    """Counts checks and keeps the failures."""

    def __init__(self, most=200):
        self.most, self.failures = most, []
        self.counts = collections.defaultdict(collections.Counter)
        self.exceptions = []
        self.checks = 0
        self.read = {}
        """SHA-256 of each column file read, by path."""

    def fail(self, message):
        """Notes a failure; returns False."""
        self.failures.append(message)
        if len(self.failures) <= self.most:
            print("FAIL " + message[:600], flush=True)
        return False

    def true(self, what, value):
        """Checks a condition."""
        self.checks += 1
        return bool(value) or self.fail(what + ": not so")

    def equal(self, what, got, want):
        """Checks equality."""
        self.checks += 1
        return got == want or self.fail(f"{what}: got {str(got)[:250]}, expected {str(want)[:250]}")

    def count(self, version, what, n=1):
        """Counts what was compared, by format version."""
        self.counts[version][what] += n


def load(path, report):
    """A JSON file of the mount; None, and a failure, if it cannot be read."""
    try:
        with open(path) as f:
            return json.load(f)
    except (OSError, ValueError) as error:
        report.fail(f"{path}: {error}")
        return None


def shown(value):
    """A fact with its raw bytes as JSON shows them."""
    if isinstance(value, Raw):
        return json_value(value)
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    return [shown(v) for v in value] if isinstance(value, list) else value


class ArrayComparison:
    """One array under a mount."""

    def __init__(self, folder, truth, label, report, sidecar=None):
        self.folder, self.truth, self.label, self.report = folder, truth, label, report
        self.sidecar = {f.name: f for f in sidecar or []}

    def run(self):
        """Compares everything."""
        self.report.count(self.truth.schema["format_version"], "arrays")
        self.schemas()
        self.fragment_list()
        self.metadata()
        self.enumerations()
        self.commits()
        for fragment in self.truth.fragments:
            Fragment(self, fragment).run()

    def json(self, name):
        """One of the array's documents."""
        return load(os.path.join(self.folder, name), self.report)

    # -- schemas ---------------------------------------------------------------------------------------------

    def schemas(self):
        """`schema.json` and `schemas/`."""
        got = self.json("schema.json")
        if got is not None:
            self.schema(f"{self.label} schema.json", got, self.truth.schema)
            self.report.true(f"{self.label} schema.json name", got["name"] in self.truth.schemas)
        listed = sorted(os.listdir(os.path.join(self.folder, "schemas")))
        self.report.equal(f"{self.label} schemas", listed, sorted(n + ".json" for n in self.truth.schemas))
        for name, facts in self.truth.schemas.items():
            got = self.json(f"schemas/{name}.json")
            if got is not None:
                self.report.equal(f"{self.label} schemas/{name}.json name", got["name"], name)
                self.schema(f"{self.label} schemas/{name}.json", got, facts)

    def schema(self, where, got, want):
        """A schema; the API reports old ones in today's terms."""
        version = want["format_version"]
        for key in ("format_version", "array_type", "allows_duplicates", "cell_order", "capacity"):
            self.report.equal(f"{where} {key}", got[key], want[key])
        if want["cell_order"] != "hilbert":
            self.report.equal(f"{where} tile_order", got["tile_order"], want["tile_order"])
        self.report.equal(f"{where} current_domain", got["current_domain"], shown(want["current_domain"]))
        for part in ("coords_filters", "offsets_filters", "validity_filters"):
            if part == "validity_filters" and version < 7:
                self.report.equal(f"{where} {part}", got[part], None)
            else:
                self.pipeline(f"{where} {part}", got[part], want[part])
        for key in ("dimensions", "attributes", "dimension_labels"):
            self.report.equal(f"{where} number of {key}", len(got[key]), len(want[key]))
        for one, other in zip(got["dimensions"], want["dimensions"]):
            self.dimension(f"{where} dimension {other['name']!r}", one, other, want)
        for one, other in zip(got["attributes"], want["attributes"]):
            self.attribute(f"{where} attribute {other['name']!r}", one, other, version)
        for one, other in zip(got["dimension_labels"], want["dimension_labels"]):
            self.report.equal(f"{where} label {other['name']!r}", {k: one[k] for k in other}, other)
        named = {a["enumeration"] for a in want["attributes"] if a["enumeration"]}
        self.report.true(f"{where} enumerations", named <= {e["name"] for e in got["enumerations"]})

    def dimension(self, where, got, want, schema):
        """A dimension; if it has no pipeline of its own, as before version 5, the API reports that of the coordinates."""
        for key in ("name", "datatype", "cell_val_num", "domain", "tile_extent"):
            self.report.equal(f"{where} {key}", got[key], shown(want[key]))
        own = got["filters"] if got["filters"]["filters"] else None
        if schema["format_version"] < 5:
            self.report.equal(f"{where} filters", own, None)
        elif own or want["filters"] != schema["coords_filters"]:
            self.pipeline(f"{where} filters", got["filters"], want["filters"])

    def attribute(self, where, got, want, version):
        """An attribute. Up to version 4 the stored name of the unnamed one is `__attr`."""
        for key in ("datatype", "cell_val_num", "nullable", "enumeration"):
            self.report.equal(f"{where} {key}", got[key], want[key])
        unnamed = want["name"] == "" and version < 5 and got["name"] == "__attr"
        self.report.equal(f"{where} name", "" if unnamed else got["name"], want["name"])
        fill = want["fill_value"]
        self.report.equal(f"{where} fill_value", got["fill_value"], json_value(Raw(fill.type, fill.bytes, want["cell_val_num"] != 1)))
        if want["fill_value_valid"] is not None:
            self.report.equal(f"{where} fill_value_valid", got["fill_value_valid"], want["fill_value_valid"])
        self.pipeline(f"{where} filters", got["filters"], want["filters"])

    def pipeline(self, where, got, want):
        """A pipeline, with the options that the API reports."""
        self.report.equal(f"{where} max_chunk_size", got["max_chunk_size"], want["max_chunk_size"])
        expected = pipeline_json(want)["filters"]
        seen = [{k: v for k, v in g.items() if k in w or k == "type"} for g, w in zip(got["filters"], expected)]
        self.report.equal(f"{where} number of filters", len(got["filters"]), len(expected))
        self.report.equal(where, seen, expected)

    # -- the array's other documents -------------------------------------------------------------------------

    def fragment_list(self):
        """`fragments.json` and the directory of fragments."""
        got = self.json("fragments.json")
        if got is None:
            return
        on_disk = sorted(fragment_folders(self.truth.path))
        self.report.equal(f"{self.label} fragments.json names", sorted(f["name"] for f in got), on_disk)
        self.report.equal(f"{self.label} fragments/", sorted(os.listdir(os.path.join(self.folder, "fragments"))), on_disk)
        starts = [f["timestamp_range"][0] for f in got if f["timestamp_range"]]
        self.report.equal(f"{self.label} fragments.json oldest first", starts, sorted(starts))
        visible = [f for f in got if f["visible"]]
        for one in got:
            self.report.equal(f"{self.label} fragments.json {one['name']} has a reason", one["reason"] is None, one["visible"])
        self.report.equal(f"{self.label} visible fragments", sorted(f["name"] for f in visible), sorted(f.name for f in self.truth.fragments))
        by_name = {f["name"]: f for f in visible}
        for fragment in self.truth.fragments:
            one = by_name.get(fragment.name)
            if one:
                keys = ("format_version", "timestamp_range", "dense", "cell_num", "size", "schema_name", "non_empty_domain", "has_consolidated_metadata")
                if fragment.facts["format_version"] < 9 and one["has_consolidated_metadata"]:
                    # Consolidated metadata below version 9 has absolute URIs; libtiledb finds none of them in
                    # a moved array.
                    keys = keys[:-1]
                for key in keys:
                    self.report.equal(f"{self.label} fragments.json {fragment.name} {key}", one[key], shown(fragment.facts[key]))

    def metadata(self):
        """`metadata.json`."""
        compare_metadata(self.label, self.json("metadata.json"), self.truth.metadata, self.report)

    def enumerations(self):
        """`enumerations/`: at least those that attributes name."""
        for name, want in self.truth.enumerations.items():
            got = self.json(f"enumerations/{names.encode(name)}.json")
            if got is not None:
                several = want["cell_val_num"] != 1
                values = [json_value(Raw(v.type, v.bytes, several)) for v in want["values"]]
                self.report.equal(f"{self.label} enumerations/{name}.json", got, want | {"values": values})

    def commits(self):
        """`commits.json` lists every file that commits, ignores, vacuums, deletes or updates."""
        got = self.json("commits.json")
        if got is not None:
            listed = sorted(c["path"] for c in got)
            self.report.equal(f"{self.label} commits.json", listed, sorted(commit_files(self.truth.path)))
            for one in got:
                self.report.equal(f"{self.label} commits.json {one['name']} error", one["error"], None)
                if one["type"] == "del":
                    self.report.true(f"{self.label} commits.json {one['name']} condition", one["condition"] and one["text"])


class Fragment:
    """One fragment under a mount."""

    def __init__(self, array, fragment):
        self.array, self.fragment, self.report = array, fragment, array.report
        self.facts = fragment.facts
        self.folder = os.path.join(array.folder, "fragments", fragment.name)
        self.label = f"{array.label} fragment {fragment.name}"

    def run(self):
        """Compares documents and columns."""
        self.report.count(self.facts["format_version"], "fragments")
        self.footer()
        self.rtree()
        self.tiles()
        self.conditions()
        self.columns()

    def json(self, name):
        """One of the fragment's documents."""
        return load(os.path.join(self.folder, name), self.report)

    def footer(self):
        """`footer.json`, and the sizes in it against the files on disk."""
        got = self.json("footer.json")
        if got is None:
            return
        for key in ("format_version", "dense", "cell_num", "non_empty_domain"):
            self.report.equal(f"{self.label} footer.json {key}", got[key], shown(self.facts[key]))
        self.report.equal(f"{self.label} footer.json tile_num", got["tile_num"], self.fragment.tile_num)
        self.report.equal(f"{self.label} footer.json sparse_tile_num", got["sparse_tile_num"], 0 if self.facts["dense"] else self.fragment.tile_num)
        if self.facts["format_version"] >= 10:
            self.report.equal(f"{self.label} footer.json array_schema_name", got["array_schema_name"], self.facts["schema_name"])
        self.report.equal(f"{self.label} footer.json has_timestamps", got["has_timestamps"], has_file(self.fragment, "t.tdb", 14))
        self.report.equal(f"{self.label} footer.json has_delete_metadata", got["has_delete_metadata"], has_file(self.fragment, "dt.tdb", 15))
        sizes = (s for f in got["fields"].values() for s in f.values() if s)
        on_disk = (e.stat().st_size for e in os.scandir(self.fragment.directory) if e.name.endswith(".tdb") and e.name != "__fragment_metadata.tdb")
        self.report.equal(f"{self.label} footer.json sum of file sizes", sum(sizes), sum(on_disk))

    def rtree(self):
        """`rtree.json`: the leaves are the MBRs that the API reports."""
        got = self.json("rtree.json")
        if got is not None:
            leaves = got["levels"][-1] if got["levels"] else []
            self.report.equal(f"{self.label} rtree.json leaves", leaves, shown(self.facts["mbrs"]))

    def tiles(self):
        """`tiles.json`: lists with one entry per tile, ascending offsets, null counts with the sum of those read."""
        got = self.json("tiles.json")
        statistics = self.json("statistics.json")
        if got is None:
            return
        for name, lists in got.items():
            for key, entries in lists.items():
                if entries and self.facts["dense"] and self.facts["format_version"] in (7, 8) and not any(entries[self.fragment.tile_num :]):
                    # libtiledb 2.2, writing nullable attributes in global order, put empty tiles after the
                    # last one.
                    entries = entries[: self.fragment.tile_num]
                if entries is not None and not (self.facts["dense"] and name not in self.fragment.fields):
                    self.report.equal(f"{self.label} tiles.json {name} {key} length", len(entries), self.fragment.tile_num)
                if entries and key.endswith("offsets"):
                    self.report.true(f"{self.label} tiles.json {name} {key} rises", entries == sorted(entries))
        for name, field in self.fragment.fields.items():
            lists = got.get(name or "__attr")
            if lists and lists["null_counts"] and field.validity is not None and has_statistics(field) and not self.fragment.deletes:
                nulls, total = int((field.validity == 0).sum()), sum(lists["null_counts"])
                # libtiledb counts the padding of dense tiles, which is null, for some fields and not for
                # others, and some cells of var-sized fields in its place.
                padding = self.facts["cell_num"] - field.validity.size
                if not padding or field.cvn != "var":
                    self.report.true(f"{self.label} tiles.json {name}: {nulls} nulls counted as {total}", nulls <= total <= nulls + padding)
                if statistics:
                    self.report.equal(f"{self.label} statistics.json {name} null_count", statistics[name or "__attr"]["null_count"], total)
        if statistics:
            self.extremes(statistics)

    def extremes(self, statistics):
        """`statistics.json`: minimum and maximum of integers, taken before lossy filters."""
        schema = self.array.truth.schemas[self.facts["schema_name"]]
        lossy = {a["name"] for a in schema["attributes"] if any(f["type"] in ("SCALE_FLOAT", "WEBP") for f in a["filters"]["filters"])}
        fills = {a["name"]: a["fill_value"].bytes for a in schema["attributes"]}
        for name, field in self.fragment.fields.items():
            kind = np_type(field.type).kind
            entry = statistics.get(name or "__attr")
            if entry is None or name in INTERNAL or name in lossy or field.cvn != 1 or kind not in "iu" or self.fragment.deletes:
                continue
            if field.type.startswith("STRING") or field.type in ("CHAR", "BOOL", "BLOB", "GEOM_WKB", "GEOM_WKT", "ANY") or entry["min"] is None:
                continue
            values = field.data.view(np_type(field.type))
            values = values if field.validity is None else values[field.validity != 0]
            if values.size:
                got, want = [entry["min"], entry["max"]], [int(values.min()), int(values.max())]
                if self.facts["cell_num"] > values.size and self.facts["format_version"] < 22 and got != want:
                    # Older writers counted the padding of dense tiles, which is zero.
                    want = [min(want[0], 0), max(want[1], 0)]
                if self.facts["cell_num"] > len(field.data) // values.itemsize and got != want:
                    # Consolidation counts the padding, which is the fill value.
                    fill = np.frombuffer(fills[name], values.dtype)[0].item()
                    want = [min(want[0], fill), max(want[1], fill)]
                self.report.equal(f"{self.label} statistics.json {name}", got, want)

    def conditions(self):
        """`conditions.json` exists; the cells' condition indexes point into it."""
        self.json("conditions.json")

    def columns(self):
        """Every column."""
        folder = os.path.join(self.folder, "columns")
        columns = Columns(folder, self.fragment, self.label, self.report)
        expected = self.directories()
        self.report.equal(f"{self.label} columns/", sorted(os.listdir(folder)), sorted(expected))
        sidecar = self.array.sidecar.get(self.fragment.name)
        for directory, name in expected.items():
            if name not in self.fragment.fields:
                self.unread(columns, directory, name)
                continue
            self.guard(columns, directory, name, self.fragment.fields[name])
            self.report.count(self.facts["format_version"], "columns")
            if sidecar and name in sidecar.fields:
                other = Columns(folder, self.beside(sidecar), self.label + " (sidecar)", self.report)
                self.guard(other, directory, name, sidecar.fields[name])
                self.report.count(self.facts["format_version"], "sidecar columns")
        if self.fragment.deletes:
            check_moments(columns, self.fragment, self.report)

    def guard(self, columns, directory, name, truth):
        """Compares a column; an error while reading it is a failure."""
        try:
            columns.field(directory, truth)
        except (OSError, ValueError) as error:
            self.report.fail(f"{self.label} field {name!r}: {error}")

    def beside(self, sidecar):
        """A sidecar's fragment with the facts of this one."""
        sidecar.facts, sidecar.tile_num, sidecar.deletes = self.facts, self.fragment.tile_num, self.fragment.deletes
        return sidecar

    def unread(self, columns, directory, name):
        """A column without a truth: internal, or a named exception."""
        if name in INTERNAL[1:] or name == "__coords":
            return
        for path, field, why in EXCEPTIONS:
            if re.search(path, self.array.truth.path) and re.fullmatch(field, name):
                self.report.exceptions.append(f"{self.label} field {name!r}: {why}")
                return
        self.report.fail(f"{self.label} field {name!r}: libtiledb does not read it ({self.fragment.unreadable.get(name)}), and it is no known exception")

    def directories(self):
        """{directory: field} of all expected columns of the fragment."""
        facts, schema = self.facts, self.array.truth.schemas.get(self.facts["schema_name"]) or next(iter(self.array.truth.schemas.values()))
        out = {names.attribute(a["name"]): a["name"] for a in schema["attributes"]}
        if not facts["dense"]:
            out |= {names.dimension(d["name"], i): d["name"] for i, d in enumerate(schema["dimensions"])}
            if facts["format_version"] < 5:
                out["__coords"] = "__coords"
        files = {"t.tdb": (14, INTERNAL[0]), "dt.tdb": (15, INTERNAL[1]), "dci.tdb": (15, INTERNAL[2])}
        return out | {name: name for file, (version, name) in files.items() if has_file(self.fragment, file, version)}


def has_statistics(field):
    """Whether libtiledb computes statistics of a field's tiles; if not, it stores zeros for the null counts, too."""
    if field.type in ("CHAR", "STRING_ASCII"):
        return True
    opaque = field.type.startswith(("STRING_", "GEOM_")) or field.type in ("BLOB", "ANY")
    return field.cvn == 1 and not opaque


def compare_metadata(label, got, want, report):
    """`metadata.json` of an array or group."""
    if got is None:
        return
    expected = {}
    for key, fact in want.items():
        value = fact["value"]
        if value is not None:
            value = json_value(Raw(value.type, value.bytes, fact["value_num"] != 1))
        expected[key.decode("utf-8", "backslashreplace")] = fact | {"value": value}
    report.equal(f"{label} metadata.json keys", sorted(got), sorted(expected))
    for key in expected.keys() & got.keys():
        report.equal(f"{label} metadata.json {key!r}", got[key], expected[key])


def compare_group(folder, truth, label, report):
    """`group.json` and `metadata.json` of a group."""
    report.count("groups", "groups")
    got = load(os.path.join(folder, "group.json"), report)
    if got is not None:
        names_of = sorted(str(m["name"] or m["uri"].rstrip("/").rsplit("/", 1)[-1]) for m in got["members"])
        wanted = sorted(str(m["name"] or m["uri"].rstrip("/").rsplit("/", 1)[-1]) for m in truth["members"])
        report.equal(f"{label} group.json members", names_of, wanted)
        kinds = sorted((m["uri"].rstrip("/").rsplit("/", 1)[-1], m["type"].upper()) for m in got["members"])
        report.equal(f"{label} group.json types", kinds, sorted((m["uri"].rstrip("/").rsplit("/", 1)[-1], m["type"].upper()) for m in truth["members"]))
    compare_metadata(label, load(os.path.join(folder, "metadata.json"), report), truth["metadata"], report)


def fragment_folders(path):
    """Names of all fragment directories of an array, committed or not, also those without metadata after a failed write."""
    found = []
    for folder in (path, os.path.join(path, "__fragments")):
        if os.path.isdir(folder):
            inside = (e for e in os.scandir(folder) if e.is_dir() and re.match(r"__(\d+_\d+_)?[0-9a-f]{32}(_|$)", e.name))
            found += [e.name for e in inside]
    return found


def commit_files(path):
    """Paths, relative to an array, of its commit, ignore, vacuum, delete and update files."""
    out = []
    for folder in ("", "__commits"):
        where = os.path.join(path, folder)
        if os.path.isdir(where):
            out += [os.path.join(folder, n) for n in os.listdir(where) if n.rsplit(".", 1)[-1] in ("ok", "wrt", "con", "ign", "vac", "del", "upd") and "." in n]
    return out
