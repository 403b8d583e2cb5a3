"""Mounts that others make: `/dev/fd/N` as mount point, as libfuse has it, and fusermount3 for a root that may not mount.

    python3 descriptors.py

The last line is `N passed, N failed`.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from mount import ROOT, binary
from plain_tools import Checks

SAMPLE = ROOT / "tests/data/sample"
OPTIONS = "rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other"
READ_ONLY, NO_SUID, NO_DEVICES = 1, 2, 4
UNPRIVILEGED = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
"""Root without CAP_SYS_ADMIN."""
libc = ctypes.CDLL(None, use_errno=True)

PROXY = """#!/usr/bin/env python3
import os, socket, sys
proxy = socket.socket(socket.AF_UNIX)
proxy.connect(os.environ["PROXY"])
proxy.sendall(os.fsencode(sys.argv[-1]))
_, descriptors, _, _ = socket.recv_fds(proxy, 1, 1)
caller = socket.socket(fileno=int(os.environ["_FUSE_COMMFD"]))
socket.send_fds(caller, [b"0"], descriptors)
"""
"""A fusermount3 that lets a process with more rights mount."""


def mount(point):
    """Opens /dev/fuse and mounts it. The descriptor is passed on to programs that are started."""
    device = os.open("/dev/fuse", os.O_RDWR)
    os.set_inheritable(device, True)
    if libc.mount(b"handed over", os.fsencode(point), b"fuse.tiledbfs", READ_ONLY | NO_SUID | NO_DEVICES, f"fd={device},{OPTIONS}".encode()):
        raise OSError(ctypes.get_errno(), "mount(2)")
    return device


@contextlib.contextmanager
def place():
    """A directory to mount on, which is always unmounted."""
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder:
        point = Path(folder, "mnt")
        point.mkdir()
        try:
            yield point
        finally:
            libc.umount2(os.fsencode(point), 2)


def start(point, *options, prefix=(), env=None, wait=True, **more):
    """Runs `mount` of the sample on `point`."""
    command = [*prefix, binary(), "mount", str(SAMPLE), str(point), *options]
    if not wait:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env, **more)
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=env, **more)


def eventually(condition):
    """Whether it becomes true."""
    end = time.monotonic() + 10
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def error_of(call):
    """The number of the error of a call, or None."""
    try:
        call()
    except OSError as error:
        return error.errno
    return None


def background(checks):
    """The program in the background: as root without the capability, and without /dev/fuse where that can be hidden."""
    want = (SAMPLE / "weather/__schema").is_dir()
    for name, prefix in [("root", []), ("root without CAP_SYS_ADMIN", UNPRIVILEGED)]:
        with place() as point:
            device = mount(point)
            done = start(f"/dev/fd/{device}", prefix=prefix, pass_fds=[device])
            checks.equal(f"{name}: in the background", (done.returncode, done.stdout + done.stderr), (0, ""))
            os.close(device)
            checks.equal(f"{name}: the mount answers", (point / "weather/schema.json").is_file(), want)
            checks.equal(f"{name}: and is read", (point / "weather/schema.json").read_text()[:1], "{")
            # A process that is killed ends the connection, if none of its relatives has the descriptor.
            found = subprocess.run(["pgrep", "-f", f"in-background.*/dev/fd/{device}$"],
                                   capture_output=True, text=True, check=False).stdout.split()
            mine = [pid for pid in found if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(binary())]
            checks.equal(f"{name}: one process serves", len(mine), 1)
            libc.umount2(os.fsencode(point), 0)
            gone = [Path("/proc", pid) for pid in mine]
            checks.equal(f"{name}: it ends with the mount", eventually(lambda: not any(p.exists() for p in gone)), True)


def foreground(checks):
    """In the foreground SIGTERM ends it, and unmounting is the caller's."""
    with place() as point:
        device = mount(point)
        server = start(f"/dev/fd/{device}", "-f", wait=False, pass_fds=[device])
        os.close(device)
        # The kernel keeps whoever asks waiting until the program answers.
        checks.equal("foreground: the mount answers", (point / "weather/schema.json").is_file(), True)
        server.send_signal(signal.SIGTERM)
        checks.equal("SIGTERM ends it", (server.wait(10), server.stderr.read()), (0, ""))
        checks.equal("it leaves unmounting to its caller", error_of(lambda: os.listdir(point)), 107)
        checks.equal("... which finds the mount", libc.umount2(os.fsencode(point), 0), 0)
    with place() as point:
        device = mount(point)
        server = start(f"/dev/fd/{device}", "-f", "-o", "fsname=x,auto_unmount", wait=False, pass_fds=[device])
        os.close(device)
        checks.equal("with options of mounts", (point / "weather/schema.json").is_file(), True)
        libc.umount2(os.fsencode(point), 0)
        checks.equal("unmounting ends it", server.wait(10), 0)


