"""Run the leaderboard, or build its page.

    python -m course.leaderboard build scores/*.json --out page.html
    python -m course.leaderboard score PREDICTIONS --labels DIR --team NAME --out scores/NAME.json
    python -m course.leaderboard team NAME --db board.sqlite        prints the team's token
    python -m course.leaderboard serve --db board.sqlite --labels DIR [--port 8000] [--a_day 5] [--final]
    python -m course.leaderboard submit PREDICTIONS --url URL --token TOKEN [--note TEXT]

DIR is the grader's folder of course.split. PREDICTIONS holds sst-, para- and sts-test-output.csv. Without a server,
collect predictions by any means, score them, and build the page from the scores.
"""
import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from corpora.files import write_json, write_text
from corpora.flags import Parser, port, positive
from corpora.messages import printable, status_of
from course.leaderboard.page import as_csv, render
from course.leaderboard.scoring import FILES, load_hidden, score
from course.leaderboard.store import Entry, Store, checked_name


def texts_of(folder: Path) -> dict[str, str]:
    """Read the prediction files of a folder. Raise ValueError where one is missing or no text."""
    texts = {}
    for task, name in FILES.items():
        try:
            texts[task] = (folder / name).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{folder / name}: {getattr(error, 'strerror', None) or error}") from None
    return texts


def entry_of(path: Path) -> Entry:
    """Read a file of scores. Raise ValueError for something else."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        scores = {name: [float(number) for number in values["scores"]["public"][name]]
                  for name in ("overall", "sst", "para", "sts")}
        if any(len(numbers) != 3 for numbers in scores.values()):
            raise ValueError("a score has a value and two limits")
        return Entry(checked_name(values["team"]), scores, float(values.get("time", 0)), 1, str(values.get("note", "")))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: no file of scores ({error})") from None


def send(folder: Path, url: str, token: str, note: str) -> str:
    """Send predictions to a server. Returns its answer; raises ValueError with what it says against them."""
    body = json.dumps({**texts_of(folder), "note": note}).encode()
    request = urllib.request.Request(url.rstrip("/") + "/submit", body, {
        "Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        raise ValueError(f"{url} answered {error.code}: {error.read(2000).decode(errors='replace')}") from None
    except (urllib.error.URLError, OSError) as error:
        raise ValueError(f"{url}: {getattr(error, 'reason', error)}") from None


def parser() -> argparse.ArgumentParser:
    """Describe the commands."""
    result = Parser(prog="python -m course.leaderboard", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = result.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build")
    build.add_argument("scores", type=Path, nargs="+")
    build.add_argument("--out", type=Path, required=True)
    build.add_argument("--title", default="Leaderboard")
    build.add_argument("--csv", type=Path)
    one = commands.add_parser("score")
    one.add_argument("predictions", type=Path)
    one.add_argument("--labels", type=Path, required=True)
    one.add_argument("--team", required=True)
    one.add_argument("--out", type=Path, required=True)
    team = commands.add_parser("team")
    team.add_argument("name")
    team.add_argument("--db", type=Path, required=True)
    serve = commands.add_parser("serve")
    serve.add_argument("--db", type=Path, required=True)
    serve.add_argument("--labels", type=Path, required=True)
    serve.add_argument("--port", type=port, default=8000)
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--a_day", type=positive, default=5)
    serve.add_argument("--title", default="Leaderboard")
    serve.add_argument("--final", action="store_true", help="show the private scores")
    submit = commands.add_parser("submit")
    submit.add_argument("predictions", type=Path)
    submit.add_argument("--url", required=True)
    submit.add_argument("--token", required=True)
    submit.add_argument("--note", default="")
    return result


def run(options: argparse.Namespace):
    """Do what the command says."""
    if options.command == "build":
        entries = [entry_of(path) for path in options.scores]
        write_text(options.out, render(entries, options.title))
        if options.csv is not None:
            write_text(options.csv, as_csv(entries))
        print(f"{options.out}: {len(entries)} teams")
    elif options.command == "score":
        scores = score(texts_of(options.predictions), load_hidden(options.labels))
        write_json(options.out, {"team": checked_name(options.team), "scores": scores})
        print(f"{options.out}: overall {scores['public']['overall'][0]:.4f} on the public part")
    elif options.command == "team":
        print(Store(options.db).add_team(options.name))
    elif options.command == "submit":
        print(printable(send(options.predictions, options.url, options.token, options.note)))
    else:
        try:
            import uvicorn

            from course.leaderboard.server import make_app
        except ImportError:
            raise ValueError("the server needs two packages more: pip install fastapi uvicorn") from None
        app = make_app(Store(options.db, options.a_day), load_hidden(options.labels), options.title, options.final)
        uvicorn.run(app, host=options.host, port=options.port, log_level="warning")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit status."""
    options = parser().parse_args(arguments)
    return status_of(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
