"""What a long run shows: in a terminal a bar, and in a file a line every 30 seconds."""
import sys
import time
from collections.abc import Mapping

from tqdm import tqdm

SAY_EVERY = 30.0  # seconds between two lines, where standard error is not a terminal


class Interrupted(Exception):
    """Say that a run was stopped by a signal, and from where it resumes."""


class Progress:
    """Show the steps of a stage.

    Args:
        total: steps of the stage.
        done: steps that were taken before.
        title: of the stage.
        shown: False shows nothing.
    """

    def __init__(self, total: int, done: int, title: str, shown: bool):
        terminal = sys.stderr.isatty()
        self.bar = tqdm(total=total, initial=done, disable=not (shown and terminal), unit="step", leave=False,
                        dynamic_ncols=True, mininterval=1.0)
        self.total, self.done, self.first, self.title = total, done, done, title
        self.lines = shown and not terminal
        self.started = self.said = time.monotonic()

    def update(self, losses: Mapping[str, float | None]):
        """Count a step. losses: of the step's tasks."""
        self.done += 1
        self.bar.update()
        values = {name: value for name, value in losses.items() if value is not None}
        self.bar.set_postfix(values, refresh=False)
        now = time.monotonic()
        if self.lines and now - self.said >= SAY_EVERY:
            self.said = now
            left = (now - self.started) / (self.done - self.first) * (self.total - self.done)
            print(f"{self.title}: step {self.done:,} of {self.total:,}, about {left / 60:.0f} min to go; "
                  + ", ".join(f"{name} {value:.4f}" for name, value in values.items()), file=sys.stderr, flush=True)

    def clear(self):
        """Make place for other output."""
        self.bar.clear()

    def close(self):
        """End the bar."""
        self.bar.close()
