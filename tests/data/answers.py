"""Writes `tests/data/versions/answers.json`: what libtiledb 2.30 reads from the arrays and groups beside it, through `tests/oracle/truth.py`.

The file has an object for each array or group, by path. `json` has facts under the paths and in the words of the tree's JSON (only those keys that
the API tells); `fragments` the columns of each visible fragment: values and offsets of `cells`, in hexadecimal. `places` says where the cells of a
dense fragment lie in its column files; without it, they are the cells of the files in order. `counts.json` counts the same for `tests/oracle/table.py`.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "oracle"))
import names  # noqa: E402
from capi import Lib  # noqa: E402
from compare import pipeline_json, shown  # noqa: E402
from counts import Counts  # noqa: E402
from facts import Raw, is_array, is_group, json_value  # noqa: E402
from truth import FieldTruth, Reader, fragment_directory, has_file  # noqa: E402

FOLDER = HERE / "versions"
KEY = b"versions of TileDB, 32 bytes key"
KEYED = ("v22/encrypted",)
FOREIGN = ("README.txt", "notes", ".hidden", "*.tmp")
WITHOUT = {"mixed/dense04": ("*.meta",), **{f"v{v}/uncommitted": FOREIGN for v in (10, 12, 22)}}
"""Things that libtiledb 2.30 cannot handle in some arrays, which are read without them: foreign files, and the consolidated fragment metadata that it
wrote itself."""


def schema(facts):
    """`schema.json`, as far as the API reports it. Old schemas appear in today's terms; what differs for that reason is left out."""
    version = facts["format_version"]
    out = {k: facts[k] for k in ("format_version", "array_type", "allows_duplicates", "cell_order", "capacity")}
    if facts["cell_order"] != "hilbert":
        out["tile_order"] = facts["tile_order"]
    out["current_domain"] = shown(facts["current_domain"])
    for part in ("coords_filters", "offsets_filters", "validity_filters"):
        out[part] = None if part == "validity_filters" and version < 7 else pipeline_json(facts[part])
    out["dimensions"] = []
    for one in facts["dimensions"]:
        dimension = {k: shown(one[k]) for k in ("name", "datatype", "cell_val_num", "domain", "tile_extent")}
        # For a dimension without filters of its own, the API reports those of the coordinates.
        if one["filters"] != facts["coords_filters"]:
            dimension["filters"] = pipeline_json(one["filters"])
        out["dimensions"].append(dimension)
    out["attributes"] = []
    for one in facts["attributes"]:
        attribute = {k: one[k] for k in ("name", "datatype", "cell_val_num", "nullable", "enumeration")}
        if version < 5 and not one["name"]:
            attribute["name"] = "__attr"
        fill = one["fill_value"]
        attribute["fill_value"] = json_value(Raw(fill.type, fill.bytes, one["cell_val_num"] != 1))
        if one["fill_value_valid"] is not None:
            attribute["fill_value_valid"] = one["fill_value_valid"]
        attribute["filters"] = pipeline_json(one["filters"])
        out["attributes"].append(attribute)
    out["dimension_labels"] = facts["dimension_labels"]
    return out


def metadata(facts):
    """`metadata.json`."""
    out = {}
    for key, fact in facts.items():
        value = fact["value"]
        if value is not None:
            value = json_value(Raw(value.type, value.bytes, fact["value_num"] != 1))
        out[key.decode()] = fact | {"value": value}
    return out


def enumeration(facts):
    """`enumerations/<name>.json`."""
    several = facts["cell_val_num"] != 1
    return facts | {"values": [json_value(Raw(v.type, v.bytes, several)) for v in facts["values"]]}


def footer(fragment):
    """`footer.json`, as far as the API reports it."""
    facts = fragment.facts
    out = {k: shown(facts[k]) for k in ("format_version", "dense", "cell_num", "non_empty_domain")}
    out["tile_num"] = fragment.tile_num
    out["sparse_tile_num"] = 0 if facts["dense"] else fragment.tile_num
    if facts["format_version"] >= 10:
        out["array_schema_name"] = facts["schema_name"]
    out["has_timestamps"] = has_file(fragment, "t.tdb", 14)
    out["has_delete_metadata"] = has_file(fragment, "dt.tdb", 15)
    return out


def columns(fragment, directories):
    """The columns of a fragment by directory."""
    out = {}
    for directory, name in directories.items():
        field = fragment.fields.get(name)
        if field is None:
            continue
        out[directory] = {"field": name, "cell_size": field.cell_size(), "data": field.data.tobytes().hex()}
        if field.offsets is not None:
            out[directory]["offsets"] = np.append(field.offsets, np.uint64(field.data.size)).tolist()
        if field.validity is not None:
            out[directory]["validity"] = field.validity.tolist()
    return out


