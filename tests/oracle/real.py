"""Reads arrays that other programs wrote, through a mount, and compares them with what libtiledb read of them.

    real.py DIRECTORY [--path PART]

DIRECTORY holds `arrays/`, `expected.json` (what libtiledb reads; columns as digests) and `digest.py` (how these are computed). Compared are schemas,
metadata, enumerations, groups and their members, fragments, footers, and every column of every fragment: values, offsets, validity. What libtiledb
refuses has to fail here. Then `tiledbfs check` must not take for damaged what libtiledb reads. The last line is `N passed, N failed`.
"""

import argparse
import collections
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import names
from mount import binary, mounted

ORDER = {"row": "row-major", "col": "col-major", "hilbert": "hilbert"}
WIDTH = {"16": 2, "32": 4, "64": 8, "CS2": 2, "CS4": 4}
FILTERS = {
    "bitwidth": "BIT_WIDTH_REDUCTION", "sha256": "CHECKSUM_SHA256", "md5": "CHECKSUM_MD5", "dictionary": "DICTIONARY_ENCODING", "float_scale": "SCALE_FLOAT",
}


def width(datatype):
    """Bytes of one value."""
    if datatype.startswith(("DATETIME_", "TIME_")):
        return 8
    return next((size for end, size in WIDTH.items() if datatype.endswith(end)), 1)


def stored(datatype, value):
    """A value of JSON as the hexadecimal digits of its bytes; None if JSON cannot represent them."""
    if isinstance(value, dict):
        return value["hex"]
    if value is None:
        return ""
    text = {"STRING_UTF16": "utf-16-le", "STRING_UCS2": "utf-16-le", "STRING_UTF32": "utf-32-le", "STRING_UCS4": "utf-32-le"}
    if isinstance(value, str) and not datatype.startswith("FLOAT"):
        return value.encode(text.get(datatype, "utf-8")).hex()
    values = [float(v) if isinstance(v, str) else v for v in (value if isinstance(value, list) else [value])]
    size = width(datatype)
    if datatype.startswith("FLOAT"):
        array = np.array(values, f"<f{size}")
        return None if np.isnan(array).any() else array.tobytes().hex()
    return b"".join((int(v) % (1 << 8 * size)).to_bytes(size, "little") for v in values).hex()


def content(*path):
    """The bytes of a file."""
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def document(*path):
    """A JSON file."""
    return json.loads(content(*path))


def outcome(*path):
    """The name of the errno of a file that cannot be read; empty if it can."""
    try:
        content(*path)
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
    return ""


