"""What every row of the table is measured with: mounts, processes, counters, and the table itself."""

import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
CORES = os.cpu_count()

# The peak of a Python, in its own words: getrusage has that of its parent as well.
OWN_PEAK = 'next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))'


class Bench:
    def __init__(self, options):
        self.program = os.environ["TILEDBFS_BIN"]
        self.examples = pathlib.Path(self.program).parent / "examples"
        self.folder = pathlib.Path(options.arrays)
        self.size = options.size * MIB
        self.rounds = options.rounds
        self.options = options
        self.rows = []
        self.peaks = {}

    # --- processes

    @contextlib.contextmanager
    def served(self, command, name, env=None):
        """Runs a command that mounts on a new directory in the foreground; gives the directory and the process."""
        with tempfile.TemporaryDirectory(prefix="tiledbfs-bench-") as where:
            mountpoint = pathlib.Path(where) / "mnt"
            mountpoint.mkdir()
            process = subprocess.Popen([part if part != "MNT" else str(mountpoint) for part in map(str, command)],
                                       stdout=subprocess.DEVNULL, env=env)
            try:
                end = time.monotonic() + 60
                while not os.path.ismount(mountpoint):
                    if process.poll() is not None or time.monotonic() > end:
                        raise RuntimeError(f"{command} did not mount")
                    time.sleep(0.002)
                yield mountpoint, process
                if name:
                    self.peaks[name] = max(self.peaks.get(name, 0), peak(process.pid))
            finally:
                subprocess.run([self.program, "unmount", str(mountpoint)], check=False)
                if process.poll() is None:
                    try:
                        process.wait(10)
                    except subprocess.TimeoutExpired:
                        process.kill()

    def mounted(self, source, *arguments, name=None, env=None):
        return self.served([self.program, "mount", "-f", source, "MNT", *arguments], name, env)

    def memory(self, source, *arguments):
        return self.served([self.examples / "memory_fs", source, "MNT", *arguments], None)

    def python(self, code, *arguments):
        """Seconds that a fresh Python takes to run `code`, and what it prints."""
        return timed([sys.executable, "-c", code, *map(str, arguments)])

    def measured(self, code, *arguments):
        """What a fresh Python that runs `code` measures: the JSON that it prints last."""
        return json.loads(self.python(code, *arguments)[1].splitlines()[-1])

    # --- results

    def row(self, what, figures, value=None, target=None, at_least=False):
        if target is None:
            verdict = ""
        elif at_least:
            verdict = "ok" if value >= target else "MISSED"
        else:
            verdict = "ok" if value <= target else "MISSED"
        shown = "" if target is None else f"{'≥' if at_least else '≤'} {target:g}"
        measured = "" if value is None else f"{value:.3g}"
        self.rows.append((what, figures, measured, shown, verdict))
        print(f"  {what}: {figures} {measured} {shown} {verdict}", flush=True)


def timed(command, stdout=subprocess.PIPE):
    """Wall seconds of a command, and what it printed."""
    start = time.perf_counter()
    result = subprocess.run(list(map(str, command)), stdout=stdout, check=True)
    return time.perf_counter() - start, result.stdout


def cat(path):
    """Wall seconds and processor seconds of `cat path > /dev/null`."""
    with open(os.devnull, "wb") as null:
        start = time.perf_counter()
        process = subprocess.Popen(["cat", str(path)], stdout=null)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = status
    if status:
        raise RuntimeError(f"cat {path} failed")
    return wall, usage.ru_utime + usage.ru_stime


def processor(pid):
    """Processor seconds of a process so far, to the nanosecond."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def peak(pid):
    """Peak resident bytes of a process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


def stats(mountpoint):
    return json.loads((mountpoint / ".tiledbfs/stats.json").read_text())


def reads(mountpoint, action):
    """Read requests that `action` causes: a look at the counters costs some itself."""
    first = stats(mountpoint)["reads"]
    second = stats(mountpoint)["reads"]
    action()
    return stats(mountpoint)["reads"] - second - (second - first)


def fragment(mountpoint):
    return next((mountpoint / "fragments").iterdir())


def median(values):
    return statistics.median(values)


def seconds(value):
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def warm(path):
    for file in pathlib.Path(path).rglob("*"):
        if file.is_file():
            file.read_bytes()
