"""Machines of a cluster: three network namespaces on a bridge, each with a mount namespace, so that the same path is another mount in each.

    with Cluster() as cluster:
        cluster.moto.load("cluster", "arrays", folder)
        cluster.mount()
        cluster.machines[1].run("ls", "/mnt/arrays")
        cluster.machines[1].fetched()

They lie in namespaces that scripts/test-cluster.sh makes for this process, which is the first of its process namespace: when it ends, however that
comes, the kernel ends all that is in them, with mounts, addresses and processes. /mnt there is memory. The store is outside of the machines, and each
machine has a counting proxy of its own before it.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from cluster_arrays import VALUES
from mount import binary
from proxy import Proxy
from stores import Moto, expect

BRIDGE = "10.77.0.254"
POINT = "/mnt/arrays"
"""Where each machine mounts."""
SOURCE = "s3://cluster/arrays"
DAEMON = f"{SOURCE} {POINT}"
"""What the command line of the program that serves the mount has, and of no other."""
HOME = Path("/mnt/home")


def sh(*command, **options):
    """Runs a command that must succeed."""
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def namespace(pid, kind):
    """The namespace of a process, or None when it is gone."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    return None


class Machine:
    """One machine: an address, a mount, and processes."""

    def __init__(self, number, moto):
        self.name, self.address = f"machine{number}", f"10.77.0.{number + 1}"
        self.moto = moto
        self.proxy = Proxy(moto.host, address=BRIDGE).__enter__()
        self.services = []
        self.holder = subprocess.Popen(["unshare", "--net", "--mount", "--uts", "sleep", "infinity"])
        while any(namespace(self.holder.pid, kind) in (None, namespace("self", kind)) for kind in ("net", "mnt", "uts")):
            time.sleep(0.01)
        link = f"link{number}"
        sh("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self.holder.pid)
        sh("ip", "link", "set", link, "master", "bridge", "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "add", "default", "via", BRIDGE)
        self.run("hostname", self.name)
        self.run("mount", "-t", "tmpfs", "tmpfs", "/mnt/tmp")
        for name in ("hosts", "passwd"):
            self.run("mount", "--bind", f"/mnt/{name}", f"/etc/{name}")

    def command(self, *command):
        """The same command on this machine."""
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", "--uts", "--", *map(str, command)]

    def env(self, **more):
        """The environment of its processes: the store is behind the machine's proxy."""
        return self.moto.env(self.proxy.host, HOME=str(HOME), TMPDIR="/mnt/tmp") | more

    def run(self, *command, **options):
        """The output of a command that must succeed."""
        return sh(*self.command(*command), env=self.env(), **options)

    def start(self, name, *command, env=None):
        """Starts a service, whose output goes to /mnt/logs. Returns the process."""
        with open(f"/mnt/logs/{self.name}-{name}", "ab") as log:
            process = subprocess.Popen(self.command(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env(**env or {}))
        self.services.append(process)
        return process

    def processes(self, words):
        """The processes here whose command line has these words."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                line = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words in line and namespace(pid, "net") == namespace(self.holder.pid, "net") and not line.startswith("nsenter"):
                    found.append(int(pid))
        return found

    def kill(self, words):
        """Kills these processes, of which there must be one."""
        found = self.processes(words)
        expect(found, f"{self.name}: no process has {words!r}")
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop_services(self):
        """Ends all services and what they have started."""
        for pid in self.processes(""):
            if pid != self.holder.pid and pid not in self.processes(DAEMON):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.services:
            process.wait()
        self.services.clear()

    # The mount.

    def mount(self, *options):
        """Mounts the store at [`POINT`]."""
        self.run(binary(), "mount", SOURCE, POINT, "--log-file", f"/mnt/logs/{self.name}-mount", *options)

    def unmount(self):
        """Unmounts whatever is there, if only when its last file is closed."""
        subprocess.run(self.command("umount", "--lazy", POINT), stdin=subprocess.DEVNULL, capture_output=True, check=False)

    def kill_daemon(self):
        """Kills the program that serves the mount, which then answers ENOTCONN."""
        self.kill(DAEMON)

    def remount(self):
        """Unmounts and, a second later, mounts again."""
        self.unmount()
        time.sleep(1)
        self.mount()

    def fetched(self, path=VALUES):
        """The bytes fetched by this machine from objects whose keys have this pattern."""
        return sum(request.bytes for request in self.proxy.log if request.kind == "get" and re.search(path, request.path))


class Cluster:
    """Three machines and a store. The engines' driver is on the first, which has no worker."""

    def __enter__(self):
        if os.getpid() != 1:
            raise SystemExit("scripts/test-cluster.sh runs this")
        sh("mount", "-t", "tmpfs", "tmpfs", "/mnt")
        for folder in ("arrays", "tmp", "logs", "home", "home/.ssh"):
            Path("/mnt", folder).mkdir()
        os.environ["TMPDIR"] = "/mnt/tmp"
        sh("ip", "link", "set", "lo", "up")
        sh("ip", "link", "add", "bridge", "type", "bridge")
        sh("ip", "address", "add", f"{BRIDGE}/24", "dev", "bridge")
        sh("ip", "link", "set", "bridge", "up")
        names = "".join(f"10.77.0.{number + 1} machine{number}\n" for number in range(3))
        Path("/mnt/hosts").write_text(f"127.0.0.1 localhost\n{names}")
        Path("/mnt/passwd").write_text(f"root:x:0:0:root:{HOME}:/bin/bash\n")
        self.moto = Moto().__enter__()
        self.moto.bucket("cluster")
        self.machines = [Machine(number, self.moto) for number in range(3)]
        return self

    def __exit__(self, *_):
        # The kernel does the rest.
        pass

    def mount(self, *options):
        """Mounts anew on all machines, with nothing cached and nothing counted."""
        for machine in self.machines:
            machine.unmount()
            while machine.processes(DAEMON):
                time.sleep(0.02)
            machine.proxy.clear()
            machine.mount(*options)
            machine.proxy.clear()

    def limit(self, rate):
        """Limits what each machine may fetch, in bytes a second; None: not at all."""
        for machine in self.machines:
            machine.proxy.total_rate = rate

    def fetched(self, path=VALUES):
        """The bytes fetched by all machines."""
        return sum(machine.fetched(path) for machine in self.machines)

    def stop_services(self):
        """Ends all services of all machines."""
        for machine in self.machines:
            machine.stop_services()
