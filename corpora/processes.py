"""Let a process end when the process that started it ends, however that ended."""
import os
import signal
import threading
import time

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
