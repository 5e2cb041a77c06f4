"""course.split: what students get says nothing of labels, and all follows from the key."""
import pytest

from corpora.tables import read_table
from course.split import main, read_key, split

HEADER = "\tid\tsentence\tsentiment\n"


@pytest.fixture
def labelled(tmp_path):
    path = tmp_path / "secret.csv"
    rows = [f'{n}\tid{n:03d}\t"say ""{n}""" {n}\t{n % 5}' if n % 7 == 0 else f"{n}\tid{n:03d}\tsentence {n}\t{n % 5}"
            for n in range(100)]
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def key(tmp_path):
    (tmp_path / "key").write_bytes(b"0123456789abcdef0123456789abcdef\n")
    return tmp_path / "key"


def test_both_files_fit_and_students_see_no_label_and_no_order(labelled, key, tmp_path):
    assert main([str(labelled), "--key", str(key), "--out", str(tmp_path / "out")]) == 0
    student = list(read_table(tmp_path / "out/student/secret-test-student.csv", ["id", "sentence"]))
    grader = list(read_table(tmp_path / "out/grader/secret-labels.csv", ["id", "sentiment", "part"]))
    gold = {row.text("sentence"): row.text("sentiment") for row in read_table(labelled, ["sentence", "sentiment"])}
    labels = {row.text("id"): row.text("sentiment") for row in grader}
    assert len(student) == len(grader) == 100
    assert all(labels[row.text("id")] == gold[row.text("sentence")] for row in student)
    assert sum(row.text("part") == "public" for row in grader) == 30
    text = (tmp_path / "out/student/secret-test-student.csv").read_text()
    assert "sentiment" not in text and "id0" not in text
    order = [row.text("sentence") for row in student]
    assert order != list(gold) and order != sorted(order)


def test_the_same_key_gives_the_same_files_and_another_key_others(labelled):
    first = split(labelled, b"a" * 16, 0.3)
    assert split(labelled, b"a" * 16, 0.3) == first
    other = split(labelled, b"b" * 16, 0.3)
    ids = [{line.split("\t")[1] for line in text.splitlines()[1:]} for text, _ in (first, other)]
    assert not ids[0] & ids[1] and first[1] != other[1]


def test_pairs_and_rows_without_labels(tmp_path):
    path = tmp_path / "q.csv"
    path.write_text("\tid\tsentence1\tsentence2\tis_duplicate\n0\ta\tx\ty\t1.0\n1\tb\tx\t\t\n2\tc\tz\tw\t0.0\n")
    student, grader = split(path, b"k" * 16, 0.5)
    assert student.count("\n") == grader.count("\n") == 3 and "is_duplicate" not in student


@pytest.mark.parametrize(("text", "message"), [
    (HEADER + "0\ta\tx\t1\n", "has 1 labelled rows"), (HEADER + "0\ta\tx\t1\n1\ta\ty\t2\n", "an id comes twice"),
    ("\tid\tsentence\n0\ta\tx\n", "has no column sentiment, is_duplicate, similarity"), ("", "empty")])
def test_a_file_that_makes_no_sense_is_one_error(tmp_path, key, capsys, text, message):
    (tmp_path / "x.csv").write_text(text)
    assert main([str(tmp_path / "x.csv"), "--key", str(key), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_short_key_a_wrong_share_and_another_split_are_refused(labelled, key, tmp_path, capsys):
    (tmp_path / "short").write_bytes(b"abc")
    with pytest.raises(ValueError, match="the key has 3 bytes; expected at least 16"):
        read_key(tmp_path / "short")
    flags = [str(labelled), "--key", str(key), "--out", str(tmp_path / "out")]
    assert main([*flags, "--public", "1.5"]) == 2
    assert main(flags) == main(flags) == 0
    key.write_bytes(b"another key of some length")
    assert main(flags) == 2 and "holds another split" in capsys.readouterr().err
