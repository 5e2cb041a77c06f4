"""Processes that a program starts end with it, and signals to the program wait until they can be heeded."""
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
def interruptions(*numbers: int) -> Iterator[list[int]]:
    """Collect signals inside, so that a step is never cut in two. A second signal ends the program at once.

    A handler collects them. A mask would not do: a signal for the process goes to any thread that does not mask it.

    Args:
        numbers: of the signals.

    Yields a list that is empty until a signal comes.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # signals belong to the main thread
        return

    def note(number: int, frame: object):
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ctrl_c_later() -> Iterator[None]:
    """Let a Ctrl-C inside wait until the end.

    An exception in the moment of a fork is lost: Python prints its traceback and goes on.
    """
    with interruptions(signal.SIGINT) as received:
        yield
    if received:
        raise KeyboardInterrupt
