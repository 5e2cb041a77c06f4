"""A run's folder: one process at a time, and a run resumes only what it was.

A run is its resolved recipe, the contents of its data files, its starting weights and its vocabulary. `identity.json`
holds them; results.json repeats them, with the versions and the commit that computed them.
"""
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from corpora.files import write_json
from training.recipe import Recipe, recipe_to_toml

IDENTITY = "identity.json"
LOCK = "run.lock"
WEIGHTS = "model.safetensors"
WRITTEN = (LOCK, IDENTITY, "recipe.toml", "metrics.jsonl", "results.json", "predictions", "encoder", "corpus",
           "state.json", WEIGHTS, "attention.json", "report.html")
LIBRARIES = ("torch", "numpy", "scipy", "tokenizers", "safetensors")


def saved_recipe(recipe: Recipe, data: Path, limit: int | None) -> str:
    """Return the text that says what a run is: the resolved recipe, and what the command adds to it.

    Args:
        recipe: resolved.
        data: the folder of its files.
        limit: on every file.
    """
    path = str(data.absolute())
    if not path.isprintable():  # not UTF-8, or with a line break: TOML has no place for such names
        path = "hex:" + os.fsencode(path).hex()
    return f"# --data {path}" + (f" --limit {limit}" if limit else "") + "\n" + recipe_to_toml(recipe)


def recorded(folder: Path) -> tuple[Path, int | None]:
    """Return what `saved_recipe` wrote of a run's command: the data folder, and the limit."""
    first = (folder / "recipe.toml").read_text(encoding="utf-8").split("\n")[0]
    match = re.fullmatch(r"# --data (.*?)(?: --limit (\d+))?", first)
    if match is None:
        raise ValueError(f"{folder / 'recipe.toml'}:1: does not name the run's data; pass --data")
    path = match[1]
    if path.startswith("hex:"):
        path = os.fsdecode(bytes.fromhex(path.removeprefix("hex:")))
    return Path(path), int(match[2]) if match[2] else None


def require_finished(folder: Path, title: str = ""):
    """Raise ValueError if a folder is not that of a finished run. title: what the folder is, before its name."""
    for name in ("results.json", "recipe.toml", WEIGHTS, f"encoder/{WEIGHTS}"):
        if not (folder / name).exists():
            raise ValueError(f"{title}{folder}: has no {name}; expected the folder of a finished run")


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hashes_of(files: list[Path]) -> dict[str, str]:
    """Map each file that exists to the hash of its content."""
    return {str(path): content_hash(path) for path in files if path.is_file()}


def model_hashes(directory: Path) -> dict[str, str]:
    """Map the names of a model directory's files to the hashes of their contents."""
    return {path.name: content_hash(path) for path in sorted(Path(directory).iterdir())
            if path.is_file() and path.suffix in (".safetensors", ".bin", ".json", ".txt")
            and path.name != "checksums.json"}


def environment() -> dict[str, Any]:
    """Say what computes: the commit (if this is a git checkout), the versions, the processors."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    here = Path(__file__).resolve().parent.parent
    commit = None
    if (here / ".git").exists():
        with contextlib.suppress(OSError):
            done = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True,
                                  check=False, stdin=subprocess.DEVNULL)
            commit = done.stdout.strip() or None
    return {"commit": commit, "versions": versions, "machine": f"{platform.system()} {platform.machine()}",
            "processors": os.cpu_count()}


@contextlib.contextmanager
def only_process(directory: Path) -> Iterator[None]:
    """Hold a run's folder for this process.

    Raises:
        ValueError: another process holds it, a link stands where the run writes, or the folder is something else.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in WRITTEN:
        if (directory / name).is_symlink():
            raise ValueError(f"{directory / name}: is a link; a run writes only inside its own folder")
        if (directory / name).exists() and not (directory / LOCK).exists():
            raise ValueError(f"{directory}: is no run folder, and a run would overwrite its {name}; "
                             "choose another --out")
    with open(directory / LOCK, "a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            raise ValueError(f"{directory}: process {lock.read().strip() or 'unknown'} is running there; wait for it, "
                             "or choose another --out") from None
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        for leftover in directory.rglob(".*.part"):  # of a process that was killed while it saved
            leftover.unlink(missing_ok=True)
        yield


def check_identity(directory: Path, identity: dict[str, Any]):
    """Compare a run with what its folder holds, and write it down if the folder is new.

    Args:
        directory: of the run.
        identity: names of parts (such as data) -> what each part is.

    Raises:
        ValueError: the folder holds a run of other data, weights or vocabulary. The error names the first difference.
    """
    path = directory / IDENTITY
    identity = json.loads(json.dumps(identity))
    if path.exists():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: damaged ({error}); delete the folder to start anew") from None
        for part, values in identity.items():
            before = known.get(part) if isinstance(known, dict) else None
            if before == values:
                continue
            names = [name for name in {**(before if isinstance(before, dict) else {}), **values}
                     if not isinstance(before, dict) or before.get(name) != values.get(name)]
            raise ValueError(f"{directory}: holds a run with other {part}: {names[0]} has changed since it began; "
                             "choose another --out, or delete the folder to start anew")
        return
    write_json(path, identity)
