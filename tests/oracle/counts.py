"""Counts what an oracle run has compared without a difference: arrays by filter and datatype, and by structure and format version. `table.py` makes a page of it."""

import collections
import json
import os
import re

from compare import commit_files, fragment_folders
from truth import has_file

FANOUT = 10
"""Children per node of an R-tree."""


class Counts:
    """Sets of arrays by their properties."""

    def __init__(self):
        self.filters = collections.defaultdict(set)
        self.structures = collections.defaultdict(set)
        self.fragments, self.columns, self.groups = collections.Counter(), collections.Counter(), collections.Counter()

    def array(self, truth, label, encrypted):
        """Notes an array without differences."""
        version = truth.schema["format_version"]
        has = lambda what, v=version: self.structures[what, v].add(label)  # noqa: E731
        has("arrays")
        present = {
            "array metadata": truth.metadata, "enumerations": truth.enumerations, "dimension labels": truth.schema["dimension_labels"],
            "current domain": truth.schema["current_domain"], "several schemas": len(truth.schemas) > 1, "no fragment": not truth.fragments,
            "fragments that a reader does not see": len(fragment_folders(truth.path)) > len(truth.fragments),
            "fragments of several versions": len({f.facts["format_version"] for f in truth.fragments}) > 1,
        }
        for what, value in present.items():
            if value:
                has(what)
        files = commit_files(truth.path) + consolidated_metadata(truth.path)
        for name in files:
            stem, extension = name.rsplit("/", 1)[-1].rsplit(".", 1)
            number = re.fullmatch(r"__\d+_\d+_[0-9a-f]{32}_(\d+)", stem)
            has(f"`.{extension}` files", int(number[1]) if number else version)
        for fragment in truth.fragments:
            self.fragment(truth, fragment, label, encrypted)

    def fragment(self, truth, fragment, label, encrypted):
        """Notes one fragment."""
        facts = fragment.facts
        version = facts["format_version"]
        schema = truth.schemas.get(facts["schema_name"]) or truth.schema
        fields = {f["name"]: f for f in schema["attributes"]} | ({} if facts["dense"] else {d["name"]: d for d in schema["dimensions"]})
        names = [n for n in fields if n in fragment.fields]
        self.fragments[version] += 1
        self.columns[version] += len(fragment.fields)
        kinds = {d["datatype"] for d in schema["dimensions"]}
        found = {
            "dense fragments": facts["dense"],
            "sparse fragments": not facts["dense"] and schema["array_type"] == "sparse",
            "sparse fragments in dense arrays": not facts["dense"] and schema["array_type"] == "dense",
            "coordinates stored together": not facts["dense"] and version < 5,
            "fixed-size fields": any(fields[n]["cell_val_num"] == 1 for n in names),
            "several values a cell": any(fields[n]["cell_val_num"] not in (1, "var") for n in names),
            "var-sized fields": any(fields[n]["cell_val_num"] == "var" for n in names),
            "nullable fields": any(fields[n].get("nullable") for n in names),
            "string dimensions": not facts["dense"] and "STRING_ASCII" in kinds,
            "dimensions of different types": len(kinds) > 1,
            "Hilbert order": schema["cell_order"] == "hilbert",
            "column-major cells": schema["cell_order"] == "col-major",
            "duplicates allowed": schema["allows_duplicates"],
            "several tiles": fragment.tile_num > 1,
            "R-trees of several levels": not facts["dense"] and fragment.tile_num > FANOUT,
            "consolidated fragments": facts["timestamp_range"][0] != facts["timestamp_range"][1],
            "cell timestamps": has_file(fragment, "t.tdb", 14),
            "delete timestamps and condition indexes": has_file(fragment, "dt.tdb", 15),
            "an older schema than the array's": facts["schema_name"] and truth.schemas.get(facts["schema_name"], truth.schema) != truth.schema,
            "the unnamed attribute": "" in fields or "__attr" in fields,
            "names that file names encode": any(re.search(r"[^\w ]", n) for n in fields),
            "encryption": encrypted,
        }
        for what, value in found.items():
            if value:
                self.structures[what, version].add(label)
        for name in names:
            field = fields[name]
            of_field = field["filters"]["filters"] or (schema["coords_filters"]["filters"] if "tile_extent" in field and version >= 5 else [])
            self.pipeline(of_field, field["datatype"], label)
            if field["cell_val_num"] == "var":
                self.pipeline(schema["offsets_filters"]["filters"], "offsets", label)
            if field.get("nullable"):
                self.pipeline(schema["validity_filters"]["filters"], "validity", label)

    def pipeline(self, filters, datatype, label):
        """Notes the filters that a column of this type went through."""
        for one in filters or [{"type": "no filter"}]:
            self.filters[one["type"], datatype].add(label)

    def group(self, path):
        """Notes a group, by the version of its last details file."""
        folder = os.path.join(path, "__group")
        details = sorted(n for n in os.listdir(folder) if "." not in n) if os.path.isdir(folder) else []
        last = re.fullmatch(r"__\d+_\d+_[0-9a-f]{32}(?:_(\d+))?", details[-1]) if details else None
        self.groups["no details" if not last else f"version {last[1] or 1}"] += 1

    def write(self, path, run):
        """Writes the counts of this run."""
        content = {
            "run": run,
            "filters": [[f, t, len(arrays)] for (f, t), arrays in sorted(self.filters.items())],
            "structures": [[s, v, len(arrays)] for (s, v), arrays in sorted(self.structures.items())],
            "fragments": sorted(self.fragments.items()), "columns": sorted(self.columns.items()), "groups": sorted(self.groups.items()),
        }
        with open(path, "w") as f:
            f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in content.items()) + "\n}")
            f.write("\n")


def consolidated_metadata(path):
    """Paths of consolidated fragment metadata files of an array."""
    found = []
    for folder in ("", "__fragment_meta"):
        where = os.path.join(path, folder)
        if os.path.isdir(where):
            found += [os.path.join(folder, n) for n in os.listdir(where) if n.endswith(".meta")]
    return found
