"""Every reader against hostile files: the value, or one line that names the file. Never a traceback, never for ever."""
from pathlib import Path

import malformed
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def formats(tmp_path_factory):
    return malformed.formats(tmp_path_factory.mktemp("formats"))


def test_more_than_800_malformed_files_are_values_or_one_line(tmp_path):
    results = list(malformed.attempts(tmp_path))
    faults = [result for result in results if result[2].startswith("FAULT")]
    assert not faults, faults[:5]
    assert len(results) > 800 and sum(result == "one line" for _, _, result in results) > 600


NAMES = list(malformed.formats(Path(malformed.tempfile.mkdtemp())))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_fuzzed_files_are_values_or_one_line(formats, name, data):
    """A slice of the well-formed file is replaced by anything, or the whole file is.

    The same inputs are drawn every time, so that a change is judged by what it changed. Raise max_examples to search.
    """
    path, read = formats[name]
    content = path.read_bytes()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    middle = data.draw(st.one_of(
        st.binary(max_size=60), st.text(max_size=40).map(lambda text: text.encode("utf-8", "ignore")),
        st.sampled_from([b"null", b"-1", b"{}", b"[", b'"', b"\t", b"\n", b"|||", b"9" * 5000])))
    try:
        path.write_bytes(data.draw(st.sampled_from([content[:start] + middle + content[end:], middle])))
        read(path)
    except ValueError as error:
        message = str(error)
        assert "\n" not in message
        assert path.name in message or str(path.parent) in message or "s1.dev" in message, message
    finally:
        path.write_bytes(content)


def test_a_table_with_a_header_only_is_an_error(formats):
    for name in ("sentiment table", "paraphrase table", "similarity table", "GLUE MRPC", "NLI table", "NLI triplets"):
        path, read = formats[name]
        content = path.read_bytes()
        path.write_bytes(content.split(b"\n")[0] + b"\n")
        with pytest.raises(ValueError, match="no usable row"):
            read(path)
        path.write_bytes(content)
