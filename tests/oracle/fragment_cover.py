"""Which cells of a dense view nobody wrote, plainly: a mask of the region on which the non-empty domains of fragments, as libtiledb tells them, are painted
one after the other. Sparse fragments, which old versions wrote into dense arrays, paint the cells at their coordinates."""

import math
import os

import numpy as np

from capi import Lib, np_type
from facts import Facts
from view_files import load


def domains(uri, shown):
    """{name: (non-empty domain in integers, whether the fragment is sparse)} of the fragments of a dense array, as libtiledb tells them; of those that a
    later one has replaced as the directory `shown` of a mount does."""
    found = shown_domains(shown)
    for one in Facts(Lib()).fragments(str(uri)):
        box = [tuple(np.frombuffer(end.bytes, np_type(end.type)).tolist()[0] for end in ends) for ends in one["non_empty_domain"]]
        found[one["name"]] = box, not one["dense"]
    return found


def shown_domains(shown):
    """The same as the mount shows them, which other tests hold against libtiledb."""
    fragments = load(os.path.join(shown, "fragments.json"))
    return {one["name"]: (one["non_empty_domain"], not one["dense"]) for one in fragments}


def coordinates(shown, name, rank):
    """The cells of a sparse fragment that the directory `shown` of a mount shows: one row a cell."""
    schema = load(os.path.join(shown, "schema.json"))
    columns = [os.path.join(shown, "fragments", name, "columns", d["name"] or f"__dim_{i}", "data.npy") for i, d in enumerate(schema["dimensions"])]
    return np.stack([np.load(path).astype("i8") for path in columns[:rank]], axis=1)


def written(shown, folder, known):
    """For each cell of the dense view in `folder` of the array in `shown` of a mount, row-major: whether a fragment wrote it. And whether the domains of
    dense fragments alone prove that all are. `known` is what `domains` has found."""
    view = load(os.path.join(folder, "view.json"))
    shape, region = view["shape"], view["region"]
    if not math.prod(shape):
        return np.ones(0, bool), True
    mask, sure = np.zeros(shape, bool), np.zeros(shape, bool)
    low = [int(ends[0]) for ends in region]
    for name in view["fragments"]:
        box, sparse = known[name]
        if box is None:
            continue
        if sparse:
            cells = coordinates(shown, name, len(shape)) - low
            inside = cells[((cells >= 0) & (cells < shape)).all(axis=1)]
            mask[tuple(inside.T)] = True
            continue
        part = tuple(slice(min(max(a - lo, 0), n), min(max(b - lo + 1, 0), n)) for (a, b), lo, n in zip(box, low, shape))
        mask[part], sure[part] = True, True
    return mask.reshape(-1), bool(sure.all())
