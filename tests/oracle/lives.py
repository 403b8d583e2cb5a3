"""The part of the core set that an array goes through in its life: metadata, evolution, consolidation, deletion, enumerations, labels, groups."""

import numpy as np

from capi import VAR, Attr, Column, Dim, Enum, Label, Pipeline, Schema

PLAIN = [Attr("a", "INT32", 1, True), Attr("v", "STRING_ASCII", VAR)]
ZSTD = Pipeline([("ZSTD", {})])


def _line(n, extent, datatype="INT32", name="x"):
    return Dim(name, datatype, 0, n - 1, extent)


def metadata(w):
    """Metadata of many types, overwritten, deleted, consolidated and vacuumed."""
    schema = Schema("dense", [_line(10, 5)], PLAIN)
    items = [
        ("int", "INT32", [-7]), ("ints", "INT64", [1, 2**62, -3]), ("float", "FLOAT64", [1.5]), ("floats", "FLOAT32", [0.1, np.inf, np.nan]),
        ("ascii", "STRING_ASCII", b"plain"), ("utf8", "STRING_UTF8", "größer".encode()), ("chars", "CHAR", b"chars"),
        ("latin", "CHAR", b"gr\xf6\xdfer"), ("blob", "BLOB", b"\x00\x01\xff"), ("bool", "BOOL", [1, 0]), ("when", "DATETIME_MS", [1_700_000_000_000]),
        ("span", "TIME_NS", [5]), ("u64", "UINT64", [2**64 - 1]), ("empty", "STRING_UTF8", b""), ("utf16", "STRING_UTF16", "wide".encode("utf-16-le")),
        ("", "INT8", [1]), ('qu"ote\n', "UINT8", [1, 2]), ("long", "STRING_ASCII", b"x" * 100_000),
    ]
    items = [i for i in items if i[0]]
    uri = w.create("metadata/types", schema, ["metadata"])
    w.lib.put_metadata(uri, items, timestamp=10)
    for name, mode in (("changed", None), ("consolidated", False), ("vacuumed", True)):
        uri = w.dense(f"metadata/{name}", schema, ["metadata", name], [[(0, 9)]])
        w.lib.put_metadata(uri, items[:6], timestamp=20)
        w.lib.put_metadata(uri, [("int", "STRING_ASCII", b"now text")], ["ints", "never there"], timestamp=30)
        if mode is not None:
            w.lib.consolidate(uri, "array_meta", mode)
        w.lib.put_metadata(uri, [("ints", "INT8", [9])], ["float"], timestamp=40)


def evolution(w):
    """Attributes added and dropped between fragments."""
    for kind in ("dense", "sparse"):
        schema = Schema(kind, [_line(40, 10)], PLAIN, capacity=8)
        make = w.dense if kind == "dense" else w.sparse
        uri = make(f"evolution/{kind}", schema, ["evolution"], [[(0, 39)]] if kind == "dense" else (20,))
        steps = [(20, [Attr("n", "FLOAT32", 2)], ["a"]), (30, [Attr("a", "UINT64", 1, False, ZSTD), Attr("u", "STRING_UTF8", VAR, True)], []), (40, [], ["v", "n"])]
        attrs = {a.name: a for a in PLAIN}
        for when, add, drop in steps:
            w.lib.evolve(uri, when, add, drop)
            attrs = {n: a for n, a in attrs.items() if n not in drop} | {a.name: a for a in add}
            now = Schema(kind, schema.dims, list(attrs.values()), capacity=8)
            if kind == "dense":
                w.fill(uri, now, [(3, 30)], w.rng(uri + str(when)), when + 1)
            else:
                w.scatter(uri, now, 15, w.rng(f"{kind}{when}"), when + 1)
    dims = [_line(100, 10)]
    schema = Schema("sparse", dims, PLAIN, capacity=8, current_domain=[(0, 49)])
    uri = w.create("evolution/current_domain", schema, ["current domain"])
    w.lib.evolve(uri, 20, current_domain=(dims, [(0, 79)]))
    schema = Schema("sparse", [Dim("s", "STRING_ASCII")], PLAIN, current_domain=[(b"a", b"m")])
    w.create("evolution/current_domain_string", schema, ["current domain"])


def consolidation(w):
    """Fragments, commits and fragment metadata consolidated, with and without vacuuming; cells with timestamps."""
    dims = [_line(60, 10), _line(20, 7, name="y")]
    dense = Schema("dense", dims, PLAIN)
    sparse = Schema("sparse", dims, PLAIN, capacity=11)
    again = Schema("sparse", dims, PLAIN, capacity=11, dups=True)
    boxes = [[(0, 59), (0, 19)], [(5, 30), (3, 9)], [(7, 7), (0, 19)]]
    for mode in ("fragments", "commits", "fragment_meta"):
        for vacuum in (False, True):
            tail = mode + ("_vacuumed" if vacuum else "")
            uri = w.dense(f"consolidation/dense_{tail}", dense, ["consolidation", mode], boxes)
            _settle(w, uri, mode, vacuum)
            for name, schema in (("sparse", sparse), ("dups", again)):
                uri = w.sparse(f"consolidation/{name}_{tail}", schema, ["consolidation", mode], (60, 50, 40))
                _settle(w, uri, mode, vacuum)
                w.scatter(uri, schema, 9, w.rng(uri[-12:]), 90)


