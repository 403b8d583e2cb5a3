"""What others do while a test looks."""

import contextlib
import threading


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
