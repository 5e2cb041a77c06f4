"""The flags of all commands: a mistake is one line and status 2, and no number is taken that makes no sense."""
import argparse
import importlib
import re

import pytest
from conftest import ROOT
from test_house import ROOMS

from alignment.corpus import Settings
from corpora.flags import Parser, fraction, port, positive, rate

PLACES = sorted(str(path.relative_to(ROOT)) for path in [
    *ROOT.glob("*.py"), *(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))])
PROGRAMS = [place for place in PLACES if re.search(r"= Parser\(", (ROOT / place).read_text(encoding="utf-8"))]
# Numbers whose limits depend on other flags or on data. The commands check them, and tests of the commands show it.
CHECKED_BY_COMMAND = {"--low", "--high", "--public", "--layer"}
ANY_NUMBER = {"--seed", "--first_seed"}
FOR_DEVELOPERS = {"--examples", "--peak_tflops"}


class Seen(Exception):
    """Carry a command's parser out of its main function."""


def parser_of(place: str, monkeypatch: pytest.MonkeyPatch) -> Parser:
    """Return the parser that a program's main function makes."""
    def stop(self, arguments=None, namespace=None):
        raise Seen(self)

    module = importlib.import_module(place.removesuffix(".py").replace("/", "."))
    with monkeypatch.context() as patched, pytest.raises(Seen) as caught:
        patched.setattr(argparse.ArgumentParser, "parse_args", stop)
        module.main([])
    return caught.value.args[0]


def options(parser: argparse.ArgumentParser):
    """Yield every option of a parser and of its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for other in action.choices.values():
                yield from options(other)
        else:
            yield action


def test_every_command_uses_our_parser():
    assert len(PROGRAMS) > 25
    for place in PLACES:
        assert "argparse.ArgumentParser(prog" not in (ROOT / place).read_text(encoding="utf-8"), place


@pytest.mark.parametrize("place", PROGRAMS)
def test_numbers_have_limits_and_a_mistake_is_one_line(place, monkeypatch, capsys):
    parser = parser_of(place, monkeypatch)
    unchecked = {action.option_strings[0] for action in options(parser)
                 if action.type in (int, float) and action.choices is None}
    assert unchecked <= CHECKED_BY_COMMAND | ANY_NUMBER | FOR_DEVELOPERS
    with pytest.raises(SystemExit) as caught:
        parser.error("unrecognized arguments: --zzqx")
    error = capsys.readouterr().err
    assert caught.value.code == 2 and error == "error: unrecognized arguments: --zzqx (see --help)\n"


@pytest.mark.parametrize("command", [
    ["report.__main__", "errors", "run", "--task", "sst", "--worst", "0"],
    ["corpora.check", "x.csv", "--max_length", "-3"],
    ["corpora.sentences", "x.csv", "--out", "y.csv", "--min_words", "0"],
    ["alignment.__main__", "x", "--out", "y", "--workers", "0"],
    ["alignment.evaluate", "words", "toy", "--limit", "-5"],
    ["training.mining", "x.csv", "--out", "y", "--questions", "-1"],
    ["training.compare", "x.toml", "--seeds", "0"],
    ["course.mutations", "--threads", "0"],
    ["course.leaderboard.__main__", "serve", "--db", "x", "--labels", "y", "--port", "99999"],
], ids=lambda command: command[0])
def test_a_number_without_sense_ends_a_command(command, capsys):
    with pytest.raises(SystemExit) as caught:
        importlib.import_module(command[0]).main(command[1:])
    error = capsys.readouterr().err
    assert caught.value.code == 2 and error.count("\n") == 1
    assert f"argument {command[-2]}: '{command[-1]}'; expected a" in error


@pytest.mark.parametrize(("settings", "message"), [
    ({"min_words": 0}, "min_words 0"), ({"min_words": 3, "max_words": 2}, "min_words 3, max_words 2")])
def test_phrases_have_a_word_and_limits_in_order(settings, message):
    with pytest.raises(ValueError, match=message):
        Settings(**settings)


@pytest.mark.parametrize(("read", "right", "wrong"), [
    (positive, {"1": 1, "20": 20}, ["0", "-1", "1.5", "", "nan", "x", "1e3"]),
    (port, {"0": 0, "8000": 8000, "65535": 65535}, ["-1", "65536", "http"]),
    (fraction, {"0": 0.0, "0.5": 0.5}, ["1", "-0.1", "nan", "inf", "x"]),
    (rate, {"0": 0.0, "5e-5": 5e-5}, ["10", "-1e-5", "nan", "inf", ""])])
def test_a_number_is_read_or_refused_with_what_was_expected(read, right, wrong):
    assert {text: read(text) for text in right} == right
    for text in wrong:
        with pytest.raises(argparse.ArgumentTypeError, match=f"^{re.escape(repr(text))}; expected a "):
            read(text)
