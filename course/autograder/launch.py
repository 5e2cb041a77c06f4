"""Become another user in a world of its own, then run the worker. Started by sandbox.py; needs nothing but Python.

    python launch.py '{"user": 65534, "hidden": ["/grader"], "needed": ["/usr"], "limits": {...}, "command": [...]}'

As root: a network with nothing in it; the grader's folders are covered by empty ones; folders that the new user cannot
enter, but that the interpreter lies in, are replaced by ones that hold the interpreter alone. All of that is seen by
this process and its children only.
"""
import ctypes
import json
import os
import resource
import signal
import sys

NEW_MOUNTS, NEW_IPC, NEW_NETWORK = 0x00020000, 0x08000000, 0x40000000  # of unshare(2)
BIND, RECURSIVE, PRIVATE = 4096, 16384, 1 << 18  # of mount(2)
NO_NEW_PRIVILEGES, DIE_WITH_PARENT = 38, 1  # of prctl(2)

libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int, data: str = ""):
    """Call mount(2). Raise OSError if it fails."""
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def inside(path: str, folder: str) -> bool:
    """Tell whether a path is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def closed_folders(needed: list[str], user: int) -> list[str]:
    """Return the folders above the needed paths that others than their owner cannot enter, the outermost first."""
    found: list[str] = []
    for path in needed:
        parts = path.strip("/").split("/")
        for end in range(1, len(parts)):
            folder = "/" + "/".join(parts[:end])
            state = os.stat(folder)
            if not state.st_mode & 1 and state.st_uid != user and not any(inside(folder, outer) for outer in found):
                found.append(folder)
    return found


def opened(path: str, user: int) -> list[str]:
    """Return a needed path, or, if it is a folder that only its owner enters, what lies in it.

    An environment that is made in a temporary folder is such a one.
    """
    state = os.stat(path)
    if os.path.isfile(path) or state.st_mode & 1 or state.st_uid == user:
        return [path]
    return [entry.path for entry in os.scandir(path) if os.path.exists(entry.path)]


def place_for(path: str, model: str):
    """Make an empty file or folder, on which one of the model's kind can be mounted."""
    if os.path.isdir(model):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab"):
            pass


def cover(folder: str, needed: list[str], stage: str):
    """Replace what is seen at a folder by an empty one that holds the needed paths alone."""
    inner = [path for path in needed if inside(path, folder) and path != folder]
    for number, path in enumerate(inner):
        place_for(f"{stage}/{number}", path)
        mount(path, f"{stage}/{number}", "", BIND | RECURSIVE)
    mount("none", folder, "tmpfs", 0, "mode=755,size=1m")
    for number, path in enumerate(inner):
        place_for(path, f"{stage}/{number}")
        mount(f"{stage}/{number}", path, "", BIND | RECURSIVE)


def main():
    """Do all of it, and become the worker."""
    options = json.loads(sys.argv[1])
    user = options["user"]
    if user is not None:
        if libc.unshare(NEW_MOUNTS | NEW_IPC | NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "the kernel gives no namespaces: the worker would see the network")
        mount("none", "/", "", RECURSIVE | PRIVATE)
        needed = list(dict.fromkeys(os.path.realpath(path) for path in options["needed"]))
        outer = [path for path in needed if not any(inside(path, other) for other in needed if other != path)]
        outer = [entry for path in outer for entry in opened(path, user)]
        covered = closed_folders(outer, user)
        covered += [path for path in options["hidden"] if not any(inside(path, folder) for folder in covered)]
        stage = options["stage"]
        for number, folder in enumerate(covered):
            cover(folder, outer, f"{stage}/{number}")
    for name, value in options["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)  # if the grader itself is killed
    os.execv(options["command"][0], options["command"])


if __name__ == "__main__":
    main()
