"""The server: takes prediction files with a token, scores them by id, and shows the table. It runs nobody's code."""
import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException, Request
from fastapi.responses import HTMLResponse, PlainTextResponse

from course.leaderboard.page import as_csv, render
from course.leaderboard.scoring import LARGEST, TASKS, Hidden, score
from course.leaderboard.store import Store, TooMany, digest

LARGEST_BODY = len(TASKS) * LARGEST + (1 << 16)  # bytes
WORKERS = 4  # that score at the same time


async def body_of(request: Request) -> dict[str, Any]:
    """Read a request's JSON object. Raises HTTPException for one that is too large, or something else."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > LARGEST_BODY:
            raise HTTPException(413, f"the request has more than {LARGEST_BODY:,} bytes")
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise HTTPException(422, "expected a JSON object") from None
    if not isinstance(values, dict):
        raise HTTPException(422, f"found a JSON {type(values).__name__}; expected an object")
    return values


def make_app(store: Store, hidden: dict[str, Hidden], title: str, final: bool = False) -> FastAPI:
    """Make the server.

    Args:
        store: of teams and submissions.
        hidden: labels by task.
        title: of the page.
        final: show private scores: the course is over.
    """
    app = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None)
    scorers = ThreadPoolExecutor(WORKERS)
    part = "private" if final else "public"

    def team_of(authorization: str | None) -> tuple[int, str]:
        """Return the team of a request. Raises HTTPException for a token that is missing or wrong."""
        kind, _, token = (authorization or "").partition(" ")
        team = store.team_of(token) if kind.lower() == "bearer" else None
        if team is None:
            raise HTTPException(401, "expected a header Authorization: Bearer TOKEN with your team's token")
        return team

    @app.get("/", response_class=HTMLResponse)
    def board() -> str:
        """Show the table."""
        note = "Final scores, on the private part." if final else "Scores on the public part of the test sets."
        return render(store.entries(part), title, note)

    @app.get("/table.csv", response_class=PlainTextResponse)
    def table() -> str:
        """Return the table as CSV."""
        return as_csv(store.entries(part))

    @app.get("/me")
    def me(authorization: Annotated[str | None, Header()] = None) -> dict[str, Any]:
        """Return a team's name and history."""
        team, name = team_of(authorization)
        return {"team": name, "submissions": store.history(team)}

    @app.post("/name")
    async def rename(request: Request, authorization: Annotated[str | None, Header()] = None) -> dict[str, str]:
        """Change a team's pseudonym."""
        team, _ = team_of(authorization)
        name = (await body_of(request)).get("name")
        try:
            store.rename(team, name if isinstance(name, str) else "")
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        return {"team": str(name).strip()}

    @app.post("/submit")
    async def submit(request: Request, authorization: Annotated[str | None, Header()] = None) -> dict[str, Any]:
        """Score a submission: a JSON object with the text of each task's prediction file, and perhaps a note."""
        team, _ = team_of(authorization)
        values = await body_of(request)
        texts = {task: values[task] for task in TASKS if isinstance(values.get(task), str)}
        note = values.get("note") if isinstance(values.get("note"), str) else ""
        try:
            store.require_room(team)
            scores = await asyncio.get_running_loop().run_in_executor(scorers, score, texts, hidden)
            files = {task: digest(text) for task, text in texts.items()}
            number = await asyncio.get_running_loop().run_in_executor(
                scorers, lambda: store.add_submission(team, scores, files, str(note)))
        except TooMany as error:
            raise HTTPException(429, str(error)) from None
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        return {"submission": number, "scores": scores["public"]}

    return app