def directories(fragment, schemas):
    """{directory below `columns`: field} of what libtiledb reads."""
    schema_facts = schemas.get(fragment.facts["schema_name"]) or next(iter(schemas.values()))
    out = {names.attribute(a["name"]): a["name"] for a in schema_facts["attributes"]}
    if not fragment.facts["dense"]:
        out |= {names.dimension(d["name"], i): d["name"] for i, d in enumerate(schema_facts["dimensions"])}
    if has_file(fragment, "t.tdb", 14):
        out["__timestamps"] = "__timestamps"
    return out


def array(reader, path, relative, counts):
    """The answers about one array."""
    keys = ["name", "format_version", "timestamp_range", "dense", "cell_num", "size", "schema_name", "non_empty_domain"]
    if relative in WITHOUT:
        with reader.folder() as copy:
            shutil.copytree(path, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*WITHOUT[relative]))
            truth = reader.array(copy)
        for fragment in truth.fragments:
            fragment.directory = fragment_directory(path, fragment.facts)
    else:
        truth = reader.array(path, KEY if relative in KEYED else None)
        keys.append("has_consolidated_metadata")
    for fragment in truth.fragments:
        if truth.schema["array_type"] == "dense" and not fragment.facts["dense"]:
            single_cells(reader, path, fragment)
    truth.path = path
    counts.array(truth, relative, relative in KEYED)
    documents = {"schema.json": schema(truth.schema), "metadata.json": metadata(truth.metadata)}
    documents |= {f"schemas/{name}.json": schema(facts) | {"name": name} for name, facts in truth.schemas.items()}
    documents |= {f"enumerations/{names.encode(name)}.json": enumeration(facts) for name, facts in truth.enumerations.items()}
    fragments = {}
    for fragment in truth.fragments:
        below = f"fragments/{fragment.name}"
        documents[f"{below}/footer.json"] = footer(fragment)
        # Up to version 8, consolidated metadata has absolute paths, at which libtiledb does not find the
        # fragments of a moved array.
        told = [k for k in keys if k != "has_consolidated_metadata" or fragment.facts["format_version"] >= 9]
        one = {"visible": {k: shown(fragment.facts[k]) for k in told}, "leaves": shown(fragment.facts["mbrs"]), "deletes": fragment.deletes}
        one["unreadable"] = sorted(fragment.unreadable)
        if fragment.positions is not None:
            one["places"] = fragment.positions.tolist()
        one["columns"] = columns(fragment, directories(fragment, truth.schemas))
        fragments[fragment.name] = one
    return {"kind": "array", "format_version": truth.schema["format_version"], "json": documents, "fragments": fragments}


def single_cells(reader, path, fragment):
    """Fills in the columns of a sparse fragment in a dense array `a` by `x`: libtiledb only reads it as part of the array, where
    the cells that it does not have hold the fill value."""
    with reader.scratch_array(path, fragment) as uri:
        array = reader.lib.open(uri, 0)
        column = reader.lib.read(array, [("a", "INT32", 1, False)], "row-major", [np.array([0, 19], "<i4")], 20)["a"]
        reader.lib.close(array)
    values = column.data.view("<i4")
    x = np.flatnonzero(values != np.iinfo("<i4").min).astype("<i4")
    fragment.fields = {name: FieldTruth(name, "INT32", 1, False, v.view("u1")) for name, v in (("a", values[x]), ("x", x))}
    fragment.unreadable = {}


def group(reader, path):
    """The answers about one group. Only the last part of URIs is compared: the API resolves them."""
    facts = reader.facts.group(path)
    members = [{"name": m["name"], "type": m["type"].upper(), "last": m["uri"].rstrip("/").rsplit("/", 1)[-1]} for m in facts["members"]]
    members.sort(key=lambda m: (m["name"] or "", m["last"]))
    return {"kind": "group", "members": members, "json": {"metadata.json": metadata(facts["metadata"])}}


def main():
    """Writes the file."""
    answers, counts = {}, Counts()
    with Reader(Lib()) as reader:
        for folder, below, _ in sorted(os.walk(FOLDER)):
            below.sort()
            relative = os.path.relpath(folder, FOLDER)
            if is_array(folder):
                answers[relative] = array(reader, folder, relative, counts)
            elif is_group(folder):
                answers[relative] = group(reader, folder)
                counts.group(folder)
    lines = (f"{json.dumps(path)}: {json.dumps(answer, separators=(',', ':'))}" for path, answer in answers.items())
    (FOLDER / "answers.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    counts.write(FOLDER / "counts.json", "tests/data/versions")
    unread = [(p, f, x["unreadable"]) for p, a in answers.items() for f, x in a.get("fragments", {}).items() if x["unreadable"]]
    print(f"{len(answers)} arrays and groups; not readable: {unread or 'nothing'}")


if __name__ == "__main__":
    main()
