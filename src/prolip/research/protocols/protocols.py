"""The paper's protocols, on cached features. Each takes a dataset and a run, and returns its measurements.

    few_shot     N shots to train, the whole test set to measure
    base_to_new  trained on the first half of the classes, measured on each half
    transfer     trained on one dataset, measured on it and on others (cross-dataset, domains)
    test_time    the same, and each test image is predicted after a step on views of itself
    timing       seconds of a fit, or of a step at test time; nothing is predicted
    manifold     features of the test images before and after training, in two dimensions

few_shot chooses options on no images ("none"), on N validation shots ("shots", the paper's), on min(N, 4)
("min4", CoOp's), or on the whole validation split ("split", Tip-Adapter's): `Run.validation`.
A method that is limited to its own classes cannot predict others: base_to_new and cross-dataset reject it.
ImageNet and its variants share classes; there it is measured on the shared columns of its logits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from prolip.core import Fitted, InputError, Task, Text
from prolip.core.arrays import Array
from prolip.data.sampling import base_classes
from prolip.evaluate import metrics
from prolip.research.protocols.encoded_dataset import EncodedDataset
from prolip.research.protocols.manifold import manifold
from prolip.research.protocols.run import Run
from prolip.research.towers.test_time import TPT, TestTime, TestTimeProLIP, adapt_images, encode_views

Measurements = dict[str, Any]
Protocol = Callable[..., Measurements]  # of a dataset, a run, and where it has any its targets
TIMED_IMAGES = 16
PROLIP_STEP = TestTimeProLIP()


def few_shot(dataset: EncodedDataset, run: Run) -> Measurements:
    """Measure accuracy on the test set after N shots.

    With a validation set and a grid, every entry is fitted and the first of the best is used; it is not
    fitted again with the validation images. Without a grid, a method that can use a validation set gets it:
    for a search, or the best epoch.
    """
    drawn = run.draw(dataset)
    task, validation = run.task(dataset, drawn.train), run.validation_task(dataset, drawn)
    if run.grid and validation is not None:
        best, chosen = search_grid(run, task, validation.x[0], validation.y)
    else:
        method, chosen = run.create(), {}
        best = method.fit(task, validation=validation if method.uses_validation() else None)
    return {**_measure(best, *dataset.test_split(best)), **_report(best), **chosen}


def search_grid(run: Run, task: Task, x: Array, y: Array) -> tuple[Fitted, Measurements]:
    """Return the first of the best entries of the grid on held-out images x [m, width], y [m]."""
    fits = ((options, run.create(**options).fit(task)) for options in run.grid)
    scored = ((_accuracy(fitted, x, y), fitted, options) for options, fitted in fits)
    accuracy, best, chosen = max(scored, key=lambda each: each[0])
    return best, {"validation_accuracy": accuracy, "chosen": chosen}


def base_to_new(dataset: EncodedDataset, run: Run) -> Measurements:
    """Measure accuracy on base classes, on new ones, and the harmonic mean."""
    classes, n_base = len(dataset.classes), base_classes(len(dataset.classes))
    text = dataset.text(run.template)
    fitted = _fit(dataset, run, text.subset(range(n_base)))
    x, y = dataset.test_split(fitted)
    in_base = y < n_base
    base = _accuracy(fitted, x[in_base], y[in_base])
    on_new = fitted.with_text(text.subset(range(n_base, classes)))
    new = _accuracy(on_new, x[~in_base], y[~in_base] - n_base)
    return {"base": base, "new": new, "harmonic": harmonic_mean(base, new), **_report(fitted)}


def transfer(dataset: EncodedDataset, run: Run, targets: Sequence[EncodedDataset] = ()) -> Measurements:
    """Measure accuracy on the source's test set, and on each target."""
    fitted = _fit(dataset, run)
    found = {dataset.name: _accuracy(fitted, *dataset.test_split(fitted))}
    for target in targets:
        x, y = target.test_split(fitted)
        if run.create().open_class:
            found[target.name] = _accuracy(fitted.with_text(target.text(run.template)), x, y)
        else:
            columns = shared_classes(dataset, target)
            found[target.name] = metrics.accuracy(fitted.logits(x)[:, columns], y)
    return {"accuracy": found[dataset.name], "targets": found, **_report(fitted)}


