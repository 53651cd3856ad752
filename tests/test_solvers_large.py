"""What is special about large problems, on small ones that are solved as if they were large."""

import pytest
import torch

from prolip.solvers import choose, exact, minimise, reduce
from test_solvers import SHAPES, by_scipy, make_task, single


@pytest.fixture(params=[False, True], ids=["float32", "bfloat16"])
def large(request, monkeypatch):
    """Have small problems solved as large ones are, on any processor."""
    monkeypatch.setattr(reduce, "MIXED", 0)
    monkeypatch.setattr(minimise, "LITTLE", 0)
    monkeypatch.setattr(minimise, "LARGE", 0)
    monkeypatch.setattr(minimise, "bfloat16_is_quick", lambda like: request.param)


@pytest.mark.parametrize("shape", [SHAPES["few rows"], SHAPES["more classes than dimensions"]])
def test_large_problems_reach_the_minimum(shape, large):
    task = make_task(**shape)
    value, _ = by_scipy(task, 0.5)
    assert exact(single(task), 0.5).objective == pytest.approx(value, rel=2e-4)
    assert exact(single(task), 0.5, tol=1e-5).objective == pytest.approx(value, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("restrained", [False, True])
@pytest.mark.parametrize("shape", [{"n": 60, "classes": 30, "dim": 16}, {"n": 60, "classes": 6, "dim": 32}])
def test_large_problems_do_the_same_sums_in_any_order(shape, restrained, large):
    task = single(make_task(**shape, width=24, views=2))
    order = torch.randperm(task.n, generator=torch.Generator().manual_seed(1))
    first = exact(task, 0.1, restrained=restrained)
    assert torch.equal(exact(task.subset(order), 0.1, restrained=restrained).weight, first.weight)


def test_the_choice_of_lam_is_the_same_in_any_order(large, monkeypatch):
    task = single(make_task(n=40, classes=5, width=24, dim=16))
    order = torch.randperm(task.n, generator=torch.Generator().manual_seed(2))
    choice = choose(task, scale="auto")
    assert choose(task.subset(order), scale="auto") == choice
    monkeypatch.undo()
    expected = choose(task, scale="auto")
    assert choice.lam == pytest.approx(expected.lam, rel=1e-5)
    for ours, theirs in zip(choice.tried, expected.tried, strict=True):
        assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, abs=0.02)
