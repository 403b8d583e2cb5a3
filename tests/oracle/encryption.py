"""Encrypted arrays through a mount: with their keys, with a wrong one and with none.

The last line is `N passed, N failed`.
"""

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tiledb

from mount import binary, errors, mounted

KEYS = {"north/one": b"0123456789abcdefghijklmnopqrstuv", "south/two": b"VUTSRQPONMLKJIHGFEDCBA9876543210"}
VALUES = np.arange(1000, dtype="<i8") * 37
COUNTS = {"passed": 0, "failed": 0}


def check(what, value):
    """Counts one check."""
    COUNTS["passed" if value else "failed"] += 1
    if not value:
        print("FAIL " + what, flush=True)


def write(folder, name, key):
    """A dense array of two fragments and some metadata."""
    uri = str(Path(folder, name))
    os.makedirs(os.path.dirname(uri), exist_ok=True)
    config = {"sm.encryption_type": "AES_256_GCM", "sm.encryption_key": key.decode()} if key else {}
    with tiledb.scope_ctx(tiledb.Ctx(config)):
        domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 999), tile=250, dtype=np.int32))
        filters = tiledb.FilterList([tiledb.ByteShuffleFilter(), tiledb.ZstdFilter()])
        attributes = [tiledb.Attr("a", dtype=np.int64, filters=filters), tiledb.Attr("s", dtype="ascii", var=True)]
        tiledb.Array.create(uri, tiledb.ArraySchema(domain=domain, attrs=attributes, sparse=False))
        for timestamp in (10, 20):
            with tiledb.open(uri, "w", timestamp=timestamp) as array:
                array[:] = {"a": VALUES + timestamp, "s": np.array([b"text %d" % i for i in range(1000)])}
        with tiledb.open(uri, "w", timestamp=30) as array:
            array.meta["who"] = "somebody"


def fails_with(code, path):
    """Whether reading a file fails with this errno."""
    try:
        Path(path).read_bytes()
    except OSError as error:
        return error.errno == code
    return False


def fragments(array):
    """The fragment directories of a mounted array, oldest first."""
    return sorted((array / "fragments").iterdir(), key=lambda path: path.stat().st_mtime)


def reads(array, what):
    """Checks that everything in a mounted array is readable and right."""
    for fragment, timestamp in zip(fragments(array), (10, 20)):
        data = np.fromfile(fragment / "columns/a/data.bin", "<i8")
        check(f"{what}: values of {fragment.name}", np.array_equal(data, VALUES + timestamp))
        text = (fragment / "columns/s/data.bin").read_bytes()
        check(f"{what}: text of {fragment.name}", text == b"".join(b"text %d" % i for i in range(1000)))
    check(f"{what}: metadata", '"somebody"' in (array / "metadata.json").read_text())


def refuses(array, what):
    """Checks what an array shows without its key, and that the rest fails with EACCES."""
    check(f"{what}: listed", len(fragments(array)) == 2)
    for name in ("schema.json", "metadata.json"):
        check(f"{what}: {name} is EACCES", fails_with(errno.EACCES, array / name))
    for fragment in fragments(array):
        footer = (fragment / "footer.json").read_text()
        check(f"{what}: the footer's front", '"dense": true' in footer and '"format_version": 22' in footer)
        check(f"{what}: R-tree is EACCES", fails_with(errno.EACCES, fragment / "rtree.json"))
        try:
            os.listdir(fragment / "columns")
            check(f"{what}: columns are EACCES", False)
        except OSError as error:
            check(f"{what}: columns are EACCES", error.errno == errno.EACCES)
    summary = (array / "fragments.json").read_text()
    check(f"{what}: fragments.json has what is in the clear", '"dense": true' in summary and "key" in summary)


def secret_stays_secret(point, log):
    """The keys are in no argument list, log or file of the mount."""
    secrets = [form for key in KEYS.values() for form in (key, key.hex().encode())]
    places = {"log": Path(log).read_bytes()}
    for name in ("stats.json", "errors.jsonl", "version"):
        places[name] = (point / ".tiledbfs" / name).read_bytes()
    daemons = 0
    for process in Path("/proc").iterdir():
        try:
            arguments = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"tiledbfs" in arguments and os.fsencode(point) in arguments:
            daemons += 1
            places[f"arguments of {process.name}"] = arguments
            places[f"environment of {process.name}"] = (process / "environ").read_bytes()
    check("the daemon is found", daemons >= 1)
    for place, content in places.items():
        check(f"no key in {place}", not any(secret in content for secret in secrets))


def main():
    """Runs all checks."""
    with tempfile.TemporaryDirectory(prefix="tiledbfs-encryption-") as folder:
        source, keys = Path(folder, "source"), Path(folder, "keys")
        keys.mkdir()
        for name, key in KEYS.items():
            write(source, name, key)
        write(source, "plain", None)
        raw, text, wrong, short = (keys / name for name in ("raw", "hex", "wrong", "short"))
        raw.write_bytes(KEYS["north/one"])
        text.write_text(KEYS["south/two"].hex() + "\n")
        wrong.write_bytes(b"x" * 32)
        short.write_bytes(b"x" * 31)
        one, two = "north/one", "south/two"
        log = str(keys / "log")

        with mounted(source, "--log-file", log) as point:
            refuses(point / one, "no key")
            reads(point / "plain", "beside an array without key")
            lines = [line for line in errors(point) if line["path"].startswith(one)]
            check("errors.jsonl says that the key is missing", any("key" in line["cause"] for line in lines))
        with mounted(source, "--key-file", str(wrong)) as point:
            refuses(point / one, "wrong key")
            reads(point / "plain", "beside an array with a wrong key")
        with mounted(source, "--key-file", str(raw)) as point:
            reads(point / one, "one key for all")
            refuses(point / two, "another array's key")
        options = ["--key-file", f"{one}={raw}", "--key-file", f"south={text}", "--log-file", log]
        with mounted(source, *options) as point:
            reads(point / one, "key by path")
            reads(point / two, "key by path of a directory above")
            secret_stays_secret(point, log)
        with mounted(source / two, "--key-file", str(text)) as point:
            reads(point, "the source itself")
        empty = Path(folder, "mnt")
        empty.mkdir()
        for bad in (str(short), str(keys / "missing")):
            command = [binary(), "mount", str(source), str(empty), "--key-file", bad]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            check(f"a bad key file is refused: {bad}", done.returncode != 0 and bad in done.stderr)
            check("and nothing is mounted", not os.path.ismount(empty))
    print(f"{COUNTS['passed']} passed, {COUNTS['failed']} failed")
    sys.exit(1 if COUNTS["failed"] or not COUNTS["passed"] else 0)


if __name__ == "__main__":
    main()