def refused(checks):
    """What is no mounted descriptor is refused."""
    ends = os.pipe()
    bare = os.open("/dev/fuse", os.O_RDWR)
    for what, number, want in [("closed", 77, "Bad file descriptor"), ("a pipe", ends[0], "is not an open /dev/fuse"), ("not mounted", bare, "nothing is mounted with it")]:
        for options in [], ["-f"]:
            done = start(f"/dev/fd/{number}", *options, pass_fds=[] if number == 77 else [number])
            checks.equal(f"{what}, {options}: fails", done.returncode, 1)
            checks.equal(f"{what}, {options}: says why", want in done.stderr and len(done.stderr.splitlines()) == 1, True)
    for number in (*ends, bare):
        os.close(number)


@contextlib.contextmanager
def proxied(folder):
    """An environment in which fusermount3 is a proxy, and the list of the mount points that it was asked for."""
    asked = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
        server.listen()

        def serve():
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                with caller:
                    point = os.fsdecode(caller.recv(4096))
                    asked.append(point)
                    device = mount(point)
                    socket.send_fds(caller, [b"0"], [device])
                    os.close(device)

        threading.Thread(target=serve, daemon=True).start()
        (folder / "bin").mkdir()
        program = folder / "bin/fusermount3"
        program.write_text(PROXY)
        program.chmod(0o755)
        yield {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "PROXY": str(folder / "socket")}, asked


def without_rights(checks):
    """Root that may not mount, or has no device, asks fusermount3."""
    hidden = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", 'mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec "$@"', "sh"]
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as folder, proxied(Path(folder)) as (env, asked):
        for name, prefix in [("without CAP_SYS_ADMIN", UNPRIVILEGED), ("without /dev/fuse", hidden)]:
            with place() as point:
                server = start(point, "-f", prefix=prefix, env=env, wait=False)
                checks.equal(f"{name}: fusermount3 is asked", eventually(lambda: asked == [str(point)] or server.poll() is not None) and asked, [str(point)])
                if server.poll() is None and asked:
                    checks.equal(f"{name}: the mount answers", (point / "weather/schema.json").is_file(), True)
                libc.umount2(os.fsencode(point), 0)
                checks.equal(f"{name}: unmounting ends it", server.wait(10), 0)
                asked.clear()
    for name, prefix, want in [("without CAP_SYS_ADMIN", UNPRIVILEGED, "lacks CAP_SYS_ADMIN"), ("without /dev/fuse", hidden, "/dev/fuse is missing")]:
        with place() as point:
            done = start(point, prefix=prefix)
            checks.equal(f"{name}, a fusermount3 that may not either: fails", done.returncode, 1)
            checks.equal(f"{name}: says what is lacking, and what fusermount3 says", (want in done.stderr, "fusermount3: " in done.stderr), (True, True))
            print(done.stderr.strip())


def passed_on(checks):
    """The programs of examples/cluster/k8s: one with rights mounts, and passes the descriptor to one that has none."""
    programs = ROOT / "examples/cluster/k8s"
    with tempfile.TemporaryDirectory(prefix="tiledbfs-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "bin").mkdir()
        (folder / "bin/tiledbfs").symlink_to(binary())
        (folder / "bin/fusermount3").symlink_to(programs / "fusermount3")
        (folder / "asked").mkdir()
        os.chown(folder / "asked", 65534, 65534)
        (folder / "mounts").mkdir()
        path, point = folder / "socket", folder / "mounts/pod-1"
        env = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "MOUNTER_SOCKET": str(path), "MOUNTER_NAME": "pod-1"}
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]
        options = ["-o", "allow_other"]
        mounter = subprocess.Popen([programs / "mounter.py", path, folder / "mounts"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            checks.equal("the mounter listens", eventually(path.exists), True)
            starter = [programs / "starter.py", path]
            for what, command in [
                ("starter.py", [*starter, "pod-1", SAMPLE, *options]),
                ("fusermount3", ["tiledbfs", "mount", "-f", SAMPLE, folder / "asked", *options]),
            ]:
                sidecar = subprocess.Popen([*nobody, *command], stdin=subprocess.DEVNULL, env=env)
                checks.equal(f"{what}: the mount answers", eventually(lambda: os.path.isfile(point / "weather/schema.json")), True)
                # A name that is taken, or leads elsewhere.
                for other in "pod-1", "../pod-2":
                    done = subprocess.run([*nobody, *starter, other, SAMPLE], env=env, capture_output=True, timeout=20, check=False)
                    checks.equal(f"{what}: {other} is refused", (done.returncode, b"no mount for" in done.stderr), (1, True))
                checks.equal(f"{what}: the mount still answers", (point / "weather/schema.json").read_text()[:1], "{")
                sidecar.kill()
                sidecar.wait()
                checks.equal(f"{what}: who is killed leaves no mount", eventually(lambda: error_of(lambda: os.listdir(point)) is None), True)
                checks.equal(f"{what}: ... but its directory", os.listdir(point), [])
        finally:
            mounter.kill()
            mounter.wait()
            libc.umount2(os.fsencode(point), 2)


def main():
    """Runs all of it."""
    checks = Checks()
    background(checks)
    foreground(checks)
    refused(checks)
    without_rights(checks)
    passed_on(checks)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    sys.exit(main())
