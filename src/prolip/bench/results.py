"""Results in SQLite: units that wait, run, are done or failed, for any number of runners at once.

A runner claims units in a transaction and puts its name on them. It says now and then that it is alive; the
units of one that is not are claimed again. A result is written once: whoever comes second finds it done.
Killed at any moment, a runner loses the units in its hands and nothing else.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip.bench.units import Unit, code_version
from prolip.core.errors import ProlipError

STALE = 60.0  # seconds without a sign of life
ATTEMPTS = 3  # times that a unit may take its process down before it counts as failed
_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS units (
    key TEXT PRIMARY KEY,
    spec TEXT NOT NULL,
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
    choices TEXT NOT NULL,
    created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS members (
    plan INTEGER NOT NULL REFERENCES plans (id),
    place INTEGER NOT NULL,
    key TEXT NOT NULL REFERENCES units (key),
    PRIMARY KEY (plan, place)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS waiting ON units (status);
"""


@dataclass(frozen=True)
class Row:
    """A unit and what became of it."""

    key: str
    unit: Unit
    status: str
    result: dict[str, Any] | None
    error: str | None
    seconds: float | None


@dataclass(frozen=True)
class Counts:
    """How far a plan is."""

    done: int
    failed: int
    running: int
    waiting: int

    @property
    def total(self) -> int:
        """Units of the plan."""
        return self.done + self.failed + self.running + self.waiting


class ResultStore:
    """The file of results.

    Parameters
    ----------
    path
        A SQLite file; made if it is not there.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=60.0, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            if version not in (0, _VERSION):
                raise ProlipError(f"{self.path} was written by another version of prolip ({version})")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version = {_VERSION}")
        except (sqlite3.DatabaseError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ProlipError(
                f"{self.path} cannot be used for results: {why}; name a file in a folder that can be written"
            ) from error

    def close(self) -> None:
        """Give back what is still claimed, and close the file."""
        self.release()
        self._db.close()

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Plans

    def add_plan(self, experiment: str, choices: dict[str, Any], units: Sequence[tuple[str, Unit]]) -> int:
        """Write down the units of a run; those that are known keep their results."""
        with self._transaction():
            plan = self._db.execute(
                "INSERT INTO plans (experiment, choices, created) VALUES (?, ?, ?)",
                (experiment, json.dumps(choices), time.time()),
            ).lastrowid
            self._db.executemany(
                "INSERT INTO units (key, spec, code, status) VALUES (?, ?, ?, 'waiting') "
                "ON CONFLICT DO NOTHING",
                [(key, unit.spec(), code_version()) for key, unit in units],
            )
            keys = dict.fromkeys(key for key, _ in units)
            self._db.executemany(
                "INSERT INTO members (plan, place, key) VALUES (?, ?, ?)",
                [(plan, place, key) for place, key in enumerate(keys)],
            )
        assert plan is not None
        return plan

    def last_plan(self, experiment: str) -> tuple[int, dict[str, Any]] | None:
        """The newest plan of an experiment and the choices that it was made with."""
        found = self._db.execute(
            "SELECT id, choices FROM plans WHERE experiment = ? ORDER BY id DESC LIMIT 1", (experiment,)
        ).fetchone()
        return None if found is None else (int(found[0]), json.loads(found[1]))

    def rows(self, plan: int) -> list[Row]:
        """The units of a plan, in its order."""
        found = self._db.execute(
            "SELECT key, spec, status, result, error, seconds FROM units JOIN members USING (key) "
            "WHERE plan = ? ORDER BY place",
            (plan,),
        )
        return [
            Row(key, Unit.from_spec(spec), status, json.loads(result) if result else None, error, seconds)
            for key, spec, status, result, error, seconds in found
        ]

    def counts(self, plan: int) -> Counts:
        """How many units of a plan are in which state."""
        found = dict(
            self._db.execute(
                "SELECT status, count(*) FROM units JOIN members USING (key) WHERE plan = ? GROUP BY status",
                (plan,),
            )
        )
        return Counts(*(found.get(status, 0) for status in ("done", "failed", "running", "waiting")))

    def retry(self, plan: int) -> int:
        """Let the failed units of a plan run again; how many they are."""
        return self._db.execute(
            "UPDATE units SET status = 'waiting', error = NULL, owner = NULL, attempts = 0 "
            "WHERE status = 'failed' AND key IN (SELECT key FROM members WHERE plan = ?)",
            (plan,),
        ).rowcount

    # Units

    def claim(self, plan: int, count: int) -> list[tuple[str, Unit]]:
        """Up to `count` units of a plan to run now: waiting ones, then those of runners that are gone."""
        with self._transaction():
            self._free_abandoned()
            found = self._db.execute(
                "SELECT key, spec FROM units JOIN members USING (key) WHERE plan = ? AND status = 'waiting' "
                "ORDER BY place LIMIT ?",
                (plan, count),
            ).fetchall()
            self._db.executemany(
                "UPDATE units SET status = 'running', owner = ?, beat = ?, attempts = attempts + 1 "
                "WHERE key = ?",
                [(self.owner, time.time(), key) for key, _ in found],
            )
        return [(key, Unit.from_spec(spec)) for key, spec in found]

    def finish(self, key: str, result: dict[str, Any], seconds: float) -> None:
        """A unit is done."""
        self._db.execute(
            "UPDATE units SET status = 'done', result = ?, error = NULL, owner = NULL, seconds = ?, "
            "finished = ? WHERE key = ? AND status != 'done'",
            (json.dumps(result), seconds, time.time(), key),
        )

    def fail(self, key: str, error: str, seconds: float = 0.0) -> None:
        """A unit has failed: keep the traceback."""
        self._db.execute(
            "UPDATE units SET status = 'failed', error = ?, owner = NULL, seconds = ?, finished = ? "
            "WHERE key = ? AND status != 'done'",
            (error, seconds, time.time(), key),
        )

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

    def beat(self) -> None:
        """Say that this runner is alive."""
        self._db.execute(
            "UPDATE units SET beat = ? WHERE owner = ? AND status = 'running'", (time.time(), self.owner)
        )

    def release(self, keys: Iterable[str] | None = None) -> None:
        """Give claimed units back: these, or all."""
        change = "UPDATE units SET status = 'waiting', owner = NULL, attempts = attempts - 1 WHERE owner = ?"
        if keys is None:
            self._db.execute(f"{change} AND status = 'running'", (self.owner,))
        else:
            self._db.executemany(f"{change} AND key = ?", [(self.owner, key) for key in keys])

    def _free_abandoned(self) -> None:
        """Units whose runner is dead (on this machine: its process is gone; elsewhere: it fell silent)."""
        owners = self._db.execute(
            "SELECT owner, max(beat) FROM units WHERE status = 'running' AND owner != ? GROUP BY owner",
            (self.owner,),
        ).fetchall()
        gone = [owner for owner, beat in owners if not _alive(owner, beat)]
        # A runner that was killed says nothing against its units: the attempt does not count.
        self._db.executemany(
            "UPDATE units SET status = 'waiting', owner = NULL, attempts = attempts - 1 "
            "WHERE owner = ? AND status = 'running'",
            [(owner,) for owner in gone],
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _alive(owner: str, beat: float | None) -> bool:
    host, pid, _ = owner.rsplit(":", 2)
    if host == socket.gethostname() and os.name == "posix":  # elsewhere signal 0 is not harmless
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
    return beat is not None and time.time() - beat < STALE
