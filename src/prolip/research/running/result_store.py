"""Plans and results in SQLite, for any number of runners at once.

A plan is stored when it is first run: the experiment, and every run with its line. Tables, figures and counts
are read from there, joined with results by the run's key.

A runner claims runs in a transaction under its own name, and updates a time stamp while it is alive; runs of
a runner that is not are claimed again. A result is written once. A runner that is killed loses the runs in
progress and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from prolip.core.errors import ProlipError
from prolip.io.reading import open_regular
from prolip.io.writing import check_place, make_folders
from prolip.research.protocols.run import Run
from prolip.research.running.estimate import Timings
from prolip.research.running.plan import Plan
from prolip.research.running.result_key import code_version

STALE = 60.0  # seconds after which a runner that has not updated its time stamp counts as dead
ATTEMPTS = 3  # number of times that a run may kill its process before it counts as failed
_VERSION = 4

_DAMAGE = (sqlite3.Error, ValueError, LookupError, TypeError, AttributeError, RecursionError)

StoreMethod = TypeVar("StoreMethod", bound=Callable[..., Any])

_SCHEMA = """
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    run TEXT NOT NULL,
    code TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('waiting', 'running', 'done', 'failed')),
    owner TEXT,
    alive REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    result TEXT,
    error TEXT,
    seconds REAL
);
CREATE TABLE plans (
    id INTEGER PRIMARY KEY,
    experiment TEXT NOT NULL,
    plan TEXT NOT NULL
);
CREATE TABLE planned (
    plan INTEGER NOT NULL REFERENCES plans (id),
    place INTEGER NOT NULL,
    key TEXT NOT NULL REFERENCES runs (key),
    line TEXT NOT NULL,
    model TEXT NOT NULL,
    turn INTEGER NOT NULL,
    PRIMARY KEY (plan, place)
) WITHOUT ROWID;
CREATE INDEX waiting ON runs (status);
"""


@dataclass(frozen=True)
class RunResult:
    """A run of a plan, with its result or error."""

    run: Run
    status: str  # "waiting", "running", "done" or "failed"
    result: dict[str, Any] | None = None
    error: str | None = None


@dataclass(frozen=True)
class PlanStatus:
    """Numbers of runs of a plan; seconds that its finished runs took, and an estimate for the others."""

    done: int
    failed: int
    running: int
    waiting: int
    seconds: float = 0.0
    seconds_left: float | None = None

    @property
    def finished(self) -> int:
        """Runs that are done or failed."""
        return self.done + self.failed

    @property
    def total(self) -> int:
        """All runs of the plan."""
        return self.finished + self.running + self.waiting


def _translate_errors(method: StoreMethod) -> StoreMethod:
    """Raise errors of a damaged file or a full disk as a `ProlipError`."""

    @wraps(method)
    def call(self: ResultStore, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except (*_DAMAGE, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ProlipError(f"{self.path} cannot be used: {why}; choose another file") from error

    return cast(StoreMethod, call)


class ResultStore:
    """A file of results, created if it does not exist; for reading, it need not be writable."""

    def __init__(self, path: str | Path, *, reading: bool = False) -> None:
        self.path = Path(path)
        self._fixed = reading and not all(
            os.access(p, os.W_OK) for p in (self.path, self.path.absolute().parent)
        )
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._open()

    @_translate_errors
    def _open(self) -> None:
        target = self.path.absolute() if self._fixed else check_place(self.path)
        if not self._fixed:
            make_folders(target.parent)
        if target.exists():
            open_regular(target).close()  # a pipe would hang
        with ExitStack() as stack:
            where = f"{target.as_uri()}?immutable=1" if self._fixed else target
            self._db = sqlite3.connect(where, timeout=60.0, isolation_level=None, uri=self._fixed)
            stack.callback(self._db.close)
            if self._fixed:
                self._is_new()
            else:
                with self._transaction():
                    if self._is_new():
                        for statement in _SCHEMA.split(";"):
                            self._db.execute(statement)
                        self._db.execute(f"PRAGMA user_version = {_VERSION}")
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
            stack.pop_all()

    def _is_new(self) -> bool:
        """Return whether the file is empty; refuse one that others wrote."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version != _VERSION and (version or tables):
            raise ProlipError(f"{self.path} has no results of this version of prolip: choose another file")
        return bool(version != _VERSION)

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        """Release claimed runs, and close the file."""
        with closing(self._db):
            if not self._fixed:
                self.release()

    @_translate_errors
    def add_plan(self, plan: Plan, keys: Sequence[str]) -> int:
        """Store a plan and the keys of its runs, and return its number; known runs keep their results."""
        with self._transaction():
            number = self._db.execute(
                "INSERT INTO plans (experiment, plan) VALUES (?, ?)",
                (plan.experiment.name, json.dumps(plan.to_json())),
            ).lastrowid
            runs = list(zip(keys, plan.runs, strict=True))
            self._db.executemany(
                "INSERT INTO runs (key, run, code, status) VALUES (?, ?, ?, 'waiting') "
                "ON CONFLICT DO NOTHING",
                [(key, run.to_json(), code_version(run)) for key, run in runs],
            )
            # Seed after seed: tables of an unfinished run have every line, and its time can be estimated.
            turns = {seed: turn for turn, seed in enumerate(dict.fromkeys(run.seed for run in plan.runs))}
            self._db.executemany(
                "INSERT INTO planned (plan, place, key, line, model, turn) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (number, place, key, run.line, run.model, turns[run.seed])
                    for place, (key, run) in enumerate(runs)
                ],
            )
        assert number is not None
        return number

    @_translate_errors
    def last_plan(self, experiment: str) -> tuple[Plan, list[RunResult]] | None:
        """Return the newest plan of an experiment, and the results of its runs, in its order."""
        found = self._db.execute(
            "SELECT id, plan FROM plans WHERE experiment = ? ORDER BY id DESC LIMIT 1", (experiment,)
        ).fetchone()
        if found is None:
            return None
        results = self.results(found[0])
        return Plan.from_json(json.loads(found[1]), [result.run for result in results]), results

    @_translate_errors
    def results(self, plan: int) -> list[RunResult]:
        """Return the results of a plan's runs, in its order."""
        found = self._db.execute(
            "SELECT line, model, run, status, result, error FROM planned JOIN runs USING (key) "
            "WHERE plan = ? ORDER BY place",
            (plan,),
        )
        return [
            RunResult(
                dataclasses.replace(Run.from_json(run), line=line, model=model),
                status,
                json.loads(result) if result else None,
                error,
            )
            for line, model, run, status, result, error in found
        ]

    @_translate_errors
    def status(self, plan: int) -> PlanStatus:
        """Count the runs of a plan; a run that several of its lines share counts once.

        Remaining seconds are estimated by runs that differ in the seed only, or by the size of the problem.
        """
        found = self._db.execute(
            "SELECT status, count(*), sum(seconds), min(run) FROM runs "
            "WHERE key IN (SELECT key FROM planned WHERE plan = ?) "
            "GROUP BY status, json_remove(run, '$.seed')",
            (plan,),
        ).fetchall()
        counts = dict.fromkeys(("done", "failed", "running", "waiting"), 0)
        timings, ahead = Timings(), []
        for status, count, seconds, run in found:
            counts[status] += count
            if status == "done":
                timings.add(run, seconds or 0.0, count)
            elif status != "failed":
                ahead.append((run, count))
        spent = sum(seconds or 0.0 for status, _, seconds, _ in found if status in ("done", "failed"))
        left = timings.estimate(ahead) if counts["done"] else None
        return PlanStatus(**counts, seconds=spent, seconds_left=left)

    @_translate_errors
    def timings(self) -> list[tuple[str, str, float]]:
        """Return every run that is done, as JSON, with the version of its code and its seconds."""
        return self._db.execute("SELECT run, code, seconds FROM runs WHERE status = 'done'").fetchall()

    @_translate_errors
    def retry(self, plan: int) -> int:
        """Let the failed runs of a plan run again, and return their number."""
        return self._db.execute(
            "UPDATE runs SET status = 'waiting', error = NULL, owner = NULL, attempts = 0 "
            "WHERE status = 'failed' AND key IN (SELECT key FROM planned WHERE plan = ?)",
            (plan,),
        ).rowcount

    @_translate_errors
    def claim(self, plan: int, count: int) -> list[str]:
        """Claim up to `count` waiting runs of a plan, those of dead runners included; return their keys."""
        with self._transaction():
            self._release_abandoned()
            found = self._db.execute(
                "SELECT key FROM runs JOIN planned USING (key) WHERE plan = ? AND status = 'waiting' "
                "GROUP BY key ORDER BY min(turn), min(place) LIMIT ?",
                (plan, count),
            ).fetchall()
            self._db.executemany(
                "UPDATE runs SET status = 'running', owner = ?, alive = ?, attempts = attempts + 1 "
                "WHERE key = ?",
                [(self.owner, time.time(), key) for (key,) in found],
            )
        return [key for (key,) in found]

    @_translate_errors
    def finish(self, key: str, result: dict[str, Any] | None, error: str | None, seconds: float) -> None:
        """Store the result of a run, or its error; a result that exists is not changed."""
        status, text = ("failed", None) if result is None else ("done", json.dumps(result))
        self._db.execute(
            "UPDATE runs SET status = ?, result = ?, error = ?, owner = NULL, seconds = ? "
            "WHERE key = ? AND status != 'done'",
            (status, text, error, seconds, key),
        )

    @_translate_errors
    def worker_died(self, key: str, reason: str) -> None:
        """Let a run wait again after its process died; after several times it is failed."""
        (attempts,) = self._db.execute("SELECT attempts FROM runs WHERE key = ?", (key,)).fetchone()
        if attempts >= ATTEMPTS:
            self.finish(key, None, f"its process died {attempts} times: {reason}", 0.0)
        else:
            self._db.execute(
                "UPDATE runs SET status = 'waiting', owner = NULL WHERE key = ? AND owner = ?",
                (key, self.owner),
            )

    @_translate_errors
    def keep_alive(self) -> None:
        """Update the time stamp of the runs that this runner has claimed."""
        self._db.execute(
            "UPDATE runs SET alive = ? WHERE owner = ? AND status = 'running'", (time.time(), self.owner)
        )

    @_translate_errors
    def release(self, *owners: str) -> None:
        """Release the runs that this runner (or others) claimed; this attempt does not count."""
        self._db.executemany(
            "UPDATE runs SET status = 'waiting', owner = NULL, attempts = attempts - 1 "
            "WHERE owner = ? AND status = 'running'",
            [(owner,) for owner in owners or (self.owner,)],
        )

    def _release_abandoned(self) -> None:
        """Release runs whose runner is dead."""
        owners = self._db.execute(
            "SELECT owner, max(alive) FROM runs WHERE status = 'running' AND owner != ? GROUP BY owner",
            (self.owner,),
        ).fetchall()
        if dead := [owner for owner, alive in owners if not _is_alive(owner, alive)]:
            self.release(*dead)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _is_alive(owner: str, alive: float | None) -> bool:
    """Return whether a runner has updated its time stamp lately; on this machine its process must exist."""
    host, pid, _ = owner.rsplit(":", 2) if re.fullmatch(r".*:\d{1,9}:\w+", owner) else ("", "", "")
    if host == socket.gethostname() and os.name == "posix":  # on Windows, os.kill ends the process
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # another user's process, maybe a later one with the same number
            pass
    return alive is not None and time.time() - alive < STALE
