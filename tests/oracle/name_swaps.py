"""Names are exchanged in a source that is mounted with `allow_other`: nobody reads what they could not read without the mount.

    python3 name_swaps.py --seconds 600

A user owns an array and a directory of arrays. He exchanges, in a loop, its data files, its directories and the array
itself for symbolic links to those of an array that only root may read, for private files and directories that he may
rename but not read, for hard links of them, and for links that lead outside of the source. All arrays have fragments of
the same names and files of the same lengths, so that what is kept of one fits the other. Meanwhile root reads the same
paths, so that whatever can be kept of the private array is kept, and two other users read them: they must never meet a
private value or name, and not even root a value or name from outside of the source.

The last line is `N passed, N failed`.
"""

import argparse
import contextlib
import mmap
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tiledb

from mount import mounted
from plain_tools import Checks

ATTACKER, STRANGER = 4001, 65534
CELLS = 4096
NUMBERS = {"public": 0x11223344, "secret": 0x5EC2E75EC2E75EC2, "foreign": 0x0F0E16DF0E16DF0E}
PAUSES = [0, 0, 0.001, 0.01, 0.05, 0.12, 0.35]
"""Seconds between exchanges: around the times for which the program and the kernel keep names and modes."""
SEEN = {"secret": 0, "foreign": 1, "public": 2, "reads": 3, "swaps": 4}


def write(template, path, word):
    """A copy of the array `template` whose one fragment has `word` in all of its values. Returns the fragment's name."""
    shutil.copytree(template, path)
    with tiledb.open(str(path), "w", timestamp=1000) as array:
        array[:] = {"a": np.full(CELLS, NUMBERS[word], np.int64), "v": np.full(CELLS, word.ljust(7), "S7")}
        array.meta["note"] = word
    (fragment,) = (path / "__fragments").iterdir()
    return fragment.name


def rename_parts(path, fragment, word):
    """Gives the fragment and the metadata of an array names that all arrays share."""
    (path / "__fragments" / fragment).rename(path / "__fragments" / shared_name)
    (path / "__commits" / f"{fragment}.wrt").rename(path / "__commits" / f"{shared_name}.wrt")
    (metadata,) = (path / "__meta").iterdir()
    metadata.rename(path / "__meta" / "__1000_1000_0123456789abcdef0123456789abcdef")


def own(path, user):
    for folder, folders, files in os.walk(path):
        for name in [folder, *(os.path.join(folder, file) for file in files)]:
            os.chown(name, user, user)
            os.chmod(name, 0o755 if os.path.isdir(name) else 0o644)


def build(root):
    """The source at `root/src`, and a directory outside of it."""
    global shared_name
    source = root / "src"
    source.mkdir()
    schema = tiledb.ArraySchema(
        tiledb.Domain(tiledb.Dim("x", domain=(0, CELLS - 1), tile=512, dtype=np.int32)),
        [tiledb.Attr("a", dtype=np.int64), tiledb.Attr("v", dtype="ascii", var=True)],
    )
    tiledb.Array.create(str(root / "template"), schema)
    paths = {
        "att": "public", "home/arr": "public", "home/dir/plain": "public", "vault/secret_member": "secret", "sec": "secret",
    }  # fmt: skip
    shared_name = None
    for path, word in [*paths.items(), ("../outside/foreign_member", "foreign")]:
        fragment = write(root / "template", source / path, word)
        shared_name = shared_name or fragment
        rename_parts(source / path, fragment, word)
    own(root, 0)
    for path in ["att", "home"]:
        own(source / path, ATTACKER)
    # Private things in the attacker's directories: he may rename them, but neither read nor enter them.
    fragments = source / "att/__fragments"
    shutil.copytree(source / "sec/__fragments" / shared_name, fragments / "private")
    os.chmod(fragments / "private", 0o700)
    shutil.copytree(source / "sec", source / "home/private")
    os.chmod(source / "home/private", 0o700)
    shutil.copytree(source / "vault", source / "home/dir/private")
    os.chmod(source / "home/dir/private", 0o700)
    private = source / "sec/__fragments" / shared_name
    data = fragments / shared_name
    for file in ["a0.tdb", "a1_var.tdb", "__fragment_metadata.tdb"]:
        shutil.copy(private / file, data / f"{file}.private")
        os.chmod(data / f"{file}.private", 0o600)
        # The same inode has another name in the private directory.
        os.chmod(private / file, 0o600)
        os.link(private / file, data / f"{file}.hard")
    for path in ["sec", "vault"]:
        os.chmod(source / path, 0o700)
    return source


