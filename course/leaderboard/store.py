"""Teams and submissions in SQLite. What was acknowledged is on disk, whatever happens to the server afterwards."""
import contextlib
import hashlib
import json
import secrets
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST_NAME = 40  # characters
DAY = 24 * 3600.0  # seconds

SCHEMA = """
CREATE TABLE IF NOT EXISTS teams (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, token TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS submissions (
    id INTEGER PRIMARY KEY, team INTEGER NOT NULL REFERENCES teams(id), time REAL NOT NULL, note TEXT NOT NULL,
    scores TEXT NOT NULL, files TEXT NOT NULL, verified INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS of_team ON submissions (team, time);
"""


class TooMany(ValueError):
    """Say that a team has used up its submissions of the day."""


@dataclass
class Entry:
    """Hold a team's place: its best submission by the public score, and how many there are."""

    team: str
    scores: dict[str, Any]
    time: float
    entries: int
    note: str = ""
    verified: bool = False
    published: str = ""  # of a published system: where


def digest(text: str) -> str:
    """Return the SHA-256 of a text. Tokens are kept like this alone."""
    return hashlib.sha256(text.encode()).hexdigest()


def checked_name(name: str) -> str:
    """Return a pseudonym. Raise ValueError for one that is empty, too long, or not printable."""
    name = name.strip()
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise ValueError(f"a name has 1 to {LONGEST_NAME} printable characters; found {len(name)}")
    return name


class Store:
    """Keep teams and submissions.

    Args:
        path: of the database.
        a_day: submissions that a team has in 24 hours.
    """

    def __init__(self, path: Path, a_day: int = 5):
        self.path, self.a_day = Path(path), a_day
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as database:
            database.executescript(SCHEMA)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the database for one piece of work, which is done whole or not at all."""
        connection = sqlite3.connect(self.path, timeout=60.0, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # on disk before it is acknowledged
            connection.execute("PRAGMA foreign_keys = ON")
            connection.row_factory = sqlite3.Row
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    def add_team(self, name: str) -> str:
        """Register a team. Returns its token, which is not kept. Raise ValueError for a name that is taken."""
        token = secrets.token_urlsafe(24)
        try:
            with self._writing() as database:
                database.execute("INSERT INTO teams (name, token) VALUES (?, ?)", (checked_name(name), digest(token)))
        except sqlite3.IntegrityError:
            raise ValueError(f"the name '{checked_name(name)}' is taken") from None
        return token

    def team_of(self, token: str) -> tuple[int, str] | None:
        """Return the number and the name of the team with this token."""
        with self._open() as database:
            row = database.execute("SELECT id, name FROM teams WHERE token = ?", (digest(token),)).fetchone()
        return (row["id"], row["name"]) if row is not None else None

    def rename(self, team: int, name: str):
        """Give a team another pseudonym. Raise ValueError if it is taken."""
        try:
            with self._writing() as database:
                database.execute("UPDATE teams SET name = ? WHERE id = ?", (checked_name(name), team))
        except sqlite3.IntegrityError:
            raise ValueError(f"the name '{checked_name(name)}' is taken") from None

    def require_room(self, team: int, now: float | None = None, database: sqlite3.Connection | None = None):
        """Raise TooMany if a team has no submission left in these 24 hours. team: its number. now: for tests."""
        now = time.time() if now is None else now
        with contextlib.nullcontext(database) if database is not None else self._open() as connection:
            assert connection is not None
            rows = connection.execute("SELECT time FROM submissions WHERE team = ? AND time > ? ORDER BY time",
                                      (team, now - DAY)).fetchall()
        if len(rows) >= self.a_day:
            hours = (rows[0]["time"] + DAY - now) / 3600
            raise TooMany(f"{self.a_day} submissions in 24 hours are used up; the next is free in {hours:.1f} hours")

    def add_submission(self, team: int, scores: dict[str, Any], files: dict[str, str], note: str = "",
                       now: float | None = None) -> int:
        """Keep a scored submission. Returns its number.

        Args:
            team: its number.
            scores: of scoring.score.
            files: hashes of the prediction files.
            note: what the team says of it.
            now: for tests.

        Raises:
            TooMany: the team has no submission left. Two that come at once cannot both take the last one.
        """
        now = time.time() if now is None else now
        with self._writing() as database:
            self.require_room(team, now, database)
            cursor = database.execute(
                "INSERT INTO submissions (team, time, note, scores, files) VALUES (?, ?, ?, ?, ?)",
                (team, now, note[:200], json.dumps(scores, allow_nan=False), json.dumps(files)))
            number = cursor.lastrowid
        assert number is not None
        return number

    def history(self, team: int) -> list[dict[str, Any]]:
        """Return a team's submissions, with public scores only, the latest last."""
        with self._open() as database:
            rows = database.execute("SELECT id, time, note, scores FROM submissions WHERE team = ? ORDER BY time",
                                    (team,)).fetchall()
        return [{"id": row["id"], "time": row["time"], "note": row["note"],
                 "scores": json.loads(row["scores"])["public"]} for row in rows]

    def verify(self, number: int):
        """Mark a submission as run again by the staff. Raise ValueError if there is none."""
        with self._writing() as database:
            if database.execute("UPDATE submissions SET verified = 1 WHERE id = ?", (number,)).rowcount != 1:
                raise ValueError(f"there is no submission {number}")

    def entries(self, part: str = "public") -> list[Entry]:
        """Return each team's best submission.

        part: "public", or "private" for the final ranking. Either way the public score chooses: the private one is not
        known while the course runs.
        """
        with self._open() as database:
            rows = database.execute("SELECT teams.name, submissions.* FROM submissions JOIN teams ON teams.id = "
                                    "submissions.team ORDER BY submissions.time").fetchall()
        best: dict[str, tuple[float, Entry]] = {}
        counts: dict[str, int] = {}
        for row in rows:
            scores = json.loads(row["scores"])
            counts[row["name"]] = counts.get(row["name"], 0) + 1
            value = scores["public"]["overall"][0]
            if row["name"] not in best or value > best[row["name"]][0]:
                best[row["name"]] = value, Entry(row["name"], scores[part], row["time"], 0, row["note"],
                                                 bool(row["verified"]))
        for name, (_, entry) in best.items():
            entry.entries = counts[name]
        return [entry for _, entry in best.values()]
