"""Values to write: by datatype, in styles that filters react to, from a given random generator."""

import numpy as np

from capi import VAR, Column, np_type
from facts import OPAQUE, TEXT_BYTES, TEXT_WIDE

WORDS = [b"", b"a", b"bb", b"tile", b"fragment", b"a longer piece of text", b"0", b"zzz", b"x y", b"END"]
STYLES = ("random", "small", "sorted", "runs", "constant")


def elements(rng, datatype, n, style="random"):
    """`n` single values of a datatype as a NumPy array of its stored type.

    Styles: `random` over the whole range with the extremes in it, `small` numbers, `sorted` ascending, `runs` of equal values, `constant` zero.
    """
    dtype = np_type(datatype)
    if style == "constant":
        return np.zeros(n, dtype)
    if style == "runs":
        few = elements(rng, datatype, max(1, n // 7), "small")
        return np.sort(few[rng.integers(0, len(few), n)]) if n else few[:0]
    if datatype == "BOOL":
        out = rng.integers(0, 2, n).astype(dtype)
    elif datatype in TEXT_BYTES:
        out = rng.integers(0x20, 0x7F, n).astype(dtype)
    elif datatype in TEXT_WIDE:
        out = rng.integers(0x61, 0x3000, n).astype(dtype)
    elif datatype in OPAQUE:
        out = rng.integers(0, 256, n).astype(dtype)
    elif dtype.kind == "f":
        out = _floats(rng, dtype, n, style)
    elif style == "random":
        info = np.iinfo(dtype)
        out = rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
        out[: min(n, 3)] = np.array([info.min, info.max, 0], dtype)[: min(n, 3)]
    else:
        out = rng.integers(0, 100, n).astype(dtype)
    return np.sort(out) if style == "sorted" else out


def _floats(rng, dtype, n, style):
    if style == "random":
        out = (rng.standard_normal(n) * 10.0 ** rng.integers(-9, 9, n)).astype(dtype)
        special = np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).tiny], dtype)
        out[: min(n, 5)] = special[: min(n, 5)]
        return out
    return (rng.integers(0, 400, n) / 4).astype(dtype)


def var_cells(rng, datatype, n, style="random", longest=6):
    """`n` var-sized cells as byte strings; empty ones among them.

    The longest text is never last: libtiledb 2.30 miscounts the length of the last run in its string RLE.
    """
    if datatype in TEXT_BYTES:
        pool = WORDS[:3] if style == "constant" else WORDS
        picks = rng.integers(0, len(pool), n)
        if style in ("runs", "sorted"):
            picks.sort()
        cells = [pool[i] for i in picks]
        if n:
            cells[0], cells[-1] = max(pool, key=len), b"a"
        return cells
    counts = rng.integers(0, longest + 1, n)
    flat = elements(rng, datatype, int(counts.sum()), style).tobytes()
    ends = np.cumsum(counts) * np_type(datatype).itemsize
    return [flat[a:b] for a, b in zip([0, *ends[:-1]], ends)]


def column(rng, attr, n, style="random"):
    """`n` cells of an attribute; a quarter of them null if it is nullable."""
    validity = (rng.random(n) > 0.25).astype("u1") if attr.nullable else None
    if attr.cvn == VAR:
        return Column.of_cells(var_cells(rng, attr.type, n, style), validity)
    return Column(elements(rng, attr.type, n * attr.cvn, style), validity=validity)


def coordinates(rng, dims, n, dups=False):
    """Coordinates of at most `n` cells, without duplicates unless allowed: {dimension: Column}, and the number of cells."""
    picks = [rng.integers(0, _choices(d), n) for d in dims]
    if not dups:
        picks = list(np.unique(np.stack(picks), axis=1))
        order = rng.permutation(picks[0].size)
        picks = [p[order] for p in picks]
    return {d.name: _coordinate(d, p) for d, p in zip(dims, picks)}, picks[0].size


def _choices(dim):
    """The number of distinct coordinates of a dimension to choose from."""
    if dim.type == "STRING_ASCII" or dim.type.startswith("FLOAT"):
        return 100_000
    return min(int(dim.hi) - int(dim.lo) + 1, 1 << 40)


def _coordinate(dim, picks):
    """Turns numbers below `_choices` into coordinates."""
    if dim.type == "STRING_ASCII":
        return Column.of_cells([b"k%d" % p if p % 50 else b"" for p in picks])
    dtype = np_type(dim.type)
    if dtype.kind == "f":
        return Column((dim.lo + (dim.hi - dim.lo) * (picks / 100_000)).astype(dtype))
    span, most = int(dim.hi) - int(dim.lo), _choices(dim) - 1
    # Spread over the whole domain, with its ends.
    return Column(np.array([int(dim.lo) + (int(p) * span // most if most else 0) for p in picks], dtype))