def become(user):
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def exchange(one, other):
    """Exchanges two names, at once as far as the second is a link or file that can replace the first."""
    aside = f"{one}.aside"
    os.rename(one, aside)
    try:
        os.rename(other, one)
    except OSError:
        os.rename(aside, one)
        raise
    os.rename(aside, other)


@contextlib.contextmanager
def exchanged(one, other):
    """Puts `other` in the place of `one` for a while."""
    exchange(one, other)
    try:
        yield
    finally:
        exchange(one, other)


@contextlib.contextmanager
def linked(name, target):
    """Puts a symbolic link in the place of `name` for a while."""
    link, aside = f"{name}.link", f"{name}.own"
    os.symlink(target, link)
    if os.path.isdir(name):
        os.rename(name, aside)
    else:
        os.link(name, aside)
    os.rename(link, name)
    try:
        yield
    finally:
        os.rename(name, link)
        os.rename(aside, name)
        os.unlink(link)


def ways(source):
    """All ways of exchanging names in the array and in the directory of arrays, as functions that return what holds while
    they are exchanged."""
    att, home, sec = source / "att", source / "home", source / "sec"
    data = att / "__fragments" / shared_name
    outside = source.parent / "outside"
    found = {"att": [], "home": []}

    def add(how, name, other):
        found[name.relative_to(source).parts[0]].append(lambda: how(str(name), str(other)))

    for file in ["a0.tdb", "a1.tdb", "a1_var.tdb", "__fragment_metadata.tdb"]:
        secret = sec / "__fragments" / shared_name / file
        add(linked, data / file, secret)
        add(linked, data / file, os.path.relpath(secret, data))
        if file != "a1.tdb":
            add(exchanged, data / file, data / f"{file}.private")
            add(exchanged, data / file, data / f"{file}.hard")
    for part in ["__fragments", "__meta", "__commits", "__schema"]:
        add(linked, att / part, sec / part)
        add(linked, att / part, outside / "foreign_member" / part)
    add(linked, data, os.path.relpath(sec / "__fragments" / shared_name, data.parent))
    add(exchanged, data, att / "__fragments/private")
    for target in [sec, "../sec", outside / "foreign_member", "../../outside/foreign_member"]:
        add(linked, home / "arr", target)
    add(exchanged, home / "arr", home / "private")
    for target in ["../vault", source / "vault", outside, "../../outside"]:
        add(linked, home / "dir", target)
    add(exchanged, home / "dir/plain", home / "dir/private")
    add(linked, home / "dir/plain", source / "vault/secret_member")
    return found


def attack(source, part, seed, until, seen):
    """Exchanges names of one part of all ways until the time `until`, in bursts or with pauses."""
    become(ATTACKER)
    rng = random.Random(seed)
    some_ways = ways(source)[part]
    while time.monotonic() < until:
        way = rng.choice(some_ways)
        times, pauses = rng.choice([(1, PAUSES), (3, PAUSES), (200, [0]), (50, [0, 0.001])])
        for _ in range(times):
            with way():
                time.sleep(rng.choice(pauses))
            seen[SEEN["swaps"]] += 1
            time.sleep(rng.choice(pauses))


def targets(point):
    """Files and directories of the mount to read."""
    files, folders = [], [point / "home", point / "home/dir"]
    for array in ["att", "home/arr", "home/dir/plain", "home/dir/private", "home/dir/secret_member"]:
        array = point / array
        fragment = array / "fragments" / shared_name
        columns = [f"{part}/{file}" for part in "av" for file in ["data.bin", "data.npy", "tiles/0.data.bin"]]
        files += [fragment / "columns" / column for column in columns] * 2
        files += [fragment / name for name in ["footer.json", "tiles.json"]]
        files += [array / "data/columns" / part / "data.bin" for part in "av"] * 3
        files += [array / "data/table.csv", array / "data/table.parquet", array / "data/array.nc"]
        files += [array / "data/view.json", array / "data/array.zarr/a/c/0"]
        files += [array / f"{name}.json" for name in ["schema", "metadata", "fragments", "commits"]]
        folders += [array, array / "fragments", array / "data", fragment, array / "at"]
    return files, folders


