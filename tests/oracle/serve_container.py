"""The container of `examples/serve/Containerfile`, without an engine: what its program runs in, and not more.

A directory becomes the root that the program sees: read-only, with the program, its libraries, the arrays and
/proc, as every engine gives it; nothing else, so that there is no /dev, and nowhere to write. It runs in user
namespaces as a user who has no capability and is nobody outside. The command is that of the Containerfile.
The last line is `N passed, N failed`.
"""

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mount import ROOT, binary
from plain_tools import Checks
from serve import SAMPLE, Client, serving

CONTAINERFILE = ROOT / "examples/serve/Containerfile"
NOBODY = 65534


def instruction(name):
    """The value of an instruction that is given once."""
    [value] = re.findall(rf"^{name} (.*)$", CONTAINERFILE.read_text(), re.MULTILINE)
    return value


def make_root(root, program):
    """Fills the directory that becomes the root. All in it may be read by everybody."""
    listed = subprocess.run(["ldd", binary()], capture_output=True, text=True, check=True).stdout
    copies = {binary(): program} | {path: path for path in re.findall(r"(/\S+) \(0x", listed)}
    for source, target in copies.items():
        copy = root / target.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        copy.chmod(0o755)
    shutil.copytree(SAMPLE, root / "arrays")
    for name in ("mnt", "proc"):
        (root / name).mkdir()
    for path in [root.parent, root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


@contextlib.contextmanager
def inside(root, *command):
    """Runs a command in the container. The first user namespace may mount; the second has no capabilities."""
    nobody = f"--map-user={NOBODY} --map-group={NOBODY}"
    prepare = (f"mount --bind '{root}' '{root}' && mount -o remount,bind,ro,nosuid,nodev '{root}' && "
               f"mount --rbind /proc '{root}/proc' && "
               f"exec unshare --user {nobody} --root='{root}' \"$@\"")
    whole = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", prepare, "sh", *command]
    identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(whole, env={}, cwd="/", **pipes, **identity)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def status(pid, field):
    return re.search(rf"^{field}:\s*(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1]


def confined(checks, pid):
    """The container is as narrow as is said of it."""
    # Real, effective, saved, and of the file system.
    outside = NOBODY if os.geteuid() == 0 else os.geteuid()
    checks.equal("the user", status(pid, "Uid").split(), [str(outside)] * 4)
    capabilities = [int(status(pid, f"Cap{kind}"), 16) for kind in ("Prm", "Eff", "Inh", "Amb")]
    checks.equal("its capabilities", capabilities, [0] * 4)
    mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    [options] = [mount[5] for mount in mounts if mount[4] == "/"]
    checks.equal("its root is read-only", "ro" in options.split(","), True)
    seen = set(os.listdir(f"/proc/{pid}/root")) - {"lib", "lib64"}
    checks.equal("what it sees", sorted(seen), ["arrays", "mnt", "proc", "usr"])


def served(checks, url):
    """All files of an array, and some of others, are those that a server outside shows."""
    with serving(SAMPLE, "--listen", "127.0.0.1:0") as ([known], _):
        here, there = Client(url), Client(known)
        waiting, differing, count = ["/weather/", "/lightning/data/"], [], 0
        while waiting:
            path = waiting.pop()
            listed = [client.ask("GET", path + "?json")[2] for client in (here, there)]
            answers = [json.loads(text)["entries"] for text in listed]
            if answers[0] != answers[1]:
                differing.append(path)
            for entry in answers[1]:
                if entry["type"] == "directory":
                    waiting.append(path + entry["href"])
                    continue
                count += 1
                if here.ask("GET", path + entry["href"])[::2] != there.ask("GET", path + entry["href"])[::2]:
                    differing.append(path + entry["href"])
        checks.equal(f"{count} files in the container", (differing, count > 50), ([], True))


def main():
    checks = Checks()
    entry, arguments = json.loads(instruction("ENTRYPOINT")), json.loads(instruction("CMD"))
    checks.equal("the user of the image", instruction("USER"), f"{NOBODY}:{NOBODY}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        root.mkdir()
        make_root(root, entry[0])
        command = [part.replace("0.0.0.0:8470", "127.0.0.1:0") for part in entry + arguments]
        with inside(root, *command) as server:
            ready = select.select([server.stdout], [], [], 30)[0]
            url = server.stdout.readline().strip() if ready else ""
            started = re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
            checks.equal("it starts", bool(started) or server.stderr.read(), True)
            confined(checks, server.pid)
            checks.equal("healthz", Client(url).ask("GET", "/healthz")[0], 200)
            checks.equal("any host", Client(url).ask("GET", "/", Host="data.example.org")[0], 200)
            served(checks, url)
            server.terminate()
            checks.equal("it ends well", (server.wait(15), server.stderr.read()), (0, ""))
        with inside(root, entry[0], "mount", "/arrays", "/mnt") as mounting:
            failed = (mounting.wait(30) != 0, "fuse" in mounting.stderr.read())
            checks.equal("nothing can be mounted there", failed, (True, True))
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
