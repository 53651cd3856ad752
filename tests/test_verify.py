"""The comparisons of `prolip bench verify`, on small problems; and that they would notice a difference."""

import json
from dataclasses import replace

import numpy as np
import pytest

from prolip import methods
from prolip.bench.verify import compare as module
from prolip.bench.verify.compare import CHECKS, LIMITS, Check, compare, differences, published_parameters
from prolip.bench.verify.problems import SHOTS, VIEWS, made_up, real
from prolip.core import InputError

SMALL = {"classes": 5, "width": 24, "dim": 16, "per_class": 400}


@pytest.fixture(scope="module")
def problems():
    return list(made_up(**SMALL))


def test_problems_have_every_number_of_shots_and_views_and_something_to_learn(problems):
    assert {(p.task.shots, p.task.views) for p in problems} == {(n, v) for n in SHOTS for v in VIEWS}
    for problem in problems:
        zero_shot = methods.create("zero_shot").fit(problem.task).predict(problem.x)
        assert 0.5 < np.mean(zero_shot == problem.y) < 0.95


@pytest.mark.parametrize("check", CHECKS, ids=[check.method for check in CHECKS])
def test_a_method_is_what_it_is_compared_with(problems, check):
    (line,) = compare(problems, [check])
    assert line.agrees, line
    assert line.apart["points"] <= LIMITS["points"]
    if check.against == module.SCIPY:
        assert line.apart["logits"] <= 0.25  # to a millionth of the objective


def test_every_method_on_features_is_compared():
    compared = {check.method.partition(",")[0] for check in CHECKS}
    through_towers = {"coop", "cocoop", "kgcoop", "prograd", "plot", "maple"}
    through_towers |= {"full", "last_layer", "norm_tuning", "clip_lora"}
    choices_among_others = {"ensemble", "auto", "prolip+rla"}
    assert set(methods.names()) - compared == through_towers | choices_among_others


def test_another_rate_would_be_noticed(problems):
    wrong = Check("task_res", module.STEPS, lambda p: (_task_res(p, 1e-3), _task_res(p, 2e-3)))
    (line,) = compare(problems[:1], [wrong])
    assert not line.agrees


def _task_res(problem, lr):
    return methods.create("task_res", solver="adam", lr=lr).fit(problem.task).logits(problem.x)


def test_differences_are_the_largest():
    mine, theirs = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.5], [2.0, 1.0]])
    assert differences(mine, theirs, np.array([0, 1])) == {"logits": 2.0, "points": 50.0}


def test_published_parameters_are_counted():
    assert published_parameters().agrees


def test_absent_features_are_named(tmp_path):
    with pytest.raises(InputError, match=r"whurs19_clip_rn50\.npz is not there"):
        next(real(tmp_path))


def test_the_command_prints_a_table_and_fails_where_a_line_is_too_far(prolip, monkeypatch):
    near = published_parameters()
    far = replace(near, method="elsewhere", by="logits", apart={"logits": 0.2, "points": 0.0})
    for lines, code in (([near], 0), ([near, far], 1)):
        found = [(i, len(lines), line) for i, line in enumerate(lines)]
        monkeypatch.setattr("prolip.bench.verify.report.verify_all", lambda data, found=found: iter(found))
        assert prolip("bench", "verify")[0] == code
    exit_code, out, _ = prolip("bench", "verify")
    assert exit_code == 1
    assert "too far in logits" in out
    _, out, _ = prolip("bench", "verify", "--json")
    assert [line["agrees"] for line in json.loads(out)] == [True, False]