class Comparison:
    """Compares one mount with `expected.json`."""

    def __init__(self, directory, digest):
        self.arrays, self.digest = directory / "arrays", digest
        self.rows = {row["path"]: row for row in json.loads(content(directory / "expected.json"))["rows"]}
        self.passed, self.failed = collections.Counter(), []
        self.members = collections.defaultdict(list)
        for row in self.rows.values():
            for member in row.get("members", []):
                uri = member["uri"].removeprefix("<arrays>/")
                self.members[uri].append((row["path"], member["name"] or os.path.basename(uri)))

    def equal(self, kind, what, got, want):
        """One check."""
        if got == want:
            self.passed[kind] += 1
        else:
            self.failed.append(f"{kind} {what}: {str(got)[:200]}, expected {str(want)[:200]}")

    def places(self, path):
        """The path in the mount of an object of the source: as a member of groups, and in its directory."""
        if path in ("", "."):
            return [""]
        out = [os.path.join(above, names.encode(name)) for group, name in self.members[path] for above in self.places(group)]
        parent, base = os.path.split(path)
        # Another member may have its name there.
        taken = [name for other in self.members.values() for group, name in other if group == parent]
        if base not in taken:
            out += [os.path.join(above, base) for above in self.places(parent)]
        return list(dict.fromkeys(out))

    def run(self, point, part):
        """Compares all objects with `part` in their paths."""
        for path, row in self.rows.items():
            if part not in path:
                continue
            places = [os.path.join(point, place) for place in self.places(path)]
            places = [place for place in places if os.path.isdir(place)]
            if not row["ok"]:
                file = "schema.json" if row["kind"] == "array" else "group.json"
                self.equal("refused objects", path, outcome((places or [os.path.join(point, path)])[0], file) in ("EIO", "ENOENT"), True)
                continue
            self.equal("objects", path, bool(places), True)
            for place in places:
                try:
                    (self.group if row["kind"] == "group" else self.array)(path, place, row)
                except Exception as e:  # Whatever is wrong is wrong with this object alone.
                    self.equal("objects", path, repr(e), "no error")

    def group(self, path, place, row):
        """A group: its members, their directories, its metadata."""
        shown = document(place, "group.json")["members"]
        uri = lambda m: os.path.normpath(m["uri"]) if m["relative"] else m["uri"]
        got = sorted((m["name"] or "", m["type"].lower(), uri(m)) for m in shown)
        relative = lambda m: os.path.relpath(m["uri"], f"<arrays>/{path}") if m.get("relative", True) else m["uri"]
        self.equal("groups", path, got if row["members"] else [], sorted((m["name"] or "", m["type"], relative(m)) for m in row["members"]))
        for member in row["members"]:
            at = member["uri"].removeprefix("<arrays>/")
            if at != member["uri"] and (self.arrays / at).is_dir():
                name = names.encode(member["name"] or os.path.basename(at))
                self.equal("groups", f"{path} member {name}", os.path.isdir(os.path.join(place, name)), True)
        self.metadata(path, place, row)

    def metadata(self, path, place, row):
        """The metadata of an array or group."""
        shown = document(place, "metadata.json")
        self.equal("metadata", path, sorted(shown), sorted(item["key"] for item in row["metadata"]))
        for item in row["metadata"]:
            got = shown.get(item["key"], {"datatype": None, "value_num": None, "value": None})
            want = "" if item["value_is_null"] else item["value_hex"]
            self.equal("metadata", f"{path} {item['key']}", (got["datatype"], stored(item["type"], got["value"])), (item["type"], want))

    def pipeline(self, what, got, want):
        """A filter pipeline."""
        kinds = [f["type"] for f in got["filters"] if f["type"] not in ("NONE", "NOOP")]
        wanted = [FILTERS.get(f["type"], f["type"].upper()) for f in want["filters"] if f["type"] != "none"]
        self.equal("schemas", f"{what}: filters", (kinds, got["max_chunk_size"]), (wanted, want["max_chunk"]))

    def schema(self, path, got, want):
        """The schema in force."""
        facts = ["array_type", "allows_duplicates", "cell_order", "tile_order", "capacity", "format_version"]
        wanted = [want["kind"], bool(want["allows_dups"]), ORDER[want["cell_order"]], ORDER[want["tile_order"]], want["capacity"], want["version"]]
        self.equal("schemas", path, [got[fact] for fact in facts], wanted)
        field = lambda f: (f["name"], f.get("datatype", f.get("type")), f["cell_val_num"], bool(f.get("nullable")), f.get("enumeration"))
        for kind, wants in (("dimensions", want["dims"]), ("attributes", want["attrs"])):
            self.equal("schemas", f"{path} {kind}", [field(f) for f in got[kind]], [field(f) for f in wants])
            for shown, wanted in zip(got[kind], wants):
                self.pipeline(f"{path} {wanted['name']}", shown["filters"], wanted["filters"])
        for shown, dim in zip(got["dimensions"], want["dims"]):
            domain = "".join(stored(dim["type"], v) for v in shown["domain"]) if shown["domain"] else None
            self.equal("schemas", f"{path} {dim['name']}: domain", domain, dim.get("domain_hex"))
        for shown, attr in zip(got["attributes"], want["attrs"]):
            fill = stored(attr["type"], shown["fill_value"])
            if shown["fill_value"] is not None and fill is not None:
                self.equal("schemas", f"{path} {attr['name']}: fill value", fill, attr["fill_hex"])

    def array(self, path, place, row):
        """An array, down to its fragments."""
        self.schema(path, document(place, "schema.json"), row["schema"])
        self.metadata(path, place, row)
        for want in row["enumerations"]:
            if "error" not in want:
                self.enumeration(path, document(place, "enumerations", names.encode(want["name"]) + ".json"), want)
        shown = [f for f in document(place, "fragments.json") if f["visible"]]
        facts = lambda f: (f["name"], f["timestamp_range"], f["cell_num"], f["schema_name"], f["size"])
        self.equal("fragments", path, [facts(f) for f in shown], [facts(f) for f in row["fragments"]])
        for want in row["fragments"]:
            self.fragment(f"{path} {want['name'][:24]}", os.path.join(place, "fragments", want["name"]), want, want.get("schema", row["schema"]))

    def enumeration(self, path, got, want):
        """An enumeration."""
        digits, offsets = want["data_hex"], want.get("offsets")
        if offsets is None:
            each = 2 * width(want["type"]) * (1 if want["cell_val_num"] == "var" else want["cell_val_num"])
            values = [digits[i : i + each] for i in range(0, len(digits), each)]
        else:
            values = [digits[2 * a : 2 * b] for a, b in zip(offsets, [*offsets[1:], len(digits) // 2])]
        got = (got["datatype"], got["cell_val_num"], bool(got["ordered"]), [stored(want["type"], v) for v in got["values"]])
        self.equal("enumerations", f"{path} {want['name']}", got, (want["type"], want["cell_val_num"], bool(want["ordered"]), values))

    def fragment(self, what, place, want, schema):
        """A fragment: its footer and its columns."""
        foot = document(place, "footer.json")
        self.equal("footers", what, (foot["format_version"], foot["dense"], foot["cell_num"]), (want["version"], want["dense"], want["cell_num"]))
        for dim, got, box in zip(schema["dims"], foot["non_empty_domain"] or [], want["non_empty_domain"]):
            self.equal("footers", what, [stored(dim["type"], v) for v in got], [box["lo_hex"], box["hi_hex"]])
        columns = want["columns"]
        dims = [dim["name"] for dim in schema["dims"]]
        if "fields" not in columns:
            outcomes = {outcome(place, "columns", name, "data.bin") for name in os.listdir(os.path.join(place, "columns"))}
            self.equal("refused columns", what, "EIO" in outcomes and outcomes <= {"", "EIO"}, True)
            return
        picked = total = None
        if columns["order"].startswith("row-major"):
            picked, total = self.digest.positions(columns["geometry"])
        elif want.get("has_delete_meta"):
            times = np.frombuffer(content(place, "columns/__delete_timestamps/data.bin"), "<u8")
            picked = np.nonzero(times == 2**64 - 1)[0]
        directory = lambda name: names.dimension(name, dims.index(name)) if name in dims else names.attribute(name)
        for field in columns["fields"]:
            try:
                self.column(f"{what} {field['name']}", os.path.join(place, "columns", directory(field["name"])), field, columns, schema, picked, total)
            except OSError as e:
                self.equal("columns", f"{what} {field['name']}", repr(e), "its values")
        for name in columns.get("unreadable_fields") or {}:
            self.equal("refused columns", f"{what} {name}", outcome(place, "columns", directory(name), "data.bin"), "EIO")

    def column(self, what, place, field, columns, schema, picked, total):
        """A column by its digests; `picked` are the cells that libtiledb reads, of `total`."""
        var = field["cell_val_num"] == "var"
        size = None if var else width(field["type"]) * field["cell_val_num"]
        data = content(place, "data.bin")
        offsets = content(place, "offsets.bin") if var else None
        validity = content(place, "validity.bin") if field["nullable"] else None
        cells = len(offsets) // 8 - 1 if var else len(data) // size
        if total is not None:
            self.equal("columns", f"{what}: cells", cells, total)
        if columns["order"].startswith("sparse fragment"):
            data, offsets, validity = self.spread(place, field, columns, schema, (data, offsets, validity), size)
        got = self.digest.digest_mounted(data, offsets, validity, size, picked)
        self.equal("columns", what, got, {key: field.get(key) for key in got})

    def spread(self, place, field, columns, schema, parts, size):
        """The cells of a sparse fragment of a dense array at their positions in its non-empty domain, fill values elsewhere."""
        data, offsets, validity = parts
        domain = columns["geometry"]["ned"]
        place = os.path.dirname(place)
        at = 0
        for i, (dim, (low, high)) in enumerate(zip(schema["dims"], domain)):
            values = content(place, names.dimension(dim["name"], i), "data.bin")
            sign = "u" if dim["type"].startswith("UINT") else "i"
            at = at * (high - low + 1) + np.frombuffer(values, f"<{sign}{width(dim['type'])}").astype(np.int64) - low
        count = int(np.prod([high - low + 1 for low, high in domain]))
        fill = bytes.fromhex(columns["fill"][field["name"]])
        valid = None
        if validity is not None:
            valid = np.zeros(count, "u1")
            valid[at] = np.frombuffer(validity, "u1")
            valid = valid.tobytes()
        if size:
            out = np.tile(np.frombuffer(fill, "u1"), (count, 1))
            out[at] = np.frombuffer(data, "u1").reshape(-1, size)
            return out.tobytes(), None, valid
        cells, starts = [fill] * count, np.frombuffer(offsets, "<u8").astype(np.int64)
        for k, cell in enumerate(at):
            cells[cell] = data[starts[k] : starts[k + 1]]
        ends = np.cumsum([0, *map(len, cells)]).astype("<u8")
        return b"".join(cells), ends.tobytes(), valid

    def check(self):
        """Compares the findings of `tiledbfs check` with what libtiledb reads."""
        done = subprocess.run([binary(), "check", "--quiet", "--json", str(self.arrays)], capture_output=True, text=True, timeout=1200)
        found = collections.defaultdict(set)
        for line in done.stdout.splitlines():
            finding = json.loads(line)
            found[finding["level"], finding["kind"]].add(finding["path"])
        refused = lambda path: any(not row["ok"] and path.startswith(f"{at}/") for at, row in self.rows.items())
        missing = {path for path in found["problem", "missing"] if not (self.arrays / path).exists()}
        self.equal("check", "missing files", found["problem", "missing"], missing)
        for kind in ("corrupt", "truncated", "checksum", "size", "schema", "unsupported_version"):
            self.equal("check", f"{kind} of what libtiledb reads", {p for p in found["problem", kind] if not refused(p)}, set())
        old = {p for p in found["unchecked", "unsupported_version"] if p.endswith("__array_schema.tdb")}
        without_version = {f"{at}/__array_schema.tdb" for at, row in self.rows.items() if at.startswith("GenomicsDB/") or at.endswith("v1_3_0")}
        self.equal("check", "arrays from before versions were counted", old, without_version)


def main():
    """Compares, and prints the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--path", default="")
    args = parser.parse_args()
    sys.path.insert(0, str(args.directory))
    import digest

    comparison = Comparison(args.directory, digest)
    with mounted(args.directory / "arrays") as point:
        comparison.run(str(point), args.path)
    if not args.path:
        comparison.check()
    print("\n".join(comparison.failed[:50]))
    for kind, count in sorted(comparison.passed.items()):
        print(f"{kind:16} {count:6} equal")
    passed = sum(comparison.passed.values())
    # A run without comparisons proves nothing.
    print(f"{passed} passed, {len(comparison.failed) + (passed == 0)} failed")
    sys.exit(bool(comparison.failed) or passed == 0)


if __name__ == "__main__":
    main()
