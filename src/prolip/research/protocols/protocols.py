"""The paper's protocols, on cached features. Each takes a problem and a trial, and returns what was measured.

    few_shot              N shots to train, the whole test set to measure; no validation set
    few_shot_validation   options are chosen on N validation shots: the best, and of equals the first
    base_to_new           trained on the first half of the classes, measured on each half
    transfer              trained on one dataset, measured on it and on others (cross-dataset, domains)
    per_image             the same at test time: each image is predicted after a step on views of itself

A method that knows only its own classes cannot be asked about others: base_to_new and cross-dataset refuse
it. Between ImageNet and its variants, which share classes, it is asked for the columns that they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from prolip import methods
from prolip.core import Fitted, InputError, Task, Text
from prolip.core.arrays import Array
from prolip.data.sampling import base_classes, sample_base_support, sample_support, sample_train_val
from prolip.evaluate import metrics
from prolip.research.protocols.encoded_dataset import EncodedDataset
from prolip.research.protocols.tower_tasks import encoded_test_split, load_once, tower_task
from prolip.research.towers.test_time import adapt_images

Measured = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A method as it is run, whatever it is run on."""

    method: str  # from the registry
    # Where the method takes a seed and they have none, it is given the trial's.
    options: dict[str, Any] = field(default_factory=dict)
    grid: tuple[dict[str, Any], ...] = ()  # for few_shot_validation: the options to choose from
    views: int = 1  # of each support image
    template: str = "own"  # which prompts
    scale: float = 1.0  # what the encoder's own scale is multiplied by


@dataclass(frozen=True)
class Trial:
    """A setting on one draw of the support set; shots=None is all the training data."""

    setting: Setting
    shots: int | None = 16
    seed: int = 1

    def create(self, **more: Any) -> methods.Method:
        """The method with its options."""
        options = {**self.setting.options, **more}
        if "seed" in methods.options(self.setting.method):
            options.setdefault("seed", self.seed)
        return methods.create(self.setting.method, **options)

    def task(self, problem: EncodedDataset, chosen: Sequence[int], text: Text | None = None) -> Task:
        """The support set of a draw; `text` where only some of the classes take part."""
        rows = problem.text(self.setting.template) if text is None else text
        return self._task(problem, "train", chosen, rows, self.setting.views)

    def validation(self, problem: EncodedDataset, drawn: Draw) -> Task:
        """The validation set of a draw, in its plain view."""
        rows = problem.text(self.setting.template)
        return self._task(problem, drawn.validation_part, drawn.validation, rows, 1)

    def _task(
        self, problem: EncodedDataset, part: str, chosen: Sequence[int], rows: Text, views: int
    ) -> Task:
        x, y = problem.splits[part].take(chosen, views)
        task = Task(x, y, rows, problem.head, problem.scale * self.setting.scale)
        if self.create().trains_tower:
            return tower_task(task, problem, chosen, self.setting.template, part)
        return task


@dataclass(frozen=True)
class Draw:
    """The images of a trial, by their places in the dataset's parts."""

    train: list[int]
    validation: list[int] = field(default_factory=list)
    validation_part: str = "val"


def draw(protocol: str, problem: EncodedDataset, trial: Trial) -> Draw:
    """What a trial trains and validates on: the one place that says so, before encoding as in the run.

    Only labels are looked at: the problem may hold no features yet.
    """
    labels = problem.splits["train"].labels
    if protocol == "few_shot_validation":
        val = problem.splits.get("val")
        held_out = None if val is None else val.labels
        shots = trial.shots or 0
        return Draw(*sample_train_val(labels, held_out, shots, trial.seed, problem.paired))
    if protocol == "base_to_new":
        classes = len(problem.classes)
        return Draw(sample_base_support(labels, classes, trial.shots or 0, trial.seed, problem.paired))
    return Draw(sample_support(labels, trial.shots, trial.seed, problem.paired))


def few_shot(problem: EncodedDataset, trial: Trial) -> Measured:
    """Accuracy on the test set after N shots."""
    fitted = _fit("few_shot", problem, trial)
    x, y = encoded_test_split(fitted, problem)
    return {"accuracy": _accuracy(fitted, x, y), **_about(fitted)}


def few_shot_validation(problem: EncodedDataset, trial: Trial) -> Measured:
    """Accuracy on the test set, with N validation shots to choose by.

    With a grid, every entry is fitted and the best on the validation shots is kept, not fitted again with
    them. Without one, a method that has something to choose is shown them: for a search, or the best epoch.
    """
    drawn = draw("few_shot_validation", problem, trial)
    task, validation = trial.task(problem, drawn.train), trial.validation(problem, drawn)
    if trial.setting.grid:
        best, found = _search(trial, task, validation.x[0], validation.y)
    else:
        method, found = trial.create(), {}
        best = method.fit(task, validation=validation if method.chooses() else None)
    accuracy = _accuracy(best, *encoded_test_split(best, problem))
    return {"accuracy": accuracy, **_about(best), **found}


