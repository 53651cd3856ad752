"""Plans and results in SQLite.

A result is stored under the key of its run, once: two programs that run the same at a time store the same. A
plan is stored when it is run: the experiment, and every run with its entry. Tables, figures and counts are
read from there, joined with results by the run's key. What has no result is run the next time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prolip.core.errors import ProlipError
from prolip.io.sqlite import open_database
from prolip.research.protocols.run import Run
from prolip.research.running.plan import Plan
from prolip.research.running.result_key import code_version

_SCHEMA = """
PRAGMA user_version = 7;
CREATE TABLE results (
    key TEXT PRIMARY KEY, run TEXT NOT NULL, code TEXT NOT NULL, result TEXT NOT NULL, seconds REAL NOT NULL
);
CREATE TABLE failures (key TEXT PRIMARY KEY, error TEXT NOT NULL);
CREATE TABLE plans (
    id INTEGER PRIMARY KEY, experiment TEXT NOT NULL, plan TEXT NOT NULL, keys TEXT NOT NULL
);
"""


@dataclass(frozen=True)
class RunResult:
    """A run of a plan, with its result or error; neither where it is not done."""

    run: Run
    result: dict[str, Any] | None = None
    error: str | None = None


class ResultStore:
    """A file of results, created if it does not exist; for reading, it need not be writable."""

    def __init__(self, path: str | Path, *, reading: bool = False) -> None:
        self.path = Path(path)
        with self._translate_errors():
            self._db = open_database(self.path, _SCHEMA, read_only=reading)

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def add_plan(self, plan: Plan, keys: Sequence[str]) -> None:
        """Store a plan and the keys of its runs."""
        row = plan.experiment.name, json.dumps(asdict(plan)), json.dumps(keys)
        with self._translate_errors(), self._db:
            self._db.execute("INSERT INTO plans (experiment, plan, keys) VALUES (?, ?, ?)", row)

    def add_result(self, key: str, run: Run, result: dict[str, Any], seconds: float) -> None:
        """Store the result of a run; one that exists is not changed."""
        row = key, run.to_json(), code_version(run), json.dumps(result), seconds
        with self._translate_errors(), self._db:
            self._db.execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?, ?)", row)
            self._db.execute("DELETE FROM failures WHERE key = ?", (key,))

    def add_failure(self, key: str, error: str) -> None:
        """Store why a run failed."""
        with self._translate_errors(), self._db:
            self._db.execute("INSERT OR REPLACE INTO failures VALUES (?, ?)", (key, error))

    def known(self, keys: Sequence[str]) -> set[str]:
        """Return which of these keys have a result."""
        with self._translate_errors():
            return {*keys} & {key for (key,) in self._db.execute("SELECT key FROM results")}

    def last_plan(self, experiment: str) -> tuple[Plan, list[RunResult]] | None:
        """Return the newest plan of an experiment, and the results of its runs, in its order."""
        newest = "SELECT plan, keys FROM plans WHERE experiment = ? ORDER BY id DESC LIMIT 1"
        with self._translate_errors():
            stored = self._db.execute(newest, (experiment,)).fetchone()
            if stored is None:
                return None
            results = dict(self._db.execute("SELECT key, result FROM results"))
            errors = dict(self._db.execute("SELECT key, error FROM failures"))
        plan = Plan.from_json(json.loads(stored[0]))
        runs = []
        for run, key in zip(plan.runs, json.loads(stored[1]), strict=True):
            result = json.loads(results[key]) if key in results else None
            runs.append(RunResult(run, result, errors.get(key)))
        return plan, runs

    def timings(self) -> list[tuple[str, str, float]]:
        """Return every run that is done, as JSON, with the version of its code and its seconds."""
        with self._translate_errors():
            return self._db.execute("SELECT run, code, seconds FROM results").fetchall()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise errors of a damaged file or a full disk as a `ProlipError`."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise ProlipError(f"{self.path} cannot be used: {error}; choose another file") from error
