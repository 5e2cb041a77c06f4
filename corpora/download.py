"""Downloads public data sets into data/.

    python -m corpora.download [--out data] [--sets sst quora sts]
    python -m corpora.download --sets snli multinli            # as they are distributed
    python -m corpora.download --sets glue paws                # or one of GLUE's, such as glue-rte

SST-5, Quora and STS-B come in the course's format. The course's own files are a sample of these under other ids: what
is trained here compares with the course's figures only roughly. HF_ENDPOINT names another server for them. SNLI,
MultiNLI, GLUE and PAWS keep their own files. A file is checked against a checksum where one is stated (an archive has
its own); what is there and whole is not fetched again; a broken download goes on where it stopped.
"""
import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.archives import ARCHIVES, download_as_distributed
from corpora.files import write_json, write_text
from corpora.flags import Parser
from corpora.messages import first_line, status_of
from corpora.tables import read_json_lines

RECEIPT = "downloaded.json"  # file -> checksum of what we wrote, and of what it was made from


@dataclass
class PublicSet:
    """Describe a public data set and where it is."""

    repository: str
    revision: str
    files: dict[str, str]  # split -> file in the repository
    sentences: tuple[str, ...]  # its columns of sentences
    label: str  # the course's name of the label column
    stem: str  # the course's file name, without split
    sha256: dict[str, str]  # of the files as published, where known


SETS = {
    "sst": PublicSet(
        "SetFit/sst5", "e51bdcd8cd3a30da231967c1a249ba59361279a3",
        {"train": "train.jsonl", "dev": "dev.jsonl", "test": "test.jsonl"}, ("text",), "sentiment", "ids-sst",
        {"train.jsonl": "46bde4fb5abc93ffbadfa9a9f67de17c08a2f535cfb5756c59188d070434f433",
         "dev.jsonl": "4369df4d4229e736fa734af49b342c7d6002c4d8514d9c206a5aa26edc620b79",
         "test.jsonl": "1384216112a34f3d70b6fa210762f3399bb080410c0456ac6e54a5cb413f04b2"}),
    "quora": PublicSet(
        "SetFit/qqp", "main",
        {"train": "train.jsonl", "dev": "validation.jsonl", "test": "test.jsonl"}, ("text1", "text2"), "is_duplicate",
        "quora", {}),
    "sts": PublicSet(
        "SetFit/stsb", "77bd85cf73a244d4503e477ce6de81196187839f",
        {"train": "train.jsonl", "dev": "validation.jsonl", "test": "test.jsonl"}, ("text1", "text2"), "similarity",
        "sts", {}),
}
NAMES = [*SETS, *ARCHIVES, "glue-mrpc", "glue"]


def checksum_matches(path: Path, stated: str) -> bool:
    """Compare a file with a hub's ETag: the SHA-256 of a large file, or the git blob SHA-1 of a small one."""
    data = path.read_bytes()
    if len(stated) == 64:
        return hashlib.sha256(data).hexdigest() == stated
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == stated


def fetch_file(public: PublicSet, filename: str, cache: Path, endpoint: str) -> Path:
    """Fetch a published file and verify it. A damaged one is thrown away and fetched once more.

    Args:
        public: the data set.
        filename: in its repository.
        cache: a folder for the file.
        endpoint: the server.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    place: dict[str, Any] = {"repo_type": "dataset", "revision": public.revision, "endpoint": endpoint}
    try:
        stated = get_hf_file_metadata(hf_hub_url(public.repository, filename, **place), endpoint=endpoint).etag
        expected = public.sha256.get(filename, stated)
        for attempt in range(2):
            path = Path(hf_hub_download(public.repository, filename, local_dir=cache / public.repository,
                                        force_download=attempt > 0, **place))
            if checksum_matches(path, expected or ""):
                return path
    except Exception as error:  # the library's own and its transport's errors have no public base in common
        raise ValueError(f"{public.repository}/{filename}: cannot be fetched from {endpoint} ({first_line(error)}); "
                         "run the same command again to go on") from None
    raise ValueError(f"{public.repository}/{filename}: the checksum is not {expected}, twice; "
                     "the server's copy differs")


def convert(public: PublicSet, source: Path, split: str, target: Path):
    """JSON lines -> the course's tab-separated table. Tabs and line breaks in a sentence become spaces."""
    rows = read_json_lines(source, [*public.sentences, "label"])
    names = ["sentence"] if len(public.sentences) == 1 else ["sentence1", "sentence2"]
    labelled = split != "test"
    lines = ["\t".join(["", "id", *names, *([public.label] if labelled else [])])]
    for index, row in enumerate(rows):
        sentences = [" ".join(row.text(name).split()) for name in public.sentences]
        label = row.text("label")
        if public.label == "is_duplicate":
            label = f"{float(label):.1f}"
        lines.append("\t".join([str(index), f"{public.stem}-{split}-{index:06d}", *sentences,
                                *([label] if labelled else [])]))
    write_text(target, "\n".join(lines) + "\n")


def download(names: list[str], out: Path, endpoint: str):
    """Write a set's files in the course's format.

    Args:
        name: of the set.
        out: the folder.
        endpoint: the server.
    """
    out.mkdir(parents=True, exist_ok=True)
    receipt_path = out / RECEIPT
    receipt = json.loads(receipt_path.read_text(encoding="utf-8")) if receipt_path.exists() else {}
    for name in names:
        if name not in SETS:
            download_as_distributed(name, out)
            continue
        public = SETS[name]
        for split, filename in public.files.items():
            target = out / f"{public.stem}-{split}{'-student' if split == 'test' else ''}.csv"
            if target.exists() and receipt.get(target.name) == hashlib.sha256(target.read_bytes()).hexdigest():
                print(f"{target}: already there")
                continue
            convert(public, fetch_file(public, filename, out / ".hub", endpoint), split, target)
            receipt[target.name] = hashlib.sha256(target.read_bytes()).hexdigest()
            write_json(receipt_path, receipt, indent=2)
            print(f"{target}: written")


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m corpora.download", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data"), help="folder to write to")
    parser.add_argument("--sets", nargs="+", choices=NAMES, default=list(SETS), metavar="SET",
                        help=f"some of {', '.join(NAMES)} (default: {' '.join(SETS)})")
    options = parser.parse_args(arguments)
    names = [one for name in options.sets
             for one in ([n for n in NAMES if n.startswith("glue-")] if name == "glue" else [name])]
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return status_of(lambda: download(names, options.out, endpoint))


if __name__ == "__main__":
    sys.exit(main())
