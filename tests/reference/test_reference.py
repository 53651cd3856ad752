"""Every method beside an independent computation, on small problems; and that a mistake would be noticed."""

from dataclasses import replace

import numpy as np
import pytest

from prolip import methods
from prolip.core import Task, Text, UsageError
from prolip.methods.clap import reliability
from prolip.research.catalogue import EXPERIMENTS
from prolip.research.catalogue.experiment import Entry as TableLine
from reference.__main__ import main
from reference.compare import CHECKS, LIMITS, TOWER_LINES, Line, compare, differences
from reference.lines import references, same_lines
from reference.problems import made_up

SMALL = {"classes": 5, "width": 24, "dim": 16, "per_class": 400}


@pytest.fixture(scope="module")
def problems():
    return list(made_up(**SMALL))


@pytest.mark.parametrize("check", CHECKS, ids=[check.method for check in CHECKS])
def test_a_method_is_what_it_is_compared_with(problems, check):
    (line,) = compare(problems, [check])
    assert line.agrees, line


def uneven_black_box(problem):
    """Embeddings of a model whose head is not known; classes have 1, 2, 3, 4 and 4 images."""

    def embedded(task, images):
        x = np.stack([task.linear(view) for view in task.x[:, images]])
        return Task(x, task.y[images], Text(task.text.rows), None, task.scale)

    place = np.arange(problem.task.n) % 4
    task = embedded(problem.task, place <= problem.task.y)
    validation = embedded(problem.validation, place < 4)
    return replace(problem, task=task, validation=validation, x=problem.task.linear(problem.x))


@pytest.mark.parametrize("check", CHECKS, ids=[check.method for check in CHECKS])
def test_so_it_is_on_embeddings_of_uneven_classes(problems, check):
    """LP++'s program has as many images of each class, so there is nothing to compare with."""
    if check.method != "lp_plus_plus":
        for line in compare([uneven_black_box(problem) for problem in problems[2:4]], [check]):
            assert line.apart["logits"] < max(check.logits, 0.02), line
            assert line.apart["points"] < LIMITS["points"], line


def test_every_method_on_features_is_compared():
    compared = {check.method.partition(",")[0] for check in CHECKS}
    through_towers = {"coop", "cocoop", "kgcoop", "prograd", "plot", "maple"}
    through_towers |= {"full", "last_layer", "norm_tuning", "clip_lora"}
    choices_among_others = {"prolip+rla", "prolip_bias"}
    assert set(methods.names()) - compared == through_towers | choices_among_others


NEEDED = {
    f"{label} {options}": (label, options)
    for line, experiment in same_lines()
    for label, options in references(line, experiment)
}


def test_every_line_beside_a_published_figure_of_its_program_has_a_reference():
    """Of float16 in `tests/full/test_methods_torch.py`, of towers in `tests/full/test_verify_towers.py`."""
    compared = {check.method for check in CHECKS} | {*TOWER_LINES, "prolip, Adam, float16"}
    assert {label for label, _ in NEEDED.values()} <= compared


def test_a_line_without_a_reference_is_noticed():
    experiment = EXPERIMENTS["few_shot_validation"]
    with pytest.raises(KeyError):
        list(references(replace(experiment.entries[0], protocol="elsewhere"), experiment))
    with pytest.raises(KeyError):
        list(references(TableLine("", "", "plot", {"iterations": 5}), experiment))


@pytest.mark.filterwarnings("ignore:lam = 0")
@pytest.mark.parametrize(
    "name", [name for name, (label, each) in NEEDED.items() if each and "16" not in label]
)
def test_a_line_takes_its_authors_steps_with_its_own_options(problems, name):
    """At the largest rate in float64: in float32, rounding decides where the authors' program ends."""
    label, options = NEEDED[name]
    (check,) = [check for check in CHECKS if check.method == label]
    options = dict(options)
    scale = options.pop("scale", 1.0)
    for problem in (problems[0], problems[3], problems[5]):
        task = replace(problem.task, scale=scale * problem.task.scale)
        made = replace(problem, task=task)
        made = made.wide() if check.wide or options["lr"] == 1e-2 else made
        pair = check.pair(made, **options)
        assert pair is not None
        apart = differences(*pair, problem.y)
        assert all(apart[key] <= LIMITS[key] for key in apart), (problem.name, apart)


@pytest.mark.parametrize(
    ("method", "mistake"),
    [
        ("prolip, exact", {"lam": 0.3}),
        ("rla, exact", {"lam": 0.3}),
        ("prolip_text, exact", {"lam": 0.3}),
        ("linear_probe", {"C": 1.1}),
        ("cross_modal, exact", {"lam": 0.3}),
        ("task_res, exact", {"lam": 0.3}),
        ("clip_adapter, Adam", {"alpha": 0.51}),
        ("clip_adapter, Adam", {"lr": 1.1e-4}),
        ("clip_adapter, Adam", {"epochs": 270}),
        ("clip_adapter, SGD", {"alpha": 0.51}),
        ("clip_adapter, SGD", {"lr": 0.011}),
    ],
)
def test_a_small_mistake_would_be_noticed(problems, monkeypatch, method, mistake):
    (check,) = [check for check in CHECKS if check.method == method]
    create = methods.create
    monkeypatch.setattr(methods, "create", lambda name, **options: create(name, **(options | mistake)))
    (line,) = compare(problems[2:3], [check])
    assert "logits" in line.beyond, line


def test_other_multipliers_of_clap_would_be_noticed(problems, monkeypatch):
    (check,) = [check for check in CHECKS if check.method == "clap, exact"]
    monkeypatch.setattr("prolip.methods.clap.reliability", lambda task: 1.1 * reliability(task))
    (line,) = compare(problems[2:3], [check])
    assert "logits" in line.beyond, line


def test_the_table_is_printed_and_fails_where_a_line_is_too_far(capsys, monkeypatch):
    near, far = (Line("here", "a formula", {"logits": apart, "points": 0.0}, 1.0) for apart in (0.001, 0.2))
    for lines, code in (([near], 0), ([near, far], 1)):
        monkeypatch.setattr("reference.__main__.verify_all", lambda *_, lines=lines: iter(lines))
        assert main([]) == code
    assert "too far in logits" in capsys.readouterr().out


def test_some_lines_can_be_asked_for(capsys):
    assert main(["--only", "tip_adapter", "clip_adapter, SGD"]) == 0
    assert "2 of 2 agree" in capsys.readouterr().out
    with pytest.raises(UsageError):
        main(["--only", "clip_adaptor"])