def adapt_at_test_time(
    dataset: EncodedDataset,
    run: Run,
    targets: Sequence[EncodedDataset] = (),
    step: TestTime = PROLIP_STEP,
) -> Measurements:
    """Measure accuracy on the source and each target, with test-time adaptation to every test image.

    The steps start from zero-shot, or from a method trained on the source.
    """
    encoder, fitted = dataset.load_encoder(), _fit(dataset, run)
    found = {}
    for data in (dataset, *targets):
        start = fitted if data is dataset else fitted.with_text(data.text(run.template))
        logits = adapt_images(encoder, start, data.paths["test"], step)
        found[data.name] = metrics.accuracy(logits, np.array(data.splits["test"].labels))
    return {"accuracy": found[dataset.name], "targets": found, **_report(fitted)}


def time_fit(dataset: EncodedDataset, run: Run) -> Measurements:
    """Measure the seconds of a fit on cached features: the fastest of three."""
    task = run.task(dataset, run.draw(dataset).train)
    return {"seconds": min(run.create().fit(task).report["seconds"] for _ in range(3))}


def time_step(dataset: EncodedDataset, run: Run, step: TestTime = PROLIP_STEP) -> Measurements:
    """Measure the seconds of test-time adaptation for an image, after its views went through the tower."""
    encoder, fitted = dataset.load_encoder(), _fit(dataset, run)
    reader, x = encode_views(encoder, fitted, dataset.paths["test"][:TIMED_IMAGES], step)
    step.logits(x, fitted, reader)  # the first call also compiles and allocates
    started = time.perf_counter()
    step.logits(x, fitted, reader)
    return {"seconds": (time.perf_counter() - started) / x.shape[1]}


def shared_classes(source: EncodedDataset, target: EncodedDataset) -> list[int]:
    """Return the columns of the source's classifier that are the target's classes, in the target's order."""
    if target.imagenet_labels is not None and source.name == "imagenet":
        return list(target.imagenet_labels)
    column = {name: k for k, name in enumerate(source.classes)}
    if unknown := [name for name in target.classes if name not in column]:
        raise InputError(
            f"class {unknown[0]!r} of {target.name} is not a class of {source.name}, "
            "and the method is limited to the classes that it was fitted on"
        )
    return [column[name] for name in target.classes]


def harmonic_mean(a: float, b: float) -> float:
    """Compute 2ab / (a + b); 0 where both are 0."""
    return 2 * a * b / (a + b) if a + b else 0.0


def total_harmonic_means(pairs: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Compute the mean of harmonic means, and the harmonic mean of means, of (base, new) over datasets.

    The first is ProGrad's H_t1, the second MaPLe's H_t2.

    Examples
    --------
    >>> [round(h, 4) for h in total_harmonic_means([(1.0, 0.5), (0.5, 1.0)])]
    [0.6667, 0.75]
    """
    first = sum(harmonic_mean(*pair) for pair in pairs) / len(pairs)
    base, new = (sum(pair[i] for pair in pairs) / len(pairs) for i in (0, 1))
    return first, harmonic_mean(base, new)


def _fit(dataset: EncodedDataset, run: Run, text: Text | None = None) -> Fitted:
    return run.create().fit(run.task(dataset, run.draw(dataset).train, text))


def _accuracy(fitted: Fitted, x: Array, y: Array) -> float:
    return metrics.accuracy(fitted.logits(x), y)


def _measure(fitted: Fitted, x: Array, y: Array) -> Measurements:
    """Return the accuracy and the expected calibration error."""
    p = fitted.proba(x)
    return {"accuracy": metrics.accuracy(p, y), "calibration_error": metrics.calibration_error(p, y)}


def _report(fitted: Fitted) -> Measurements:
    """Return the figures of a fit that are plain numbers and words."""
    names = ("lam", "scale", "seconds", "parameters", "converged", "evaluations")
    figures = {name: fitted.report[name] for name in names if name in fitted.report}
    return {**figures, "chosen": fitted.settings.options}


PROTOCOLS: dict[str, Protocol] = {
    "few_shot": few_shot,
    "base_to_new": base_to_new,
    "transfer": transfer,
    "test_time_prolip": adapt_at_test_time,
    "test_time_tpt": partial(adapt_at_test_time, step=TPT()),
    "timing": time_fit,
    "timing_prolip": time_step,
    "timing_tpt": partial(time_step, step=TPT()),
    "manifold": manifold,
}
