"""Mine hard negatives: pairs of questions that look alike and are no duplicates, as far as the file says.

    python -m training.mining quora-train.csv --out mined.csv
    python -m training.mining quora-train.csv --out mined.csv --judge RUN

The nearest neighbours of a question, by the cosine of an encoder, are pairs that a classifier gets wrong (as Xiong et
al. 2021 mine passages). Some of them are duplicates that nobody has labelled. Three things keep those out: no chain of
labelled duplicates joins the pair; its cosine is below a margin; and, if there is a judge, a finished run that knows
the task holds it for no duplicate.
"""
import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from corpora.course import labelled_examples
from corpora.examples import Example
from corpora.files import must_be_new, write_text
from corpora.flags import Parser, fraction, positive
from corpora.messages import status_of
from corpora.tables import read_table
from minbert.pretrained import DEFAULT, fetch
from minbert.weights import load_encoder
from tasks.encoding import embed
from training.engines import make_engine
from training.evaluate import answers
from training.teacher import load_teacher

BLOCK = 1024  # questions whose neighbours are looked for at a time: 1,024 x 100,000 cosines are 400 MB
HEADER = "\tid\tsentence1\tsentence2\tis_duplicate"
TASK, BELOW = "para", 0.3  # of the judge


def read_labelled(path: Path) -> list[tuple[str, str, int]]:
    """Read pairs and labels from a paraphrase file of the course. Ids are not read. Incomplete rows are left out."""
    first, second, label = names = ("sentence1", "sentence2", "is_duplicate")
    data = labelled_examples(path, read_table(path, names), "train", (first, second), label,
                             lambda row: row.label(label, ["0", "1"]), id_column=None)
    pairs = []
    for example in data.examples:
        one, other = example.sentences
        pairs.append((one, other, int(example.label == 1)))
    return pairs


def line(identifier: str, first: str, second: str, label: float) -> str:
    """Write a row of a file of pairs. A sentence in quotes gets further ones, which the reader takes away."""
    return f"\t{identifier}\t{_field(first)}\t{_field(second)}\t{label:.1f}"


def _field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if text.startswith('"') and text.endswith('"') else text


def chains(questions: Sequence[str], pairs: Sequence[tuple[str, str, int]]) -> np.ndarray:
    """Give questions that a chain of duplicates joins the same number, [n].

    >>> chains(["a", "b", "c", "d"], [("a", "b", 1), ("c", "b", 1), ("c", "d", 0)]).tolist()
    [0, 0, 0, 1]
    """
    place = {question: index for index, question in enumerate(questions)}
    ends = np.array([(place[first], place[second]) for first, second, label in pairs if label], dtype=int)
    ends = ends.reshape(-1, 2)
    edges = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(questions),) * 2)
    return connected_components(edges, directed=False)[1]


def nearest(vectors: np.ndarray, groups: np.ndarray, low: float, high: float, each: int) -> Iterator[tuple[int, int]]:
    """Find each question's nearest neighbours outside its group, with low <= cosine < high. Each pair comes once.

    Args:
        vectors: [n, H], of length 1.
        groups: [n], of `chains`.
        low, high: the range. What is nearer than `high` may be a duplicate that has no label.
        each: how many neighbours of a question.

    Returns:
        (i, j) with i < j.
    """
    seen = set()
    for start in range(0, len(vectors), BLOCK):
        cosines = vectors[start:start + BLOCK] @ vectors.T
        same = groups[start:start + BLOCK, None] == groups[None, :]
        cosines[same | (cosines < low) | (cosines >= high)] = -2
        columns = np.argsort(-cosines, axis=1, kind="stable")[:, :each]
        for row, neighbours in enumerate(columns):
            for column in neighbours[cosines[row, neighbours] > -2]:
                pair = (min(start + row, int(column)), max(start + row, int(column)))
                if pair not in seen:
                    seen.add(pair)
                    yield pair


