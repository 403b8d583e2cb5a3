"""Writes `tests/VERIFIED.md` from what oracle runs have counted: `python3 tests/oracle/table.py COUNTS.json…` (see `run.py --counts`).

What `cargo test` reads in `tests/data/versions` is counted there already and always part of the page.
"""

import argparse
import collections
import json
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "VERIFIED.md"
VERSIONS_COUNTS = HERE.parent / "data/versions/counts.json"
VERSIONS = range(1, 24)
BY_HAND = [
    # (structure, versions, test in tests/formats/by_hand.rs)
    ("optional footer sections, known and unknown", [23], "optional_sections_of_version_23"),
    ("global-order bounds of tiles", [23], "optional_sections_of_version_23"),
    ("sparse fragments", [23], "optional_sections_of_version_23"),
    ("fixed-size fields", [23], "optional_sections_of_version_23"),
    ("several tiles", [23], "optional_sections_of_version_23"),
    ("`.wrt` files", [23], "optional_sections_of_version_23"),
    ("null non-empty domain", [22, 23], "a_null_non_empty_domain_with_and_without_zeros_in_its_place"),
    ("compressed coordinates of version 1", [1], "coordinates_of_version_1_are_split_where_they_are_compressed"),
    ("`.upd` files", [22], "updates_are_shown_alone_and_inside_consolidated_commits"),
]
LEADING = ["arrays", "fragments", "columns"]


def merge(files):
    """The sums of several runs."""
    filters, structures = collections.Counter(), collections.Counter()
    groups, runs = collections.Counter(), []
    for file in files:
        content = json.loads(Path(file).read_text())
        runs.append(content["run"])
        for name, datatype, n in content["filters"]:
            filters[name, datatype] += n
        for name, version, n in content["structures"]:
            structures[name, version] += n
        for what in ("fragments", "columns"):
            for version, n in content[what]:
                structures[what, version] += n
        for name, n in content["groups"]:
            groups[name] += n
    return filters, structures, groups, sorted(runs)


def table(rows, columns, cell, corner):
    """A Markdown table."""
    lines = [f"| {corner} | " + " | ".join(str(c) for c in columns) + " |", "|---|" + "--:|" * len(columns)]
    lines += [f"| {row} | " + " | ".join(cell(row, c) for c in columns) + " |" for row in rows]
    return lines


def page(files):
    """The text of the page."""
    filters, structures, groups, runs = merge(files)
    source = (HERE.parent / "formats/by_hand.rs").read_text()
    for _, _, test in BY_HAND:
        assert re.search(rf"#\[test\]\nfn {test}\(\)", source), f"tests/formats/by_hand.rs has no test {test}"
    hand = {(name, v) for name, versions, _ in BY_HAND for v in versions}
    names = sorted({s for s, _ in structures} | {n for n, _ in hand} - set(LEADING), key=lambda s: (s not in LEADING, LEADING.index(s) if s in LEADING else 0, s.lower()))

    def by_version(row, version):
        n = structures[row, version]
        return f"{n}" if n else "hand" if (row, version) in hand else ""

    datatypes = sorted({t for _, t in filters}, key=lambda t: (t in ("offsets", "validity"), t))
    kinds = sorted({f for f, _ in filters}, key=lambda f: (f == "no filter", f))
    total = {what: sum(n for (name, _), n in structures.items() if name == what) for what in LEADING}
    out = [
        "# What has been verified",
        "",
        "Written by `tests/oracle/table.py` from what the oracle runs have counted; not edited by hand. A number is that of arrays (of fragments and columns in",
        "their rows) which a mount showed without any difference from what libtiledb 2.30 reads: every value, and every fact that its API tells. `hand`: no",
        "released writer produces it, or none was at hand; verified only on bytes built by hand from the description of the format (`tests/formats/by_hand.rs`).",
        "An array that is in two runs counts twice, as does the only public one of version 1.",
        "",
        f"Runs: {', '.join(runs)}. In all {total['arrays']} arrays, {total['fragments']} fragments, {total['columns']} columns"
        + f" and {sum(groups.values())} groups ({', '.join(f'{n} with {k}' for k, n in sorted(groups.items()))}).",
        "",
        "## Structure by format version",
        "",
        *table(names, VERSIONS, by_version, "structure"),
        "",
        "## Filter by datatype",
        "",
        "Filters of attributes and dimensions, alone or in a chain; the last rows are those of offsets and validity.",
        "",
        *table(datatypes, kinds, lambda t, f: str(filters[f, t] or ""), "datatype"),
    ]
    return "\n".join(out) + "\n"


def main():
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("counts", nargs="+")
    parser.add_argument("--output", type=Path, default=PAGE)
    args = parser.parse_args()
    args.output.write_text(page([VERSIONS_COUNTS, *args.counts]))


if __name__ == "__main__":
    main()
