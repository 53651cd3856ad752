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

_SCHEMA = """
PRAGMA user_version = 8;
CREATE TABLE results (key TEXT PRIMARY KEY, run TEXT NOT NULL, result TEXT, error TEXT);
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

    def add_result(self, key: str, run: Run, result: dict[str, Any] | None, error: str | None) -> None:
        """Store the result of a run, or why it failed; a result that exists is not changed."""
        row = key, run.to_json(), None if result is None else json.dumps(result), error
        insert = (
            "INSERT INTO results VALUES (?, ?, ?, ?) ON CONFLICT (key) "
            "DO UPDATE SET result = excluded.result, error = excluded.error WHERE result IS NULL"
        )
        with self._translate_errors(), self._db:
            self._db.execute(insert, row)

    def known(self) -> set[str]:
        """Return the keys that have a result."""
        with self._translate_errors():
            rows = self._db.execute("SELECT key FROM results WHERE result IS NOT NULL")
            return {key for (key,) in rows}

    def last_plan(self, experiment: str) -> tuple[Plan, list[RunResult]] | None:
        """Return the newest plan of an experiment, and the results of its runs, in its order."""
        newest = "SELECT plan, keys FROM plans WHERE experiment = ? ORDER BY id DESC LIMIT 1"
        with self._translate_errors():
            stored = self._db.execute(newest, (experiment,)).fetchone()
            if stored is None:
                return None
            rows = self._db.execute("SELECT key, result, error FROM results")
            results = {key: (result, error) for key, result, error in rows}
        plan = Plan.from_json(json.loads(stored[0]))
        runs = []
        for run, key in zip(plan.runs, json.loads(stored[1]), strict=True):
            result, error = results.get(key, (None, None))
            runs.append(RunResult(run, None if result is None else json.loads(result), error))
        return plan, runs

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise errors of a damaged file or a full disk as a `ProlipError`."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise ProlipError(f"{self.path} cannot be used: {error}; choose another file") from error
