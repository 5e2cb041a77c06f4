"""Run student code where it can do no harm: as another user, without network, with limits, and killed at the end.

As root (Gradescope's containers) the worker becomes a user of its own, with a network that leads nowhere, and sees
nothing of the grader (launch.py). Not as root there is no second user, and the caller must trust the code.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FIRST_USER = 200_000  # numbers from here on belong to nobody
MEMORY = 2 << 30  # bytes of data a process may have
FILES = 64 << 20  # bytes of a file that it may write
PROCESSES = 64  # of the user, threads included
FIRST = 60.0  # seconds until the code is imported, and torch before it
EACH = 20.0  # seconds for each exercise
IMPORTED = "imported"  # a file that the worker leaves; whoever makes it himself only makes the grader wait


@dataclass
class Answers:
    """Hold what came out of a sandbox: files by exercise, and why there is none."""

    folder: Path
    reasons: dict[str, str] = field(default_factory=dict)


def isolates() -> bool:
    """Tell whether this process may make a sandbox: it is root, and the kernel gives it namespaces."""
    if os.geteuid() != 0:
        return False
    options = {"user": FIRST_USER, "command": ["/bin/true"], "limits": {}, "stage": "/nonexistent", "hidden": [],
               "needed": ["/bin"]}
    launch = [sys.executable, "-I", "-B", str(Path(__file__).parent / "launch.py"), json.dumps(options)]
    return subprocess.run(launch, capture_output=True, check=False).returncode == 0


def kill_all(user: int):
    """Kill every process of a user, again until none is left: a fork bomb makes new ones meanwhile."""
    for _ in range(50):
        left = 0
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    status = os.stat(f"/proc/{entry}")
                    if status.st_uid == user:
                        os.kill(int(entry), signal.SIGKILL)
                        with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                            left += file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
        if not left:
            return
        time.sleep(0.05)


def _wait(process: subprocess.Popen, folder: Path, exercises: Sequence[str]) -> tuple[str | None, str]:
    """Wait until the worker has answered all exercises, ended, or been too slow.

    Returns:
        The exercise at which it stopped, or None, and the reason.
    """
    deadline = time.monotonic() + FIRST
    progress = 0
    while True:
        done = [name for name in exercises if (folder / f"{name}.npz").exists() or (folder / f"{name}.error").exists()]
        if (steps := (folder / IMPORTED).exists() + len(done)) > progress:
            progress, deadline = steps, time.monotonic() + EACH
        if len(done) == len(exercises):
            return None, ""
        waiting = next(name for name in exercises if name not in done)
        if process.poll() is not None:
            # The last answer may have come between the two looks.
            if any((folder / f"{waiting}{suffix}").exists() for suffix in (".npz", ".error")):
                continue
            return waiting, f"the code ended the process (status {process.returncode}) before it answered"
        if time.monotonic() > deadline:
            return waiting, "no answer in time"
        time.sleep(0.02)


@contextlib.contextmanager
def answers(code: Path, probes: Path, exercises: Sequence[str], seed: int, trust: bool = False) -> Iterator[Answers]:
    """Run the probes of exercises on a folder of code. Inside, the answers can be read; afterwards all is deleted.

    Args:
        code: a folder with the student's rooms and course/adapters.py. It is copied.
        probes: the file with the probes. It is copied, and is all that the worker sees of the grader.
        exercises: in order. If one hangs or ends the process, the others are run by a new one.
        seed: of the probes.
        trust: run as this user where there is no second one.

    Raises:
        ValueError: no sandbox can be made, and the caller does not trust the code.
    """
    root = isolates()
    if not root and not trust:
        raise ValueError("the student's code would run as this user: that needs root and a kernel with namespaces; "
                         "run as root, or pass --trust")
    user = FIRST_USER + os.getpid() % 50_000  # two graders at a time do not kill each other's workers
    place = Path(tempfile.mkdtemp(prefix="grading-"))
    try:
        place.chmod(0o755)
        shutil.copytree(code, place / "code")
        shutil.copy(Path(__file__).parent / "worker.py", place / "worker.py")
        shutil.copy(probes, place / "probes.py")
        for path in (place, *place.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        out = place / "out"
        out.mkdir()
        home, stage = place / "home", place / "stage"
        home.mkdir()
        stage.mkdir(mode=0o700)
        if root:
            for folder in (out, home):
                os.chown(folder, user, user)
        result = Answers(out)
        left = list(exercises)
        while left:
            worker = [sys.executable, "-I", "-B", str(place / "worker.py"), str(place / "probes.py"), str(out),
                      str(seed), *left]
            limits = {"DATA": MEMORY, "FSIZE": FILES, "CORE": 0, "NOFILE": 256}
            if root:
                limits["NPROC"] = PROCESSES
            options = {"user": user if root else None, "command": worker, "limits": limits, "stage": str(stage),
                       "hidden": [str(ROOT)], "needed": [str(place), sys.prefix, sys.base_prefix]}
            environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home), "OMP_NUM_THREADS": "1",
                           "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            launch = [sys.executable, "-I", "-B", str(Path(__file__).parent / "launch.py"), json.dumps(options)]
            with open(place / "launch.log", "wb") as log, open(os.devnull, "wb") as nothing:
                process = subprocess.Popen(launch, cwd=place / "code", stdin=subprocess.DEVNULL, stdout=nothing,
                                           stderr=log, env=environment, start_new_session=True)
                stopped, reason = _wait(process, out, left)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                if root:
                    kill_all(user)
                process.wait()
            if stopped is None:
                break
            if not any(out.iterdir()) and b"launch.py" in (said := (place / "launch.log").read_bytes()[-2000:]):
                raise OSError(f"the sandbox cannot be made: {said.decode(errors='replace').strip().splitlines()[-1]}")
            if not (out / IMPORTED).exists():
                result.reasons |= dict.fromkeys(left, f"while the code was imported: {reason}")
                break
            result.reasons[stopped] = reason
            left = left[left.index(stopped) + 1:]
        yield result
    finally:
        if root:
            kill_all(user)
        shutil.rmtree(place, ignore_errors=True)