def _search(trial: Trial, task: Task, x: Array, y: Array) -> tuple[Fitted, Measured]:
    """The grid's first best on held-out images x [m, width], y [m]."""
    first, *others = trial.setting.grid
    best = trial.create(**first).fit(task)
    accuracy, picked = _accuracy(best, x, y), first
    for options in others:
        fitted = trial.create(**options).fit(task)
        if (found := _accuracy(fitted, x, y)) > accuracy:
            best, accuracy, picked = fitted, found, options
    return best, {"validation_accuracy": accuracy, "chosen": picked}


def base_to_new(problem: EncodedDataset, trial: Trial) -> Measured:
    """Accuracy on base classes, on new ones, and the harmonic mean."""
    classes, base = len(problem.classes), base_classes(len(problem.classes))
    text = problem.text(trial.setting.template)
    old, new = text.subset(range(base)), text.subset(range(base, classes))
    fitted = _fit("base_to_new", problem, trial, old)
    x, y = encoded_test_split(fitted, problem)
    mine = y < base
    on_base = _accuracy(fitted, x[mine], y[mine])
    on_new = _accuracy(fitted.with_text(new), x[~mine], y[~mine] - base)
    return {"base": on_base, "new": on_new, "harmonic": harmonic_mean(on_base, on_new), **_about(fitted)}


def transfer(problem: EncodedDataset, trial: Trial, targets: Sequence[EncodedDataset] = ()) -> Measured:
    """Accuracy on the source's test set, and on each target."""
    fitted = _fit("transfer", problem, trial)
    x, y = encoded_test_split(fitted, problem)
    found = {problem.name: _accuracy(fitted, x, y)}
    for target in targets:
        x, y = encoded_test_split(fitted, target)
        if trial.create().open_class:
            found[target.name] = _accuracy(fitted.with_text(target.text(trial.setting.template)), x, y)
        else:
            columns = shared_classes(problem, target)
            found[target.name] = metrics.accuracy(fitted.logits(x)[:, columns], y)
    return {"accuracy": found[problem.name], "targets": found, **_about(fitted)}


def per_image(
    problem: EncodedDataset,
    trial: Trial,
    targets: Sequence[EncodedDataset] = (),
    way: str = "prolip",
    views: int = 64,
) -> Measured:
    """Accuracy on the source and each target, where every test image is predicted after a step of its own.

    The steps start from zero-shot, or from a method trained on the source; "prolip" steps on the projection,
    "tpt" on the words of the prompt. `views` are of each test image, the centre included.
    """
    from prolip.research.towers import test_time

    if not problem.model:
        raise InputError(f"{problem.name} has features only: test-time adaptation needs views of the images")
    fitted = _fit("per_image", problem, trial)
    step = test_time.create(way, views=views)
    found = {}
    for data in (problem, *targets):
        start = fitted if data is problem else fitted.with_text(data.text(trial.setting.template))
        adapted = adapt_images(load_once(data.model, data.device), start, data.paths["test"], step)
        found[data.name] = metrics.accuracy(adapted.logits, np.array(data.splits["test"].labels))
    return {"accuracy": found[problem.name], "targets": found, **_about(fitted)}


def shared_classes(source: EncodedDataset, target: EncodedDataset) -> list[int]:
    """Columns of the source's classifier that are the target's classes, in the target's order."""
    if target.imagenet_labels is not None and source.name == "imagenet":
        return list(target.imagenet_labels)
    place = {name: k for k, name in enumerate(source.classes)}
    if unknown := [name for name in target.classes if name not in place]:
        raise InputError(
            f"class {unknown[0]!r} of {target.name} is not among those of {source.name}, "
            "and the method knows only the classes that it was fitted on"
        )
    return [place[name] for name in target.classes]


def harmonic_mean(a: float, b: float) -> float:
    """2ab / (a + b); 0 where both are 0."""
    return 2 * a * b / (a + b) if a + b else 0.0


def total_harmonic_means(pairs: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Over datasets, of (base, new): the mean of harmonic means, and the harmonic mean of means.

    The first is ProGrad's H_t1, the second MaPLe's H_t2.

    Examples
    --------
    >>> [round(h, 4) for h in total_harmonic_means([(1.0, 0.5), (0.5, 1.0)])]
    [0.6667, 0.75]
    """
    first = sum(harmonic_mean(*pair) for pair in pairs) / len(pairs)
    base, new = (sum(pair[i] for pair in pairs) / len(pairs) for i in (0, 1))
    return first, harmonic_mean(base, new)


def _fit(protocol: str, problem: EncodedDataset, trial: Trial, text: Text | None = None) -> Fitted:
    return trial.create().fit(trial.task(problem, draw(protocol, problem, trial).train, text))


def _accuracy(fitted: Fitted, x: Array, y: Array) -> float:
    return metrics.accuracy(fitted.logits(x), y)


def _about(fitted: Fitted) -> Measured:
    """What the fit tells of itself, as far as it is plain numbers and words."""
    kept = ("lam", "scale", "seconds", "parameters", "converged", "evaluations")
    figures = {name: fitted.report[name] for name in kept if name in fitted.report}
    return {**figures, "chosen": fitted.settings.options}


PROTOCOLS: dict[str, Callable[..., Measured]] = {
    "few_shot": few_shot,
    "few_shot_validation": few_shot_validation,
    "base_to_new": base_to_new,
    "transfer": transfer,
    "test_time_prolip": partial(per_image, way="prolip"),
    "test_time_tpt": partial(per_image, way="tpt"),
}
