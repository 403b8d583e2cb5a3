#!/usr/bin/env python3
"""Serves a mount that mounter.py makes. It needs neither the device nor a capability.

    starter.py SOCKET NAME SOURCE [OPTION...]

becomes `tiledbfs mount -f SOURCE /dev/fd/N OPTION...`. The connection to the mounter stays open as long as the program runs.
"""

import os
import socket
import sys

path, name, source, *options = sys.argv[1:]
mounter = socket.socket(socket.AF_UNIX)
mounter.connect(path)
mounter.sendall(name.encode())
_, devices, _, _ = socket.recv_fds(mounter, 1, 1)
if not devices:
    sys.exit(f"{path}: no mount for {name}")
os.set_inheritable(mounter.fileno(), True)
os.set_inheritable(devices[0], True)
os.execvp("tiledbfs", ["tiledbfs", "mount", "-f", source, f"/dev/fd/{devices[0]}", *options])
