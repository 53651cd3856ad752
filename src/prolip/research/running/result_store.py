"""Plans and results in SQLite: units that wait, run, are done or failed, for any number of runners at once.

A plan is written down whole when its run begins: the experiment as it stood, and every unit with its line.
Tables, figures and counts are read from there, joined with results on the unit's key.

A runner claims units in a transaction and puts its name on them. It says now and then that it is alive; the
units of one that is not are claimed again. A result is written once: whoever comes second finds it done.
Killed at any moment, a runner loses the units in its hands and nothing else.
"""

from __future__ import annotations

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
from prolip.research.running.plan import Plan, PlannedUnit
from prolip.research.running.result_key import code_version
from prolip.research.running.unit import Unit

STALE = 60.0  # seconds without a sign of life
ATTEMPTS = 3  # times that a unit may take its process down before it counts as failed
_VERSION = 2

_DAMAGE = (sqlite3.Error, UnicodeError, LookupError, TypeError)  # values that no one wrote

Method = TypeVar("Method", bound=Callable[..., Any])
Value = TypeVar("Value")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS units (
    key TEXT PRIMARY KEY,
    unit TEXT NOT NULL,
    code TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('waiting', 'running', 'done', 'failed')),
    owner TEXT,
    beat REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    result TEXT,
    error TEXT,
    seconds REAL,
    finished REAL
);
CREATE TABLE IF NOT EXISTS plans (
    id INTEGER PRIMARY KEY,
    experiment TEXT NOT NULL,
    plan TEXT NOT NULL,
    created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS planned (
    plan INTEGER NOT NULL REFERENCES plans (id),
    place INTEGER NOT NULL,
    key TEXT NOT NULL REFERENCES units (key),
    line TEXT NOT NULL,
    model TEXT NOT NULL,
    PRIMARY KEY (plan, place)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS waiting ON units (status);
"""


@dataclass(frozen=True)
class UnitResult:
    """A unit of a plan and what became of it."""

    planned: PlannedUnit
    status: str
    result: dict[str, Any] | None = None
    error: str | None = None


@dataclass(frozen=True)
class Counts:
    """How far a plan is; `spent` and `left` are seconds: of units that ended, and a guess for the others."""

    done: int
    failed: int
    running: int
    waiting: int
    spent: float = 0.0
    left: float | None = None

    @property
    def total(self) -> int:
        """Units of the plan."""
        return self.done + self.failed + self.running + self.waiting


def _told(method: Method) -> Method:
    """A method whose failures, of a damaged file or a full disk, are told in one line."""

    @wraps(method)
    def call(self: ResultStore, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except _DAMAGE as error:
            raise self._unusable(error) from error

    return cast(Method, call)


class ResultStore:
    """The file of results, made if it is not there."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        try:
            target = check_place(self.path)
            make_folders(target.parent)
            if target.exists():
                open_regular(target).close()  # a pipe would hang
            self._db = sqlite3.connect(target, timeout=60.0, isolation_level=None)
            with ExitStack() as stack:
                stack.callback(self._db.close)
                self._set_up()
                stack.pop_all()
        except (*_DAMAGE, OSError) as error:
            raise self._unusable(error) from error

    def _set_up(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, _VERSION):
            raise ProlipError(f"{self.path} was written by another version of prolip ({version})")
        self._db.executescript(_SCHEMA)
        self._db.execute(f"PRAGMA user_version = {_VERSION}")

    def _unusable(self, error: Exception) -> ProlipError:
        why = error.strerror if isinstance(error, OSError) else error
        return ProlipError(f"{self.path} cannot be used for results: {why}; name another file")

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        """Give back what is still claimed, and close the file."""
        with closing(self._db):
            self.release()

    # Plans

    @_told
    def add_plan(self, plan: Plan, keys: Sequence[str]) -> int:
        """Write down a plan and the key of each of its units; those that are known keep their results."""
        with self._transaction():
            number = self._db.execute(
                "INSERT INTO plans (experiment, plan, created) VALUES (?, ?, ?)",
                (plan.experiment.name, json.dumps(plan.as_json()), time.time()),
            ).lastrowid
            units = list(zip(keys, plan.units, strict=True))
            self._db.executemany(
                "INSERT INTO units (key, unit, code, status) VALUES (?, ?, ?, 'waiting') "
                "ON CONFLICT DO NOTHING",
                [(key, p.unit.as_json(), code_version(p.unit)) for key, p in units],
            )
            self._db.executemany(
                "INSERT INTO planned (plan, place, key, line, model) VALUES (?, ?, ?, ?, ?)",
                [(number, place, key, p.line, p.model) for place, (key, p) in enumerate(units)],
            )
        assert number is not None
        return number

    @_told
    def last_plan(self, experiment: str) -> tuple[Plan, list[UnitResult]] | None:
        """The newest plan of an experiment, and what has become of its units, in its order."""
        found = self._db.execute(
            "SELECT id, plan FROM plans WHERE experiment = ? ORDER BY id DESC LIMIT 1", (experiment,)
        ).fetchone()
        if found is None:
            return None
        results = self.results(found[0])
        read = self._parse(
            lambda text: Plan.from_json(json.loads(text), [result.planned for result in results]), found[1]
        )
        return read, results

    @_told
    def results(self, plan: int) -> list[UnitResult]:
        """The units of a plan, in its order."""
        found = self._db.execute(
            "SELECT line, model, unit, status, result, error FROM planned JOIN units USING (key) "
            "WHERE plan = ? ORDER BY place",
            (plan,),
        )
        results = []
        for line, model, unit, status, result, error in found:
            planned = PlannedUnit(line, model, self._parse(Unit.from_json, unit))
            parsed = self._parse(json.loads, result) if result else None
            results.append(UnitResult(planned, status, parsed, error))
        return results

    @_told
    def counts(self, plan: int) -> Counts:
        """How far a plan is; a unit that several of its lines share counts once."""
        found = self._db.execute(
            "SELECT line, status, count(*), sum(seconds) FROM units JOIN "
            "(SELECT key, min(line) AS line FROM planned WHERE plan = ? GROUP BY key) USING (key) "
            "GROUP BY line, status",
            (plan,),
        ).fetchall()
        number = dict.fromkeys(("done", "failed", "running", "waiting"), 0)
        ahead: dict[str, int] = {}
        means: dict[str, float] = {}
        for line, status, count, seconds in found:
            number[status] += count
            if status == "done":
                means[line] = (seconds or 0.0) / count
            elif status != "failed":
                ahead[line] = ahead.get(line, 0) + count
        spent = sum(seconds or 0.0 for _, status, _, seconds in found if status in ("done", "failed"))
        usual = sum(means.values()) / len(means) if means else None
        left = None if usual is None else sum(means.get(line, usual) * n for line, n in ahead.items())
        return Counts(**number, spent=spent, left=left)

    @_told
    def timings(self) -> list[tuple[Unit, str, float]]:
        """Every unit that is done, with the version of its code and its seconds."""
        found = self._db.execute("SELECT unit, code, seconds FROM units WHERE status = 'done'")
        return [(self._parse(Unit.from_json, unit), code, seconds) for unit, code, seconds in found]

    @_told
    def retry(self, plan: int) -> int:
        """Let the failed units of a plan run again; how many they are."""
        return self._db.execute(
            "UPDATE units SET status = 'waiting', error = NULL, owner = NULL, attempts = 0 "
            "WHERE status = 'failed' AND key IN (SELECT key FROM planned WHERE plan = ?)",
            (plan,),
        ).rowcount

    # Units

    @_told
    def claim(self, plan: int, count: int) -> list[tuple[str, Unit]]:
        """Up to `count` units of a plan to run now: waiting ones, then those of runners that are gone."""
        with self._transaction():
            self._free_abandoned()
            found = self._db.execute(
                "SELECT key, unit FROM units JOIN planned USING (key) WHERE plan = ? AND status = 'waiting' "
                "GROUP BY key ORDER BY min(place) LIMIT ?",
                (plan, count),
            ).fetchall()
            self._db.executemany(
                "UPDATE units SET status = 'running', owner = ?, beat = ?, attempts = attempts + 1 "
                "WHERE key = ?",
                [(self.owner, time.time(), key) for key, _ in found],
            )
        return [(key, self._parse(Unit.from_json, unit)) for key, unit in found]

    @_told
    def finish(self, key: str, result: dict[str, Any], seconds: float) -> None:
        """Keep the result of a unit, which is not run again."""
        self._end(key, "done", json.dumps(result), None, seconds)

    @_told
    def fail(self, key: str, error: str, seconds: float = 0.0) -> None:
        """A unit has failed: keep the traceback."""
        self._end(key, "failed", None, error, seconds)

    def _end(self, key: str, status: str, result: str | None, error: str | None, seconds: float) -> None:
        self._db.execute(
            "UPDATE units SET status = ?, result = ?, error = ?, owner = NULL, seconds = ?, finished = ? "
            "WHERE key = ? AND status != 'done'",
            (status, result, error, seconds, time.time(), key),
        )

    @_told
    def died(self, key: str, reason: str) -> None:
        """The process that ran a unit is gone: let it run again, but not for ever."""
        (attempts,) = self._db.execute("SELECT attempts FROM units WHERE key = ?", (key,)).fetchone()
        if attempts >= ATTEMPTS:
            self.fail(key, f"its process died {attempts} times: {reason}")
        else:
            self._db.execute(
                "UPDATE units SET status = 'waiting', owner = NULL WHERE key = ? AND owner = ?",
                (key, self.owner),
            )

    @_told
    def beat(self) -> None:
        """Say that this runner is alive."""
        self._db.execute(
            "UPDATE units SET beat = ? WHERE owner = ? AND status = 'running'", (time.time(), self.owner)
        )

    @_told
    def release(self) -> None:
        """Give back the units that are claimed."""
        self._give_back([self.owner])

    def _free_abandoned(self) -> None:
        """Units whose runner is dead (on this machine: its process is gone; elsewhere: it fell silent)."""
        owners = self._db.execute(
            "SELECT owner, max(beat) FROM units WHERE status = 'running' AND owner != ? GROUP BY owner",
            (self.owner,),
        ).fetchall()
        gone = [owner for owner, beat in owners if not _alive(owner, beat)]
        self._give_back(gone)

    def _give_back(self, owners: Sequence[str]) -> None:
        """A runner that stops says nothing against its units: the attempt does not count."""
        self._db.executemany(
            "UPDATE units SET status = 'waiting', owner = NULL, attempts = attempts - 1 "
            "WHERE owner = ? AND status = 'running'",
            [(owner,) for owner in owners],
        )

    def _parse(self, parse: Callable[[str], Value], text: str) -> Value:
        try:
            return parse(text)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ProlipError(f"{self.path} is damaged: a result in it cannot be read ({error})") from error

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


def _alive(owner: str, beat: float | None) -> bool:
    host, pid, _ = owner.rsplit(":", 2) if re.fullmatch(r".*:\d{1,9}:\w+", owner) else ("", "", "")
    if host == socket.gethostname() and os.name == "posix":  # elsewhere signal 0 is not harmless
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
    return beat is not None and time.time() - beat < STALE
