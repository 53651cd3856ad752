"""Unlabelled images: what they add to a fitted model, where images that are known say that they help.

Two uses of the clusters of `together`, which share their evidence:

- `answer_together`: the images to answer for are the pool themselves;
- `learn_from`: a pool makes another matrix, for images that are yet to come.

Evidence. Each fold of the support set in turn is held out, a model is fitted on the rest with the same
settings, and the pool is clustered with that. Where images are to be answered together, the held-out ones
join the pool; a matrix is asked about those that it never saw. The clusters are used where at least as many
of the held-out images are right as without them, each counted by its class's share of the pool: classes that
are absent have nothing to say. (Likelihoods do not tell: the answers of a model and of its clusters know much
the same, and their sum is too sure.) One image per class leaves nothing to hold out: there the clusters, by
unlabelled images alone, must recognise at least half of the labelled ones.

From fewer images than LEAST, or PER_CLASS a class, nothing is learned: batches of 10 to 20 images lost 2.7
points on average with one image a class, and 0.6 with more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prolip import methods
from prolip.core import Fitted, HeldOut, Projected, Task
from prolip.core.arrays import Array, row_lengths, softmax
from prolip.evaluate.calibration import fit_temperature
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.reject import Outsiders
from prolip.evaluate.together import Axes, Gaussians, fit_gaussians, recognise
from prolip.methods.common.cross_validation import fold_parts
from prolip.methods.common.tower_method import TowerMethod
from prolip.solvers.threads import product

LEAST, PER_CLASS = 30, 3
ASKED = 2048  # images of the pool that folds look at, spread evenly over it
RANK = 1e-3  # as in methods.common.residual: singular values of the texts below this share are none


@dataclass(frozen=True)
class Evidence:
    """Whether unlabelled images were used, and why."""

    used: bool
    why: str
    asked: int = 0  # support images
    before: float | None = None  # accuracy on them alone; None with one image per class
    after: float | None = None  # with the pool


@dataclass(frozen=True, eq=False)
class JointAnswers:
    """Probabilities [n, K] of images that were classified together, or one by one if that is no help."""

    probabilities: Array
    evidence: Evidence


@dataclass(frozen=True, eq=False)
class Learned:
    """A model after a pool: as it was before where the evidence was against it."""

    fitted: Fitted
    confidence: Confidence
    evidence: Evidence


def answer_together(
    fitted: Fitted, confidence: Confidence, task: Task | None, x: Array, seed: int = 0
) -> JointAnswers:
    """Answers about features x [n, width], by all of them."""
    plain = fitted.logits(x) / confidence.temperature
    pool, refusal = _pool(fitted, confidence, task, x)
    if pool is None or task is None:
        return JointAnswers(softmax(plain), Evidence(False, refusal))
    gaussians = fit_gaussians(pool.support, task.y, pool.f, plain, pool.weights)
    held, some = [], pool.sample()
    for kept, own, model in _folds(fitted, task, seed):
        asked = np.concatenate([x[some], task.x[0, own]])
        logits = model.logits(asked) / confidence.temperature
        f, weights = np.concatenate([pool.f[some], pool.support[own]]), np.ones(len(asked), np.float32)
        weights[: -len(own)] = pool.weights[some]
        found = fit_gaussians(pool.support[kept], task.y[kept], f, logits, weights)
        held.append(_Held(own, logits[-len(own) :], found.answers[-len(own) :]))
    evidence = _judge(held, task, pool, gaussians)
    if not evidence.used:
        return JointAnswers(softmax(plain), evidence)
    temperature = 2.0  # two answers that know much the same
    if held:
        after, y = np.concatenate([h.after for h in held]), np.concatenate([task.y[h.images] for h in held])
        temperature *= fit_temperature(after / temperature, y)
    return JointAnswers(softmax(gaussians.answers / temperature), evidence)


def learn_from(fitted: Fitted, confidence: Confidence, task: Task, x: Array, seed: int = 0) -> Learned:
    """A model fitted on `task` and what features x [n, width] of unlabelled images add to it."""
    pool, refusal = _pool(fitted, confidence, task, x)
    if pool is None or not isinstance(fitted, Projected):
        no_matrix = f"{fitted.method} is no matrix that a pool could move"
        return Learned(fitted, confidence, Evidence(False, refusal or no_matrix))
    gaussians = fit_gaussians(
        pool.support, task.y, pool.f, fitted.logits(x) / confidence.temperature, pool.weights
    )
    held, some = [], pool.sample()
    for kept, own, model in _folds(fitted, task, seed):
        logits, asked = model.logits(x[some]) / confidence.temperature, task.x[0, own]
        found = fit_gaussians(pool.support[kept], task.y[kept], pool.f[some], logits, pool.weights[some])
        moved = move(model, pool.axes, found, confidence.temperature, x[some], len(kept))
        held.append(_Held(own, model.logits(asked), moved.logits(asked)))
    evidence = _judge(held, task, pool, gaussians)
    if not evidence.used:
        return Learned(fitted, confidence, evidence)
    learned = move(fitted, pool.axes, gaussians, confidence.temperature, x, task.n)
    images = np.concatenate([h.images for h in held]) if held else np.zeros(0, int)
    order = images.argsort()
    logits = np.concatenate([h.after for h in held])[order] if held else np.zeros((0, task.classes))
    out = HeldOut(logits, task.y[images[order]], images[order])
    # Its logits have a scale of their own: no other is to be restored from its settings.
    unsettled = replace(learned, settings=replace(learned.settings, options={}))
    return Learned(learned, Confidence.of(unsettled, task, out), evidence)


def move(
    fitted: Projected, axes: Axes, gaussians: Gaussians, temperature: float, x: Array, labelled: int
) -> Projected:
    """The matrix whose answers are those of a model and of its clusters, weighed by the pool's share c.

    With inputs z, embeddings v = z B + offset, a = |v| / |z| on average over the pool x [n, width], and h a
    direction that every z / |z| has a product of about 1 with,

        2 a |z| logits  ~  (s / t) v T'  +  a c beta ( z V S^-1 mu'  +  (z . h) (offset - mean V S^-1 mu') )

    which is linear in z: what stands behind v T' is (s / t) z G, and B + G (T')^+ the matrix.
    c = n / (n + labelled): beside many labelled images a regression on them knows more than means do (16
    images of each of 60 birds, a pool of 600: 0.7 points won with c, 0.5 lost without).
    """
    z, base = _inputs(fitted, x), fitted.head.weight if fitted.adapter is None else fitted.adapter
    lengths, embedded = row_lengths(z), _embedded(fitted, x)
    ratio = float((row_lengths(embedded) / np.maximum(lengths, 1e-30)).mean())
    direct = product(axes.axes, gaussians.weight.T.astype(axes.axes.dtype))  # [Do, K]
    constant = gaussians.offset - axes.mean @ direct
    g = direct + np.outer(_constant_direction(axes, len(x)), constant)
    share = len(x) / (len(x) + labelled)
    g = (ratio * share * gaussians.beta * temperature / fitted.scale) * (g - g.mean(axis=1, keepdims=True))
    weight = (base + g @ np.linalg.pinv(fitted.text.rows.T.astype(np.float64), RANK)).astype(base.dtype)
    moved = (
        replace(fitted, head=fitted.head.with_weight(weight), tuned=True)
        if fitted.adapter is None
        else replace(fitted, adapter=weight)
    )
    longer = float((row_lengths(_embedded(moved, x)) / np.maximum(lengths, 1e-30)).mean())
    return replace(moved, scale=0.5 * fitted.scale / temperature * longer / ratio)


@dataclass(frozen=True, eq=False)
class _Pool:
    axes: Axes
    support: Array  # coordinates [n, r]
    f: Array  # coordinates [m, r]
    weights: Array  # how far each belongs [m]

    def sample(self) -> slice:
        return slice(None, None, -(-len(self.f) // ASKED))


@dataclass(frozen=True, eq=False)
class _Held:
    images: Array  # [h]
    before: Array  # logits [h, K]
    after: Array  # logits [h, K]


def _pool(fitted: Fitted, confidence: Confidence, task: Task | None, x: Array) -> tuple[_Pool | None, str]:
    """The pool beside the support set, or why there is none."""
    if task is None:
        return None, "the model was saved without the features of its support set"
    if isinstance(methods.from_settings(fitted.settings), TowerMethod):
        return (
            None,
            f"{fitted.method} trains through the model itself, too long for a look at held-out images",
        )
    outsiders = confidence.outsiders or Outsiders.of(task)
    weights = outsiders.weights(x, task.linear)
    least = max(LEAST, PER_CLASS * task.classes)
    if weights.sum() < least:
        return None, f"{weights.sum():.0f} images that belong are too few, it takes {least}"
    inputs = [_inputs(fitted, features, task) for features in (task.x[0], x)]
    axes = Axes.of(np.concatenate(inputs), task.classes)
    return _Pool(axes, axes(inputs[0]), axes(inputs[1]), weights), ""


def _folds(fitted: Fitted, task: Task, seed: int) -> list[tuple[Array, Array, Any]]:
    """Images kept and held out, and the model without these, of each fold."""
    settled = methods.from_settings(fitted.settings)
    return [(kept, held, settled.fit(task.subset(kept))) for kept, held in fold_parts(task, seed)]


def _judge(held: Sequence[_Held], task: Task, pool: _Pool, gaussians: Gaussians) -> Evidence:
    """Were the held-out images helped?"""
    if not held:
        right = recognise(gaussians, pool.f, pool.weights, pool.support, task.y)
        asked = int((~np.isnan(right)).sum())
        share = float(np.nansum(right)) / max(asked, 1)
        why = f"the pool's clusters recognise {share:.0%} of {asked} labelled images without seeing them"
        return Evidence(share >= 0.5, why, asked, None, share)
    y = np.concatenate([task.y[each.images] for each in held])
    weights = gaussians.shares[y] / gaussians.shares[y].sum()
    before, after = (
        float(weights @ (np.concatenate([logits.argmax(axis=1) for logits in each]) == y))
        for each in ([h.before for h in held], [h.after for h in held])
    )
    why = f"of {len(y)} held-out labelled images {after:.1%} are right with the others, {before:.1%} alone"
    return Evidence(after >= before, why, len(y), before, after)


def _inputs(fitted: Fitted, x: Array, task: Task | None = None) -> Array:
    """What the matrix of a model multiplies; of other models, features before the projection."""
    if isinstance(fitted, Projected):
        return fitted.head.split(x)[0] if fitted.adapter is None else fitted.head(x)
    return x if task is None else task.linear.split(x)[0]


def _embedded(fitted: Projected, x: Array) -> Array:
    v = fitted.head(x)
    return v if fitted.adapter is None else v @ fitted.adapter.astype(v.dtype, copy=False)


def _constant_direction(axes: Axes, images: int) -> Array:
    """The direction h [Do]: the mean, less what varies from image to image, scaled to mean . h = 1."""
    along = axes.axes.T @ axes.mean
    rank = len(along)
    ridge = 2 * rank / (2 * rank + images) * float(axes.variances.mean())
    h = axes.mean - axes.axes @ (along * axes.variances / (axes.variances + ridge))
    return h / float(axes.mean @ h)
