"""The generated corpora: seeded, without leaks between splits, and their gold alignments are true."""
import random

import pytest

from corpora import toy
from corpora.tables import read_table


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        toy.write_course_files(tmp_path / name, seed, 50, 20, 20)
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
        assert path.read_bytes() != (tmp_path / "c" / path.name).read_bytes()


@pytest.mark.parametrize("stem", ["ids-sst", "quora", "sts"])
def test_no_row_is_in_two_splits(tmp_path, stem):
    toy.write_course_files(tmp_path)
    columns = ["sentence"] if stem == "ids-sst" else ["sentence1", "sentence2"]
    rows = [tuple(row.text(c) for c in columns) for split in ("train", "dev", "test-student")
            for row in read_table(tmp_path / f"{stem}-{split}.csv", columns)]
    assert len(rows) == len(set(rows)) == 1200


def test_every_label_is_there(tmp_path):
    toy.write_course_files(tmp_path)
    labels = {row.text("sentiment") for row in read_table(tmp_path / "ids-sst-train.csv", ["sentiment"])}
    assert labels == set("01234")
    scores = [float(row.text("similarity")) for row in read_table(tmp_path / "sts-train.csv", ["similarity"])]
    assert min(scores) == 0 and max(scores) == 5


def test_gold_alignments_are_of_the_same_concept():
    rng = random.Random(0)
    meaning_of = {wording: concept for role in toy.ROLES.values() for concept, wordings in role.items()
                  for wording in wordings}
    for _ in range(200):
        row = toy.aligned_row(rng)
        assert len(row["alignments"]) == 5
        for s0, s1, t0, t1 in row["alignments"]:
            source, target = " ".join(row["source"][s0:s1]), " ".join(row["target"][t0:t1])
            assert meaning_of[source] == meaning_of[target]
