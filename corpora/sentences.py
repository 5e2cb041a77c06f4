"""Cut long texts into sentences: unlabelled text for a teacher to answer.

    python -m corpora.sentences ids-cfimdb-train.csv --out cfimdb-sentences.csv

The texts are tokenized with spaces, as the course's files are, so a sentence ends at a token of periods, question marks
or exclamation marks. Other text is not cut well by this.
"""
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from corpora.files import must_be_new, write_text
from corpora.flags import Parser, positive
from corpora.messages import status_of
from corpora.tables import read_table

_END = re.compile(r"[.?!]+")
HEADER = "\tid\tsentence"


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a tokenized text. What follows the last end is a sentence too.

    >>> list(sentences("It works . Does it ? Yes"))
    ['It works .', 'Does it ?', 'Yes']
    """
    words: list[str] = []
    for word in text.split():
        words.append(word)
        if _END.fullmatch(word):
            yield " ".join(words)
            words = []
    if words:
        yield " ".join(words)


def cut(paths: Sequence[Path], out: Path, min_words: int, max_words: int) -> int:
    """Write the different sentences of files with a column `sentence`. Returns how many there are.

    Args:
        paths: the files.
        out: a new file, with the columns id and sentence.
        min_words, max_words: sentences with fewer or more words are left out.

    Raises:
        ValueError: `out` is there already, or no sentence is left.
    """
    must_be_new(out)
    if not 1 <= min_words <= max_words:
        raise ValueError(f"--min_words {min_words}, --max_words {max_words}; expected 1 or more, the smaller first")
    # A quote character at either end would be taken for a wrapper by the reader, and says nothing here.
    texts = dict.fromkeys(sentence.strip('" ') for path in paths for row in read_table(path, ["sentence"])
                          for sentence in sentences(row.sentence("sentence")))
    chosen = [text for text in texts if min_words <= len(text.split()) <= max_words]
    if not chosen:
        raise ValueError(f"{paths[0]}: has no sentence of {min_words} to {max_words} words")
    write_text(out, "\n".join([HEADER, *(f"{index}\ts{index}\t{text}" for index, text in enumerate(chosen))]) + "\n")
    return len(chosen)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m corpora.sentences", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.csv", help="with a column sentence")
    parser.add_argument("--out", type=Path, required=True, help="a new file")
    parser.add_argument("--min_words", type=positive, default=4)
    parser.add_argument("--max_words", type=positive, default=50)
    options = parser.parse_args(arguments)

    def run():
        count = cut(options.files, options.out, options.min_words, options.max_words)
        print(f"{options.out}: {count:,} sentences")

    return status_of(run)


if __name__ == "__main__":
    sys.exit(main())
