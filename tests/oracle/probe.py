"""Finds which attributes of the `filters` set libtiledb can write and read back: `python3 probe.py` writes `accepted_filters.json` beside this file.

Attributes that are in the table already are not probed again; remove the file when the release of libtiledb changes. It takes minutes. Pipelines that libtiledb accepts may still make it
crash, spoil its memory or give back other values, and some do so only sometimes; so the work is done in processes of their own, repeatedly.
An attribute is accepted when it always comes back as it was written.
"""

import json
import multiprocessing
import os
import tempfile
from pathlib import Path

import numpy as np

import values
from capi import Dim, Lib, Schema, TileDBError

TABLE = Path(__file__).with_name("accepted_filters.json")
ROUNDS = 4


def line_schema(attrs, cells, extent):
    """A dense line of `cells` cells."""
    return Schema("dense", [Dim("x", "INT32", 0, cells - 1, extent)], attrs)


def fill(lib, uri, attrs, cells, styles, rng_of):
    """Writes every cell. Values depend only on the attribute."""
    columns = {a.name: values.column(rng_of(a), a, cells, styles[a.name]) for a in attrs}
    lib.write(uri, columns, "global-order", [np.array([0, cells - 1], "<i4")], timestamp=10)
    return columns


def _verdict(lib, number, attr, cells, extent, style, rng_of):
    """None if the attribute is read back as written, otherwise the problem."""
    uri, whole = f"mem://{number}", [np.array([0, cells - 1], "<i4")]
    try:
        lib.create(uri, line_schema([attr], cells, extent), timestamp=1)
    except TileDBError as error:
        return f"refused: {error}"
    try:
        written = fill(lib, uri, [attr], cells, {attr.name: style}, rng_of)[attr.name]
    except TileDBError as error:
        return f"not written: {error}"
    array = lib.open(uri, 0)
    try:
        read = lib.read(array, [(attr.name, attr.type, attr.cvn, attr.nullable)], "row-major", whole, cells)[attr.name]
    except TileDBError as error:
        return f"not read: {error}"
    finally:
        lib.close(array)
    lossy = any(n == "SCALE_FLOAT" for n, _ in attr.pipeline.filters)
    return None if lossy or written.data.tobytes() == read.data.tobytes() else "read: other values than were written"


def _serve(pipe):
    """The probing process: one verdict after the other."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what libc has to say when memory is spoilt
    lib, number = Lib(), 0
    while (job := pipe.recv()) is not None:
        number += 1
        pipe.send(_verdict(lib, number, *job))


class Prober:
    """Asks the probing process, and starts another one after any failure."""

    def __init__(self):
        self.process, self.pipe = None, None

    def verdict(self, *job):
        """The verdict on one attribute; unless it is clearly good or clearly refused, it is given in a fresh process."""
        answer = self._ask(job)
        if answer is None or answer.startswith(("refused", "not written")):
            return answer
        self._stop()
        answer = self._ask(job)
        self._stop()
        return answer

    def _ask(self, job):
        try:
            self._start()
            self.pipe.send(job)
            if self.pipe.poll(60):
                return self.pipe.recv()
        except (EOFError, OSError):
            pass
        self._stop()
        return "crash"

    def _start(self):
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()

    def _stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


class ByProbing:
    """Decides by asking libtiledb, and collects the table."""

    def __init__(self, rng_of):
        self.rng_of, self.prober, self.table = rng_of, Prober(), {}
        self.known = json.loads(TABLE.read_text()) if TABLE.exists() else {}

    def decide(self, name, attrs, cells, extent, style_of):
        """{attribute: style of values} of the accepted ones. Refused ones are tried again with zeros only."""
        rows, known = {}, self.known.get(name, {})
        for attr in attrs:
            if attr.name in known:
                rows[attr.name] = known[attr.name]
                continue
            for style in (style_of(attr), "constant"):
                verdicts = [self.prober.verdict(attr, cells, extent, style, self.rng_of) for _ in range(ROUNDS)]
                worst = next((v for v in verdicts if v), None)
                rows[attr.name] = {"style": style} if worst is None else {"refused": worst.split(":")[0]}
                if worst is None or worst.startswith("refused"):
                    break
        self.table[name] = rows
        return {n: row["style"] for n, row in rows.items() if "style" in row}


class ByTable:
    """Decides by the table of an earlier run."""

    def __init__(self):
        self.table = json.loads(TABLE.read_text())

    def decide(self, name, attrs, cells, extent, style_of):
        """{attribute: style of values} of those accepted."""
        rows = self.table[name]
        return {a.name: rows[a.name]["style"] for a in attrs if "style" in rows[a.name]}


def main():
    """Writes the table."""
    import matrix_filters
    from matrix import Writer

    with tempfile.TemporaryDirectory() as folder:
        w = Writer(folder)
        decider = ByProbing(matrix_filters.AttrRng(w.seed))
        for write in (matrix_filters.alone, matrix_filters.pairs, matrix_filters.chains):
            write(w, decider)
            print(write.__name__, len(decider.table), flush=True)
    lines = (f"{json.dumps(n)}: {json.dumps(rows)}" for n, rows in decider.table.items())
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