def _settle(w, uri, mode, vacuum):
    if mode == "fragment_meta" and vacuum:
        w.lib.consolidate(uri, "fragments", True)
    w.lib.consolidate(uri, mode, vacuum)


def deletion(w):
    """Delete conditions of all shapes, alone and consolidated into the fragments."""
    number, text = np.int32, lambda t: t  # noqa: E731
    conditions = {
        "less": ("x", "<", number(40)), "both": ("and", ("x", ">=", number(100)), ("a", "!=", number(0))),
        "text": ("v", "==", text(b"tile")), "either": ("or", ("v", "==", text(b"bb")), ("not", ("x", "<", number(190)))),
        "in": ("in", "v", [b"tile", b"END"]), "not_in": ("not_in", "x", [number(i) for i in range(0, 200, 2)]),
    }
    schema = Schema("sparse", [_line(200, 20)], PLAIN, capacity=10)
    for name, condition in conditions.items():
        uri = w.sparse(f"deletion/{name}", schema, ["delete", name], (60, 20))
        w.lib.delete(uri, condition, 30)
    for name, vacuum in (("timestamps", False), ("timestamps_vacuumed", True)):
        uri = w.sparse(f"deletion/{name}", schema, ["delete", "consolidated"], (80, 70))
        for when, which in ((30, "less"), (40, "text"), (50, "either")):
            w.lib.delete(uri, conditions[which], when)
            w.scatter(uri, schema, 30, w.rng(name + which), when + 5)
        w.lib.consolidate(uri, "fragments", vacuum)
    uri = w.sparse("deletion/in_commits", schema, ["delete", "consolidated commits"], (60, 20))
    w.lib.delete(uri, conditions["both"], 30)
    w.lib.delete(uri, conditions["in"], 40)
    w.lib.consolidate(uri, "commits", True)


def enumerations(w):
    """Enumerations of texts and numbers, ordered and not, extended."""
    enums = [
        Enum("colours", "STRING_ASCII", [b"red", b"", b"blue"]), Enum("sizes", "STRING_UTF8", ["groß".encode(), b"klein"], True),
        Enum("numbers", "INT64", np.array([5, -1, 2**60], "<i8")), Enum("floats", "FLOAT64", np.array([0.5, 1.5]), True),
        Enum("blobs", "BLOB", [b"\x00\x01", b"\xff"]),
    ]
    attrs = [Attr("k_" + e.name, "UINT8", enumeration=e.name) for e in enums]
    uri = w.create("enumerations/types", Schema("dense", [_line(10, 5)], attrs, enums=enums), ["enumerations"])
    column = Column((np.arange(10) % 2).astype("u1"))
    w.lib.write(uri, {a.name: column for a in attrs}, ranges=[np.array([0, 9], "<i4")], timestamp=10)
    uri = w.create("enumerations/extended", Schema("dense", [_line(10, 5)], attrs[:1], enums=enums[:1]), ["enumerations", "extended"])
    w.lib.evolve(uri, 20, extend=("colours", [b"green", b"black"]))
    uri = w.create("enumerations/added", Schema("sparse", [_line(10, 5)], PLAIN), ["enumerations", "added"])
    w.lib.evolve(uri, 20, add=[Attr("k", "INT8", 1, True, enumeration="sizes")], enums=[enums[1]])


def labels(w):
    """Dimension labels; their arrays hold no data."""
    schema = Schema("dense", [_line(10, 5), _line(8, 4, name="y")], PLAIN)
    schema.labels = [Label(0, "height", "FLOAT64"), Label(1, "when", "DATETIME_DAY", 2), Label(1, "word", "STRING_ASCII")]
    w.dense("labels/three", schema, ["dimension labels"], [[(0, 9), (0, 7)]])


def groups(w):
    """Groups in groups, named and unnamed members, a removed one, a missing one, one that lies elsewhere."""
    lib = w.lib

    def group(name, hidden=False):
        uri = w.root / name
        uri.parent.mkdir(parents=True, exist_ok=True)
        lib.create_group(str(uri))
        w.objects.append({"path": name, "what": ["group"], "encrypted": False, "hidden": hidden})
        return str(uri)

    top = group("groups/top")
    inner = group("groups/top/inner")
    group("groups/empty")
    schema = Schema("dense", [_line(10, 5)], PLAIN)
    for name in ("groups/top/one", "groups/top/two", "groups/top/inner/three", "groups/outside"):
        w.dense(name, schema, ["member of a group"], [[(0, 9)]])
    members = [("one", True, None), ("two", True, "zwei"), ("inner", True, "inner group")]
    lib.change_group(top, add=members, timestamp=10)
    lib.change_group(inner, add=[("three", True, "three")], timestamp=10)
    lib.change_group(top, add=[(f"file://{w.root.resolve()}/groups/outside", False, "outside")], timestamp=20)
    group("groups/top/gone", hidden=True)
    lib.change_group(top, add=[("gone", True, "gone")], timestamp=30)
    lib.change_group(top, remove=["gone"], timestamp=40)
    lib.put_metadata(top, [("about", "STRING_UTF8", b"a group"), ("n", "INT32", [1, 2, 3])], timestamp=50, kind="group")


ALL = [metadata, evolution, consolidation, deletion, enumerations, labels, groups]
