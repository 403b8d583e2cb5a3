"""A Dask worker whose mount is gone leaves the cluster, instead of failing every task that it draws.

    dask worker tcp://HOST:8786 --preload leave_without_mount.py
"""

import os

from distributed import WorkerPlugin

PROOF = "/mnt/arrays/.tiledbfs/version"


class LeaveWithoutMount(WorkerPlugin):
    """Looks at the mount when a task has failed."""

    def setup(self, worker):
        self.worker = worker

    def transition(self, key, start, finish, **_):
        if finish == "error" and not os.path.exists(PROOF):
            self.worker.loop.add_callback(self.worker.close, nanny=True, reason=f"there is no {PROOF}")


async def dask_setup(worker):
    await worker.plugin_add(LeaveWithoutMount())
