"""Data sets that keep their own files: SNLI, MultiNLI, GLUE and PAWS, fetched as they are distributed and unpacked."""
import tarfile
import urllib.request
import zipfile
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from corpora.files import write_atomically, write_text
from corpora.tables import read_lines


@dataclass
class Archive:
    """Describe files that are distributed in one archive, or alone. They are kept as they are."""

    url: str
    members: dict[str, str]  # name in the archive -> our file; of a file that comes alone, its own name


_GLUE = "https://dl.fbaipublicfiles.com/glue/data"
_SPLITS = ("train", "dev", "test")
ARCHIVES = {
    "snli": Archive("https://nlp.stanford.edu/projects/snli/snli_1.0.zip", {
        f"snli_1.0/snli_1.0_{split}.jsonl": f"snli_1.0_{split}.jsonl" for split in _SPLITS}),
    "multinli": Archive("https://cims.nyu.edu/~sbowman/multinli/multinli_1.0.zip", {
        f"multinli_1.0/multinli_1.0_{split}.jsonl": f"multinli_1.0_{split}.jsonl"
        for split in ("train", "dev_matched", "dev_mismatched")}),
    "paws": Archive("https://storage.googleapis.com/paws/english/paws_wiki_labeled_final.tar.gz", {
        f"final/{split}.tsv": f"PAWS/{split}.tsv" for split in _SPLITS}),
    **{f"glue-{folder.lower()}": Archive(f"{_GLUE}/{archive}.zip", {
        f"{folder}/{name}.tsv": f"{folder}/{name}.tsv" for name in names})
       for folder, archive, names in (
           ("CoLA", "CoLA", _SPLITS), ("SST-2", "SST-2", _SPLITS), ("STS-B", "STS-B", _SPLITS),
           ("QQP", "QQP-clean", _SPLITS), ("QNLI", "QNLIv2", _SPLITS), ("RTE", "RTE", _SPLITS),
           ("WNLI", "WNLI", _SPLITS), ("MNLI", "MNLI", ("train", "dev_matched", "dev_mismatched", "test_matched",
                                                        "test_mismatched")))},
}
# MRPC is not in GLUE's archives. Its dev set is named by a list of ids.
MRPC = {"train": "https://dl.fbaipublicfiles.com/senteval/senteval_data/msr_paraphrase_train.txt",
        "test": "https://dl.fbaipublicfiles.com/senteval/senteval_data/msr_paraphrase_test.txt",
        "dev_ids": f"{_GLUE}/mrpc_dev_ids.tsv"}


def fetch_url(url: str, target: Path) -> Path:
    """Fetch a file. What an interrupted call left is continued, where the server can; the file appears whole.

    Args:
        url: of the file.
        target: where it goes.
    """
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            begins_anew = answer.status != 206  # the server does not know ranges
            expected = int(answer.headers.get("Content-Length") or -1)
            with open(part, "wb" if begins_anew else "ab") as file:
                written = 0
                while block := answer.read(1 << 20):
                    file.write(block)
                    written += len(block)
        if 0 <= expected != written:
            raise OSError(f"{written:,} of {expected:,} bytes came")
    except (OSError, HTTPException) as error:  # URLError is an OSError
        raise ValueError(f"{url}: cannot be fetched ({error}); run the same command again to go on") from None
    part.replace(target)
    return target


def _write_bytes(path: Path, content: bytes):
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def unpack(archive: Path, members: dict[str, str], out: Path) -> list[Path]:
    """Write an archive's members under our names. Returns the files.

    Args:
        archive: a .zip or .tar.gz file.
        members: name in the archive -> our name.
        out: the folder of our files.

    Raises:
        ValueError: the archive is damaged, or has no such member. It is then deleted, so that it is fetched anew.
    """
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as zipped:  # reading a member checks its checksum
                contents = {name: zipped.read(name) for name in members}
        else:
            with tarfile.open(archive) as tarred:
                opened = {name: tarred.extractfile(name) for name in members}
                contents = {name: file.read() for name, file in opened.items() if file is not None}
    except (zipfile.BadZipFile, tarfile.TarError, KeyError, EOFError, OSError, zlib.error) as error:
        archive.unlink()
        raise ValueError(f"{archive}: damaged, or without one of its files ({error}); it was deleted; run the same "
                         "command again") from None
    for name, content in contents.items():
        _write_bytes(out / members[name], content)
    return [out / name for name in members.values()]


def write_mrpc(files: dict[str, Path], out: Path) -> list[Path]:
    """Write MRPC's train, dev and test files as GLUE has them. Returns the files.

    Args:
        files: train, test and dev_ids, as distributed.
        out: the folder.
    """
    dev_ids = {tuple(line.split("\t")) for line in read_lines(files["dev_ids"]) if line}
    header, *rows = read_lines(files["train"])
    if header.split("\t")[0] != "Quality":
        raise ValueError(f"{files['train']}:1: found {header[:40]!r}; expected a header that begins with Quality")
    parts = {"train": [row for row in rows if tuple(row.split("\t")[1:3]) not in dev_ids],
             "dev": [row for row in rows if tuple(row.split("\t")[1:3]) in dev_ids],
             "test": list(read_lines(files["test"]))[1:]}
    if not parts["dev"]:
        raise ValueError(f"{files['dev_ids']}: names none of the rows of {files['train']}")
    # GLUE's test file has an index in place of the labels.
    test = [f"{index}\t" + "\t".join(row.split("\t")[1:]) for index, row in enumerate(parts["test"])]
    written = []
    for split, first, lines in (("train", "Quality", parts["train"]), ("dev", "Quality", parts["dev"]),
                                ("test", "index", test)):
        written.append(out / "MRPC" / f"{split}.tsv")
        write_text(written[-1], "\n".join([f"{first}\t#1 ID\t#2 ID\t#1 String\t#2 String", *lines]) + "\n")
    return written


def download_as_distributed(name: str, out: Path):
    """Fetch and unpack a set that keeps its own files, unless all of them are there.

    Args:
        name: a key of ARCHIVES, or glue-mrpc.
        out: the folder.
    """
    cache = out / ".archives"
    if name == "glue-mrpc":
        files = [out / "MRPC" / f"{split}.tsv" for split in _SPLITS]
    else:
        files = [out / ours for ours in ARCHIVES[name].members.values()]
    if all(file.exists() for file in files):
        print(f"{files[0].parent if len(files[0].parent.parts) > len(out.parts) else files[0]}: already there")
        return
    if name == "glue-mrpc":
        files = write_mrpc({part: fetch_url(url, cache / url.rsplit("/", 1)[1]) for part, url in MRPC.items()}, out)
    else:
        archive = ARCHIVES[name]
        files = unpack(fetch_url(archive.url, cache / archive.url.rsplit("/", 1)[1]), archive.members, out)
    for file in files:
        print(f"{file}: written")
