#!/usr/bin/env python3
"""Mounts for programs that may not: opens /dev/fuse, mounts it, and passes the descriptor on.

    mounter.py SOCKET DIRECTORY

Who connects to SOCKET sends a name, and gets the descriptor of a mount on DIRECTORY/<name>, by SCM_RIGHTS. The mount lives as long as the connection.
"""

import ctypes
import os
import re
import socket
import sys
import threading

OPTIONS = "rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other"
READ_ONLY, NO_SUID, NO_DEVICES = 1, 2, 4
DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)


def mount(point):
    """Mounts on a directory, which may have a mount that is dead. Returns the descriptor of the device."""
    while libc.umount2(os.fsencode(point), DETACH) == 0:
        pass
    os.makedirs(point, exist_ok=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    if libc.mount(b"tiledbfs", os.fsencode(point), b"fuse.tiledbfs", READ_ONLY | NO_SUID | NO_DEVICES, f"fd={device},{OPTIONS}".encode()):
        number = ctypes.get_errno()
        os.close(device)
        raise OSError(number, os.strerror(number), point)
    return device


def serve(client, directory, names, lock):
    """One client, from its name to its end."""
    name = ""
    with client:
        try:
            name = client.recv(256).decode()
            with lock:
                if not re.fullmatch("[a-z0-9-]{1,100}", name) or name in names:
                    print(f"refused: {name!r}", flush=True)
                    return
                names.add(name)
            point = os.path.join(directory, name)
            try:
                device = mount(point)
                socket.send_fds(client, [b"0"], [device])
                # The connection to the kernel ends with the program, if nobody else has the descriptor.
                os.close(device)
                print(f"mounted: {point}", flush=True)
                client.recv(1)
            finally:
                libc.umount2(os.fsencode(point), DETACH)
                names.discard(name)
                print(f"unmounted: {point}", flush=True)
        except (OSError, UnicodeDecodeError) as error:
            print(f"{name!r}: {error}", flush=True)


def main():
    """Listens."""
    path, directory = sys.argv[1:]
    names, lock = set(), threading.Lock()
    if os.path.exists(path):
        os.unlink(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        os.chmod(path, 0o666)
        server.listen()
        while True:
            client, _ = server.accept()
            threading.Thread(target=serve, args=(client, directory, names, lock), daemon=True).start()


if __name__ == "__main__":
    main()
