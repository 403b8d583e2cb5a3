"""`tiledbfs check` on arrays that libtiledb reads: nothing may be wrong with them."""

import json
import subprocess

from mount import binary

BROKEN = {
    "fixtures/dense_array_v1_3_0": "written before the format had versions",
    "lib-2.2.2/sparse_nullable": "its tiles of nullable values hold something else; libtiledb does not read them either",
}
"""Sources below which problems are expected, by the end of their path, and why."""
UNCHECKED = {"fixtures/dense_array_v1_3_0"}
"""Those of them that are told of as not checked."""


def check(source, options, env=None):
    """Runs the command, in the environment `env`: exit code, findings, the last line that it wrote for people."""
    command = [binary(), "check", str(source), "--json", *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, env=env)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.splitlines()[-1:]


def compare_check(source, options, broken, report, env=None):
    """Checks that `source` is clean but for the arrays in `broken` (paths in it), which are not. Notes do not count."""
    code, findings, last = check(source, options, env)
    bad = [f for f in findings if f["level"] != "note"]
    print(f"check: exit code {code}; " + " ".join(last), flush=True)
    found = set()
    for finding in bad:
        array = next((path for path in broken if finding["path"].startswith(path + "/")), None)
        if array is None:
            report.fail(f"check: {finding}")
        found.add(array)
    report.equal("arrays in which the check finds problems", sorted(filter(None, found)), sorted(broken))
    report.equal("exit code of the check", code, 1 if set(broken) - UNCHECKED else 2 if broken else 0)
    report.true("the check says what it did", last and last[0].startswith("checked "))
