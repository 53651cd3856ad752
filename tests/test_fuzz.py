"""Damaged and crafted inputs for every reader: none ends in a traceback, takes too long or too much memory.

`pytest -m slow tests/test_fuzz.py -s` tries FUZZ_INPUTS of them, 100,000 by default.
"""

import json
import os
import random

import pytest

from fuzz_targets import Targets, fuzz_bytes, targets
from fuzzing import MEGABYTES, SECONDS, Tally, attempt

FEW = 25
MANY = int(os.environ.get("FUZZ_INPUTS", "100000"))
SHARES = {"pictures_bytes": 6, "pictures_crafted": 3, "pictures_sparse": 1 / 10}  # others have 1


@pytest.mark.parametrize("name", targets())
def test_a_few_inputs(name, tmp_path):
    few = round(FEW * min(1, SHARES.get(name, 1)))
    tally = getattr(Targets(tmp_path / "files"), name)(few, random.Random(0))
    assert tally.inputs
    assert not tally.found, "\n".join(tally.examples)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", targets())
def test_many_inputs(name, tmp_path, capsys):
    share = SHARES.get(name, 1) / sum(SHARES.get(each, 1) for each in targets())
    tally = getattr(Targets(tmp_path / "files"), name)(round(share * MANY), random.Random(1))
    with capsys.disabled():
        print(f"\n{tally}", flush=True)
    assert not tally.found, "\n".join(tally.examples)


def test_a_reader_that_fails_is_noticed(tmp_path):
    file = tmp_path / "a.json"
    file.write_text('{"a": [1, 2, 3], "b": "text"}')
    read = lambda path: json.loads(path.read_text())  # noqa: E731
    assert fuzz_bytes("careless", file, read, 200, random.Random(0)).found["traceback"] > 50
    trusting = fuzz_bytes(
        "trusting", file, lambda path: path.read_bytes(), 50, random.Random(0), checked=True
    )
    assert trusting.found["silent change"] > 30


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the peak of memory is read on Linux")
def test_a_reader_that_takes_too_much_is_noticed(monkeypatch):
    tally = Tally("greedy")
    monkeypatch.setattr("fuzzing.MEGABYTES", 1.0)
    attempt(tally, lambda: bytes(10**7))
    monkeypatch.setattr("fuzzing.SECONDS", 0.05)
    attempt(tally, lambda: [None for _ in iter(int, 1)])
    assert (tally.found["over memory"] >= 1, tally.found["over time"]) == (True, 1)
    assert (SECONDS, MEGABYTES) == (20, 1200)
