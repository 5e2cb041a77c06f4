"""Processes that a program starts: they end when it ends, however that ended, and Ctrl-C reaches it alone."""
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOK_EVERY = 0.5  # seconds


def end_with(parent: int):
    """End this process soon after the parent is gone. Ctrl-C is left to the parent.

    parent: the number of the process that started this one.
    """
    def watch():
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def ctrl_c_later() -> Iterator[None]:
    """Let a Ctrl-C inside wait until the end. Processes that are started inside never hear one.

    Python loses an interrupt that comes in the moment of a fork, and prints a traceback for it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