def judged(run: Path, task_name: str, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Return a finished run's probability that each pair is one of duplicates, [n].

    Args:
        run: its folder.
        task_name: of its paraphrase task.
        pairs: of sentences.
    """
    recipe, model = load_teacher(run, make_engine("engine"))
    task = model.tasks_by_name().get(task_name)
    if task is None or task.classes != 2:
        raise ValueError(f"{run}: has no task '{task_name}' with two classes; its tasks: {', '.join(recipe.tasks)}")
    examples = [Example(str(index), pair) for index, pair in enumerate(pairs)]
    task.tokenize(examples)
    given = answers(task, model.encoder, examples, torch.device("cpu"))
    if "probabilities" not in given:
        raise ValueError(f"{run}: its task '{task_name}' gives no probabilities; expected one that trains by them, as "
                         "with loss cross_entropy")
    return given["probabilities"][:, 1]


def mine(paths: Sequence[Path], out: Path, options: argparse.Namespace):
    """Write a file of mined negatives, and say how many there are.

    Args:
        paths: labelled pairs.
        out: a new file of the course's form.
        options: of the command.
    """
    must_be_new(out)
    if not -1 <= options.low < options.high <= 1:
        raise ValueError(f"--low {options.low:g}, --high {options.high:g}; expected -1 <= low < high <= 1")
    if options.judge is None and (options.task is not None or options.below is not None):
        raise ValueError("--task and --below describe the judge; expected --judge RUN")
    below = BELOW if options.below is None else options.below
    pairs = [pair for path in paths for pair in read_labelled(path)]
    questions = list(dict.fromkeys(question for first, second, _ in pairs for question in (first, second)))
    questions = questions[:options.questions]
    print(f"{len(pairs):,} pairs, {len(questions):,} questions")
    known = {frozenset(pair[:2]) for pair in pairs}
    inside = set(questions)
    groups = chains(questions, [pair for pair in pairs if pair[0] in inside and pair[1] in inside])
    encoder, tokenizer, _ = load_encoder(fetch(options.weights), make_engine("engine").model)
    vectors = embed(encoder, tokenizer, questions, normalize=True)
    candidates = [(questions[i], questions[j])
                  for i, j in nearest(vectors, groups, options.low, options.high, options.each)]
    mined = [pair for pair in candidates if frozenset(pair) not in known]
    print(f"{len(mined):,} pairs with a cosine from {options.low:g} to {options.high:g}; no chain of duplicates joins "
          "them, and no row names them")
    if options.judge is not None:
        probabilities = judged(options.judge, options.task or TASK, mined)
        mined = [pair for pair, probability in zip(mined, probabilities, strict=True) if probability < below]
        print(f"{len(mined):,} of them are no duplicates by {options.judge}: probability below {below:g}")
    if not mined:
        raise ValueError("nothing was mined; widen --low and --high")
    lines = [line(f"mined-{index}", *pair, 0) for index, pair in enumerate(mined)]
    write_text(out, "\n".join([HEADER, *lines]) + "\n")
    print(f"{out}: {len(mined):,} negatives")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    parser = Parser(prog="python -m training.mining", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pairs", nargs="+", type=Path, metavar="PAIRS.csv", help="labelled, as quora-train.csv is")
    parser.add_argument("--out", type=Path, required=True, help="a new file of negatives, of the same form")
    parser.add_argument("--weights", default=DEFAULT, help=f"the encoder that says what is near (default: {DEFAULT})")
    parser.add_argument("--low", type=float, default=0.5, help="smallest cosine (default: 0.5)")
    parser.add_argument("--high", type=float, default=0.85, help="cosines are below this (default: 0.85)")
    parser.add_argument("--each", type=positive, default=1, help="neighbours of a question (default: 1)")
    parser.add_argument("--questions", type=positive, help="look at so many of the first questions (default: all)")
    parser.add_argument("--judge", type=Path, metavar="RUN", help="a finished run; keep what it calls no duplicate")
    parser.add_argument("--task", help=f"the judge's task (default: {TASK})")
    parser.add_argument("--below", type=fraction, help=f"keep probabilities below this (default: {BELOW})")
    options = parser.parse_args(arguments)
    return status_of(lambda: mine(options.pairs, options.out, options))


if __name__ == "__main__":
    sys.exit(main())
