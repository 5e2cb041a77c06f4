"""The course's files: rows with an id, one or two sentences, and a label -> examples."""
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from corpora.examples import Dataset, Example, IdRegister, examples_of
from corpora.tables import Row


def labelled_examples(path: Path, rows: Iterable[Row], split: str, sentences: Sequence[str], label: str,
                      read_label: Callable[[Row], float], id_column: str | None = "id", required_id: bool = True
                      ) -> Dataset:
    """Turn rows into examples.

    A row of train or dev without a sentence or a label is left out and reported. Every row of a test file becomes an
    example, since a prediction is expected for each.

    Args:
        path: the file, for messages.
        rows: its rows.
        split: train, dev or test. The labels of a test file are not read.
        sentences: the columns that hold sentences.
        label: the column that holds the label.
        read_label: reads a row's label, and raises ValueError for one that makes no sense.
        id_column: the column that holds the id; None: there is none, and the line is the id.
        required_id: every row must have an id. Otherwise the line is the id of a row without one.

    Raises:
        ValueError: an id comes twice, a label makes no sense, or no row is usable.
    """
    examples, skipped, ids = examples_of(path), [], IdRegister(Path(path))
    for row in rows:
        identifier = row.text(id_column) if id_column is not None else ""
        if not identifier and required_id and id_column is not None:
            raise row.error(id_column, "an id")
        identifier = identifier or str(row.line)
        ids.add(identifier, row.line)
        texts = tuple(row.sentence(name) for name in sentences)
        value = None
        if split != "test":
            if blank := row.first_blank((label, *sentences)):
                skipped.append((row.line, f"without {blank}"))
                continue
            value = read_label(row)
        examples.append(Example(identifier, texts, value))
    return Dataset(Path(path), examples, skipped)
