"""What others do while a test looks."""

import contextlib
import errno
import os
import threading


@contextlib.contextmanager
def unless_stale():
    """Opens a file that somebody writes to all the time: it may be ESTALE, because Linux looks it up again only once."""
    try:
        yield
    except OSError as error:
        # HDF5 only tells the message.
        if os.strerror(errno.ESTALE) not in str(error):
            raise


@contextlib.contextmanager
def meanwhile(*actions):
    """Does each action over and over, in a thread of its own, until the block ends."""
    done = threading.Event()

    def repeat(action):
        while not done.is_set():
            action()

    threads = [threading.Thread(target=repeat, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
