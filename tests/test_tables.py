"""The one reader of tables: quoting, headers, line ends, and errors that name file and line."""
import csv
import io

import pytest
from conftest import TINY, cases
from hypothesis import given
from hypothesis import strategies as st

from corpora.tables import Row, read_csv, read_json_lines, read_table


def write(tmp_path, text, name="file.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


fields = st.text(st.characters(exclude_characters="\t\r\n", exclude_categories=["Cs"]), max_size=12)


@given(st.lists(st.tuples(fields, fields, fields), min_size=1, max_size=5))
def test_what_the_csv_module_writes_is_read_back(tmp_path_factory, rows):
    buffer = io.StringIO()
    csv.writer(buffer, delimiter="\t", lineterminator="\n").writerows([("a", "b", "c"), *rows])
    path = write(tmp_path_factory.mktemp("t"), buffer.getvalue())
    assert [tuple(row.values.values()) for row in read_table(path, ["a", "b", "c"])] == rows


def test_a_stray_quote_is_text_and_swallows_nothing(tmp_path):
    path = write(tmp_path, 'id\ts\n1\t"We won , he said .\n2\t5" or 6"\n3\t"a" and "b\n4\t"whole"\n')
    assert [row.values["s"] for row in read_table(path, ["id", "s"])] == [
        '"We won , he said .', '5" or 6"', '"a" and "b', "whole"]
    assert list(read_table(path, ["id", "s"], quoting=False))[3].values["s"] == '"whole"'


@pytest.mark.parametrize("text", ["id\ts\r\n1\ta\r\n", "\ufeffid\ts\n1\ta\n", "id\ts\n1\ta", "id\ts\n\n1\ta\n\n"])
def test_line_ends_byte_order_marks_and_blank_lines(tmp_path, text):
    assert [row.values for row in read_table(write(tmp_path, text), ["id", "s"])] == [{"id": "1", "s": "a"}]


def test_other_characters_that_python_calls_line_breaks_are_text(tmp_path):
    sentence = "a\x0bb\x85c\u2028d\x1ce"
    assert [row.values["s"] for row in read_table(write(tmp_path, f"id\ts\n1\t{sentence}\n"), ["s"])] == [sentence]


@pytest.mark.parametrize(("content", "message"), [
    (b"", r"file.csv: empty; expected a header with id, s"),
    (b"id\tx\n1\ta\n", r"file.csv:1: no column s; found id, x"),
    (b"id\ts\n1\ta\n2\n", r"file.csv:3: found 1 columns; expected 2"),
    (b"id\ts\n1\ta\tb\n", r"file.csv:2: found 3 columns; expected 2"),
    (b"id\ts\n1\t\xff\n", r"file.csv:2: found the byte 0xff; expected UTF-8"),
    ("id\ts\n".encode("utf-16"), r"file.csv:1: found the byte 0xff; expected UTF-8"),
])
def test_errors_name_file_line_found_and_expected(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        list(read_table(write(tmp_path, content), ["id", "s"]))


def test_rows_come_as_they_are_read(tmp_path):
    """What stands before a fault can be used: nothing waits for the file's end."""
    rows = read_table(write(tmp_path, "id\ts\n1\ta\n2\n"), ["id", "s"])
    assert next(rows).values == {"id": "1", "s": "a"}
    with pytest.raises(ValueError, match=r"file.csv:3: found 1 columns"):
        next(rows)


def test_a_missing_file_is_one_clear_error(tmp_path):
    with pytest.raises(ValueError, match="nowhere.csv: no such file"):
        list(read_table(tmp_path / "nowhere.csv", ["id"]))
    with pytest.raises(ValueError):
        list(read_table(tmp_path, ["id"]))


@pytest.mark.parametrize("value", ["nan", "inf", "-0.1", "5.01", "", "x", "1e400"])
def test_numbers_out_of_range_are_errors(tmp_path, value):
    with pytest.raises(ValueError, match=r"f.csv:7: score is .*; expected a number from 0 to 5"):
        Row(tmp_path / "f.csv", 7, {"score": value}).number("score", 0, 5)


@pytest.mark.parametrize("value", ["2", "-1", "1.5", "", "yes", "0.00"])
def test_labels_that_are_none_are_errors(tmp_path, value):
    with pytest.raises(ValueError, match=r"f.csv:7: dup is .*; expected one of 0, 1"):
        Row(tmp_path / "f.csv", 7, {"dup": value}).label("dup", ["0", "1"])


def test_labels_are_read_as_whole_numbers_floats_or_names(tmp_path):
    row = Row(tmp_path, 1, {"a": "1.0", "b": "0", "c": " entailment "})
    assert (row.label("a", ["0", "1"]), row.label("b", ["0", "1"]), row.label("c", {"entailment": 2})) == (1, 0, 2)


def test_comma_separated_files_with_line_breaks_in_quotes(tmp_path):
    path = write(tmp_path, 'a,b\n"x, y","two\nlines"\n3,4\n')
    rows = list(read_csv(path, ["a", "b"]))
    assert [row.values for row in rows] == [{"a": "x, y", "b": "two\nlines"}, {"a": "3", "b": "4"}]
    assert [row.line for row in rows] == [2, 4]
    with pytest.raises(ValueError, match=r"file.csv:2: .*closed quotes"):
        list(read_csv(write(tmp_path, 'a,b\n"x,y\n3,4\n'), ["a", "b"]))


@pytest.mark.parametrize(("text", "message"), [
    ("{\n", "file.csv:1: .*one JSON object a line"), ("[1]\n", "found a JSON list"),
    ('{"a": 1}\n{"b": 2}\n', "file.csv:2: no field a"), ("[" * 100_000, "file.csv:1")])
def test_json_lines_errors(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        list(read_json_lines(write(tmp_path, text), ["a"]))


def test_every_course_file_has_the_rows_that_were_counted(shared_data):
    counted = {"ids-sst-train": 8544, "ids-sst-dev": 1101, "ids-sst-test-student": 2210, "ids-cfimdb-train": 1707,
               "ids-cfimdb-dev": 245, "ids-cfimdb-test-student": 488, "quora-train": 14139, "quora-dev": 20214,
               "sts-train": 6040, "sts-dev": 863, "sts-test-student": 1725}
    for stem, rows in counted.items():
        assert len(list(read_table(shared_data / "cs224n" / f"{stem}.csv", ["id"]))) == rows, stem


@pytest.mark.parametrize("case", cases("tsv"))
def test_cases(tmp_path, case, tiny_tokenizer):
    from conftest import make_task

    given_input, expected = case["input"], case["expected"]
    path = write(tmp_path, given_input["text"], given_input["file"])
    if "MRPC" in given_input["format"]:
        rows = read_table(path, ["Quality", "#1 String", "#2 String"], quoting=False)
        found = [{"label": row.label("Quality", ["0", "1"]), "sentence1": row.text("#1 String"),
                  "sentence2": row.text("#2 String")} for row in rows]
        assert found == expected["rows"]
        return
    kind = "sentiment" if "sentiment" in given_input["format"] else "paraphrase"
    task = make_task(kind, "t", tiny_tokenizer, TINY, {})
    dataset = task.read(path, "test" if "test" in given_input["format"] else "train")
    if "rows" in expected:
        names = ["sentence"] if kind == "sentiment" else ["sentence1", "sentence2"]
        found = [{"id": e.id, **dict(zip(names, e.sentences, strict=True)),
                  **({} if e.label is None else {"label": e.label})} for e in dataset.examples]
        assert found == expected["rows"]
    else:
        assert [e.id for e in dataset.examples] == expected["kept_ids_if_skipping"]
        assert [line for line, _ in dataset.skipped] == expected["reported_lines"]
        assert "lines 3, 4" in dataset.report() and "is_duplicate" in dataset.report()


NOT_RATINGS = ["0_5", "\u0663", "nan", "inf", "1e999", "0x1", "", "1,5", "5.1", "-0.1", "4 5", "+-1"]


@pytest.mark.parametrize("text", NOT_RATINGS)
def test_numbers_are_plain_decimal_digits(tmp_path, text):
    (tmp_path / "t.csv").write_text(f"id\tsimilarity\na\t4.5\nb\t{text}\n", encoding="utf-8")
    rows = read_table(tmp_path / "t.csv", ["id", "similarity"])
    assert next(rows).number("similarity", 0, 5) == 4.5
    with pytest.raises(ValueError, match=r"t.csv:3: similarity is .*; expected a number from 0 to 5"):
        next(rows).number("similarity", 0, 5)


def test_another_separator_is_named(tmp_path):
    for separator, name in ((",", "commas"), (";", "semicolons")):
        (tmp_path / "t.csv").write_text(separator.join(["id", "sentence1", "sentence2"]) + "\n")
        with pytest.raises(ValueError, match=f"separated by {name}, expected tabs"):
            list(read_table(tmp_path / "t.csv", ["id", "sentence1"]))


def test_a_column_that_stands_twice_is_an_error(tmp_path):
    (tmp_path / "t.csv").write_text("id\tsentence\tid\na\tb\tc\n")
    with pytest.raises(ValueError, match="column id stands there 2 times"):
        list(read_table(tmp_path / "t.csv", ["id", "sentence"]))


@pytest.mark.parametrize("value", ["null", "3", "[1]", "{}", "true"])
def test_a_sentence_that_is_no_string_is_an_error(tmp_path, value):
    (tmp_path / "t.jsonl").write_text('{"a": "x"}\n{"a": ' + value + "}\n")
    with pytest.raises(ValueError, match=r"t.jsonl:2: a is .*; expected a string"):
        list(read_json_lines(tmp_path / "t.jsonl", ["a"], strings=["a"]))
