"""Mounts with the real program, through the kernel, and never leaves a mount behind."""

import contextlib
import json
import os
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def binary():
    """The program under test: `TILEDBFS_BIN`, or the release build."""
    path = Path(os.environ.get("TILEDBFS_BIN") or ROOT / "target/release/tiledbfs")
    if not path.exists():
        raise SystemExit(f"{path} is missing: cargo build --release, or set TILEDBFS_BIN")
    return str(path)


def unmount(point):
    """Unmounts, by force if the program fails."""
    if os.path.ismount(point) or _is_stale(point):
        done = subprocess.run([binary(), "unmount", point], capture_output=True, timeout=60)
        if done.returncode:
            subprocess.run(["fusermount3", "-u", "-z", point], check=False, timeout=60)


def _is_stale(point):
    try:
        os.stat(point)
    except OSError:
        return True
    return False


@contextlib.contextmanager
def mounted(source, *options, env=None):
    """Mounts `source` on a temporary directory in the environment `env`. Yields the mount point, which is always unmounted."""
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder:
        point = os.path.join(folder, "mnt")
        os.mkdir(point)
        command = [binary(), "mount", str(source), point, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=env)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
        try:
            yield Path(point)
        finally:
            unmount(point)


def stats(point):
    """The counters of a mount."""
    with open(point / ".tiledbfs/stats.json") as f:
        return json.load(f)


def errors(point):
    """The recent errors of a mount."""
    with open(point / ".tiledbfs/errors.jsonl") as f:
        return [json.loads(line) for line in f]
