"""The lines of Python in the tables of docs/datasets.md, each run on an array like those that the line is about."""

import contextlib
import importlib
import re
import subprocess
from pathlib import Path

from mount import ROOT, binary

# The stages that run them, by the module that a line begins with.
STAGES = {"rasterio": "rasters", "xarray": "rasters", "ome_zarr": "images", "zarr": "images", "pandas": "tables", "geopandas": "tables"}


def described(source):
    """What `tiledbfs info` says of a source: what follows the first word of each line, of the first line that begins so."""
    done = subprocess.run([binary(), "info", source], capture_output=True, text=True, timeout=60, check=True)
    words = [line.split() for line in done.stdout.splitlines()]
    return {line[0]: " ".join(line[1:]) for line in reversed(words) if line}


def lines():
    """Each line with its stage; None if there is none for it."""
    text = (ROOT / "docs/datasets.md").read_text()
    for line in re.findall(r"`([A-Za-z_.]+\(.*?\"mnt/.*?)`", text):
        yield line, STAGES.get(line.split(".")[0])


def run_lines(checks, stage, folder, places):
    """Evaluates the lines of a stage in an empty folder. `places` are the directories of a mount by the name below `mnt/` in the documentation."""
    mnt = Path(folder) / "mnt"
    mnt.mkdir(parents=True)
    for name, place in places.items():
        (mnt / name).symlink_to(place)
    found = [line for line, of in lines() if of == stage]
    checks.equal("docs/datasets.md: lines without a stage", [line for line, of in lines() if of is None], [])
    checks.equal(f"docs/datasets.md: there are lines about {stage}", len(found) > 0, True)
    modules = {name: importlib.import_module(name) for name, of in STAGES.items() if of == stage}
    with contextlib.chdir(folder):
        for line in found:
            try:
                got = eval(line, dict(modules))  # pylint: disable=eval-used
            except Exception as error:  # pylint: disable=broad-except
                got = error
            checks.equal(f"docs/datasets.md: {line}", None if got is None or isinstance(got, Exception) else "opened", "opened")