def contents(path, rng):
    """The bytes of a file, read in one of several ways."""
    if rng.random() < 0.3:
        os.stat(path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if rng.random() < 0.3:
            with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped:
                return bytes(mapped)
        if rng.random() < 0.2:
            # What is opened late is not what was there when the file was opened.
            time.sleep(rng.choice(PAUSES))
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read(point, user, seed, until, seen):
    """Reads as a user until the time `until`, and counts in `seen` the words that were met."""
    if user:
        become(user)
    rng = random.Random(seed + seen[SEEN["reads"]])
    files, folders = targets(point)
    marks = {word: [word.encode(), number.to_bytes(8, "little"), str(number).encode()] for word, number in NUMBERS.items()}
    while time.monotonic() < until:
        path = rng.choice(files) if rng.random() < 0.8 else rng.choice(folders)
        try:
            if path in folders:
                found = b"\n".join(os.fsencode(name) for name in os.listdir(path))
            else:
                found = contents(path, rng)
        except (OSError, ValueError):
            continue
        seen[SEEN["reads"]] += 1
        for word, of_word in marks.items():
            if any(mark in found for mark in of_word):
                seen[SEEN[word]] += 1
                if word == "secret" and user:
                    print(f"user {user} met {word} in {path}", file=sys.stderr, flush=True)


def work(jobs, until, checks):
    """Does jobs, (function, arguments), in processes of their own until the time `until`. Whoever reads mapped memory whose
    file cannot be read any more is ended by SIGBUS, and begins again."""
    start = lambda job: multiprocessing.Process(target=job[0], args=job[1])
    running = [(job, start(job)) for job in jobs]
    ends = set()
    for _, process in running:
        process.start()
    while running:
        job, process = running.pop(0)
        process.join(0.1)
        if process.exitcode is None:
            running.append((job, process))
            continue
        ends.add(process.exitcode)
        if process.exitcode == -signal.SIGBUS and time.monotonic() < until:
            running.append((job, start(job)))
            running[-1][1].start()
    checks.equal("all processes end well", ends <= {0, -signal.SIGBUS}, True)


def run(seconds, seed, follow):
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="tiledbfs-swaps-") as folder:
        root = Path(folder)
        os.chmod(root, 0o755)
        source = build(root)
        with mounted(source, "-o", "allow_other" + ",follow_symlinks" * follow) as point:
            os.chmod(point.parent, 0o755)
            until = time.monotonic() + seconds
            users = {"root": 0, "the attacker": ATTACKER, "a stranger": STRANGER}
            seen = {name: multiprocessing.Array("Q", len(SEEN)) for name in [*users, "exchanges"]}
            parts = ["att", "home"]
            jobs = [(attack, (source, part, seed + i, until, seen["exchanges"])) for i, part in enumerate(parts)]
            for number, (name, user) in enumerate(users.items()):
                jobs.append((read, (point, user, seed + 10 + number, until, seen[name])))
            work(jobs, until, checks)
            swaps = seen["exchanges"][SEEN["swaps"]]
            checks.equal(f"names were exchanged: {swaps} times", swaps > seconds, True)
            for name, user in users.items():
                of = {word: seen[name][index] for word, index in SEEN.items()}
                print(f"{name}: {of['reads']} reads, {of['public']} of what is public, {of['secret']} of what is private")
                # Everybody may read it where it is.
                checks.equal(f"{name} reads from outside of the source as far as that is allowed", of["foreign"] > 0, follow)
                checks.equal(f"{name} reads what is public", of["public"] > seconds, True)
                if user:
                    checks.equal(f"{name} reads nothing that is private", of["secret"] == 0, True)
                else:
                    checks.equal("root reads what is private meanwhile", of["secret"] > 0, True)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--follow-symlinks", action="store_true", help="also out of the source")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    sys.exit(bool(run(options.seconds, options.seed, options.follow_symlinks)))
