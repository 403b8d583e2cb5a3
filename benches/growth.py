"""Draws how the time of reading grows with fragments, cells, fields and readers, as one SVG: scripts/bench.sh --plot.

Both axes are logarithmic: what costs in proportion to its work is a straight line beside the dotted one, of slope one. Each point
is the least of several rounds on fresh mounts.
"""

import concurrent.futures
import math
import subprocess
import time

import arrays
from bench import cat, seconds, timed, warm


def fragments(bench):
    """1 to 1,000 overlapping fragments of 10,000 cells: ls -l data/ and all columns"""
    for count in [1, 10, 100, 1000]:
        path = arrays.points(bench.folder, 10_000 * count, count)
        yield count, path, lambda mountpoint: read(["ls", "-l", mountpoint / "data"]) + read_columns(mountpoint)


def cells(bench):
    """10^5 to 10^9 cells of a dense array: a column of bytes"""
    for power in range(5, 10):
        path = arrays.cells(bench.folder, 10**power)
        yield 10**power, path, lambda mountpoint: cat(mountpoint / "data/columns/a/data.bin")[0]


def fields(bench):
    """1 to 1,000 fields of 10,000 cells: ls -l data/ and all columns"""
    for count in [1, 10, 100, 1000]:
        path = arrays.fields(bench.folder, count, 10_000)
        yield count, path, lambda mountpoint: read(["ls", "-l", mountpoint / "data"]) + read_columns(mountpoint)


def readers(bench):
    """1 to 64 readers at once of a column each"""
    path = arrays.many_columns(bench.folder, "zstd", bench.size // 16, 64)
    for count in [1, 4, 16, 64]:
        yield count, path, lambda mountpoint, count=count: read_at_once(mountpoint, count)


def read(command):
    return timed(command, stdout=subprocess.DEVNULL)[0]


def read_columns(mountpoint):
    return read(["cat", *sorted(mountpoint.glob("data/columns/*/data.bin"))])


def read_at_once(mountpoint, count):
    files = sorted(mountpoint.glob("data/columns/a*/data.bin"))[:count]
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        start = time.perf_counter()
        list(pool.map(cat, files))
        return time.perf_counter() - start


def measure(bench, series):
    points = []
    for work, path, action in series(bench):
        warm(path)
        times = []
        for _ in range(bench.rounds):
            with bench.mounted(path) as (mountpoint, _):
                times.append(action(mountpoint))
        points.append((work, min(times)))
        print(f"  {work}: {seconds(min(times))}", flush=True)
    return points


WIDTH, HEIGHT, MARGIN = 420, 300, 56


def panel(points, title, left, top):
    """One diagram: the measured line, and a dotted one of slope one through its last point."""
    works, times = zip(*points)
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    first, last = math.log10(works[0]), math.log10(works[-1])
    x = lambda work: left + MARGIN + (math.log10(work) - first) / (last - first) * (WIDTH - 2 * MARGIN)
    y = lambda time: top + HEIGHT - MARGIN - (math.log10(time) - low) / (high - low) * (HEIGHT - 2 * MARGIN)
    out = [f'<text x="{left + MARGIN}" y="{top + 30}" font-weight="bold">{title}</text>']
    for power in range(low, high + 1):
        label = seconds(10**power).replace(".0 ms", " ms").replace(".00 s", " s")
        out.append(f'<line x1="{left + MARGIN}" x2="{left + WIDTH - MARGIN}" y1="{y(10**power):.1f}" y2="{y(10**power):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left + MARGIN - 6}" y="{y(10**power) + 4:.1f}" text-anchor="end">{label}</text>')
    for work in works:
        label = f"{work:,}" if work < 10**5 else f"10^{round(math.log10(work))}"
        out.append(f'<text x="{x(work):.1f}" y="{top + HEIGHT - MARGIN + 18}" text-anchor="middle">{label}</text>')
    line = " ".join(f"{x(work):.1f},{y(time):.1f}" for work, time in points)
    # As far as it lies inside of the diagram.
    start = max(works[0], works[-1] * 10**low / times[-1])
    slope = f'x1="{x(start):.1f}" y1="{y(times[-1] * start / works[-1]):.1f}" x2="{x(works[-1]):.1f}" y2="{y(times[-1]):.1f}"'
    out.append(f'<line {slope} stroke="#888" stroke-dasharray="3 4"/>')
    out.append(f'<polyline points="{line}" fill="none" stroke="#1565c0" stroke-width="2"/>')
    out += [f'<circle cx="{x(work):.1f}" cy="{y(time):.1f}" r="3" fill="#1565c0"/>' for work, time in points]
    return out


def plot(bench, file):
    """Measures all four and writes the SVG to `file`."""
    out = []
    for number, series in enumerate([fragments, cells, fields, readers]):
        print(f"{series.__name__}: {series.__doc__}", flush=True)
        out += panel(measure(bench, series), series.__doc__, number % 2 * WIDTH, number // 2 * HEIGHT)
    size = f'width="{2 * WIDTH}" height="{2 * HEIGHT}" viewBox="0 0 {2 * WIDTH} {2 * HEIGHT}"'
    style = 'font-family="sans-serif" font-size="11"'
    text = "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>', '<rect width="100%" height="100%" fill="white"/>', *out, "</svg>"])
    file.write_text(text + "\n")
    print(f"wrote {file}")
