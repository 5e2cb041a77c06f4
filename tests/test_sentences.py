"""Long texts are cut into sentences, each once."""
import pytest

from corpora import sentences
from corpora.tables import read_table


@pytest.mark.parametrize(("text", "expected"), [
    ("", []), ("a b", ["a b"]), ("a . b", ["a .", "b"]), ("a ... b ?! c !", ["a ...", "b ?!", "c !"]),
    ("Mr. Smith 3.5 went .", ["Mr. Smith 3.5 went ."]), (". .", [".", "."])])
def test_a_sentence_ends_at_a_token_of_end_marks(text, expected):
    assert list(sentences.sentences(text)) == expected


def write(path, *texts):
    path.write_text("\tid\tsentence\tsentiment\n" + "".join(f"{i}\tr{i}\t{text}\t1\n" for i, text in enumerate(texts)))
    return str(path)


def test_the_command_writes_what_the_reader_reads(tmp_path, capsys):
    first = write(tmp_path / "a.csv", "one two three . short . one two three .",
                  '" quoted words here . and more words ! "')
    second = write(tmp_path / "b.csv", "one two three . the last four words")
    flags = ["--out", str(tmp_path / "out.csv"), "--min_words", "3", "--max_words", "4"]
    assert sentences.main([first, second, *flags]) == 0
    read = [row.sentence("sentence") for row in read_table(tmp_path / "out.csv", ["id", "sentence"])]
    assert read == ["one two three .", "quoted words here .", "and more words !", "the last four words"]
    assert capsys.readouterr().out == f"{tmp_path / 'out.csv'}: 4 sentences\n"


@pytest.mark.parametrize(("flags", "message"), [
    (["--min_words", "9", "--max_words", "8"], "the smaller first"),
    (["--min_words", "40"], "has no sentence of 40 to 50 words")])
def test_what_makes_no_sense_is_one_line(tmp_path, capsys, flags, message):
    path = write(tmp_path / "a.csv", "one two three four .")
    assert sentences.main([path, "--out", str(tmp_path / "out.csv"), *flags]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and message in error and not (tmp_path / "out.csv").exists()


def test_no_file_is_overwritten_and_a_wrong_one_is_one_line(tmp_path, capsys):
    path = write(tmp_path / "a.csv", "one two three four .")
    assert sentences.main([path, "--out", path]) == 2
    (tmp_path / "x.csv").write_text("id\ttext\n1\thello\n")
    assert sentences.main([str(tmp_path / "x.csv"), "--out", str(tmp_path / "out.csv")]) == 2
    error = capsys.readouterr().err
    assert "exists already; choose another --out" in error and "x.csv:1" in error and error.count("\n") == 2
