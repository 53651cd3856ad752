"""Methods that train through a tower, beside their authors' steps, at 1, 4 and 16 shots, 1 and 10 views."""

import pytest

from prolip import methods
from reference.compare import LIMITS, TOWER_LINES, differences
from reference.towers_torch import REFERENCES, problems


@pytest.fixture(scope="module")
def made():
    return {kind: list(problems(kind)) for kind in ("vit", "resnet")}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_method_takes_its_authors_steps(made, name):
    kind, pair = REFERENCES[name]
    for problem in made[kind]:
        apart = differences(*pair(problem), problem.y)
        assert all(apart[key] <= LIMITS[key] for key in apart), (problem.name, apart)


def test_the_lines_are_those_that_are_listed():
    assert tuple(REFERENCES) == TOWER_LINES


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("coop", {"lr": 0.0021}),
        ("coop, lp++", {"program": "coop"}),
        ("kgcoop", {"weight": 8.5}),
        ("prograd", {"conflict": 0.9}),
        ("cocoop", {"batch_size": 2}),
        ("plot, pooled", {"pooled": False}),
        ("maple", {"lr": 0.0036}),
    ],
)
def test_a_small_mistake_would_be_noticed(made, monkeypatch, name, mistake):
    kind, pair = REFERENCES[name]
    create = methods.create
    monkeypatch.setattr(methods, "create", lambda each, **options: create(each, **(options | mistake)))
    problem = made[kind][-1]
    assert differences(*pair(problem), problem.y)["logits"] > LIMITS["logits"]
