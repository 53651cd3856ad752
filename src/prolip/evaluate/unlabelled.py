"""Unlabelled images: what they add to a fitted model, where images that are known say that they help.

Two uses of the clusters of `together`, which share their evidence:

- `predict_transductive`: the images to answer for are the pool themselves;
- `learn_from`: a pool makes another matrix, for images that are yet to come.

Evidence. Each fold of the support set in turn is held out, a model is fitted on the rest with the same
settings, and the pool is clustered with that; where images are to be answered together, the held-out ones
join the pool. The clusters are used where they make the held-out labels likelier, by MARGIN standard errors
at least: the gain of an image is the change of log p of its label, each side at its own best temperature
(the answers of a model and of its clusters know much the same: their sum is too sure as it is), and counts by
its class's share of the pool, for classes that are absent have nothing to say. Counting answers that are
right instead, as a gate, sees less in as few images: over 12 sets and 8 draws, with 4 images a class, the
mean gain and that of the worst set were

                           together       few classes    pool           half foreign
    not gated              +2.1  (-2.5)   +2.2  (-1.0)   +1.3  (-3.2)   +0.8  (-4.0)
    as many right          +2.0  (-1.8)   +1.5  (-0.6)   +1.1  (-1.8)   +1.1  (-1.9)
    likelier               +2.0  (-1.2)   +1.5  (-0.1)   +1.7  (-0.8)   +1.2  (-1.4)
    by half an error       +1.9  (-0.3)   +1.0  ( 0.0)   +1.7  ( 0.0)   +1.2  (-0.4)
    by a whole one         +1.6  (-0.3)   +0.7  ( 0.0)   +1.6  ( 0.0)   +1.1  (-0.1)

The losses are those of two sets whose classes are made of six others each, at random: a class is not one
cluster there. None of the others lost more than 0.2 by any of these rules.

One image per class leaves nothing to hold out: there the clusters, by unlabelled images alone, must recognise
at least half of the labelled ones. That is a check for nonsense. It does not tell a gain from a small loss,
and nothing that was looked at does (docs/unlabelled.md).

From fewer images than LEAST, or PER_CLASS a class, nothing is learned: batches of 10 to 20 images lost 2.7
points on average with one image a class, and 0.6 with more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from prolip import methods
from prolip.core import Fitted, HeldOutPredictions, Projected, Task
from prolip.core.arrays import Array, cross_entropy, row_lengths, softmax
from prolip.evaluate.calibration import fit_temperature
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.out_of_distribution import OutOfDistribution
from prolip.evaluate.transductive import Axes, Gaussians, fit_gaussians, recognise
from prolip.methods.base import Method
from prolip.methods.selection import fold_parts
from prolip.solvers.threads import parallel_matmul, single_thread

LEAST, PER_CLASS = 30, 3
MARGIN = 0.5  # standard errors
ASKED = 2048  # images of the pool that folds look at, spread evenly over it
ENOUGH = 100  # held-out images; further folds changed no mean gain by more than 0.05
MEASURED = 512  # images that mean lengths are taken from
RANK = 1e-3  # as in methods.anchored: singular values of the texts below this share are none


@dataclass(frozen=True)
class Evidence:
    """Whether unlabelled images were used, and why."""

    used: bool
    why: str
    asked: int = 0  # support images
    before: float | None = None  # accuracy on them alone; None with one image per class
    after: float | None = None  # with the pool
    gain: float | None = None  # of the log-likelihood of their labels
    error: float | None = None  # its standard error


@dataclass(frozen=True, eq=False)
class TransductivePredictions:
    """Probabilities [n, K] of images that were classified together, or one by one if that is no help."""

    probabilities: Array
    evidence: Evidence


@dataclass(frozen=True, eq=False)
class Learned:
    """A model after a pool: as it was before where the evidence was against it."""

    fitted: Fitted
    confidence: Confidence
    evidence: Evidence


@single_thread()
def predict_transductive(
    fitted: Fitted, confidence: Confidence, task: Task | None, x: Array, seed: int = 0
) -> TransductivePredictions:
    """Answers about features x [n, width], by all of them."""
    plain = fitted.logits(x) / confidence.temperature
    pool, refusal = _pool(fitted, confidence, task, x)
    if pool is None or task is None:
        return TransductivePredictions(softmax(plain), Evidence(False, refusal))
    gaussians = fit_gaussians(pool.support, task.y, pool.f, plain, pool.weights)
    held, some = [], pool.sample()
    for kept, own in _folds(task, seed):
        asked = np.concatenate([x[some], task.x[0, own]])
        logits = pool.method.fit(task.subset(kept)).logits(asked) / confidence.temperature
        f, weights = np.concatenate([pool.f[some], pool.support[own]]), np.ones(len(asked), np.float32)
        weights[: -len(own)] = pool.weights[some]
        found = fit_gaussians(pool.support[kept], task.y[kept], f, logits, weights)
        held.append(_Held(own, logits[-len(own) :], found.answers[-len(own) :] / 2))
    verdict = _judge(held, task, pool, gaussians)
    if not verdict.evidence.used:
        return TransductivePredictions(softmax(plain), verdict.evidence)
    return TransductivePredictions(softmax(gaussians.answers / 2 / verdict.temperature), verdict.evidence)


@single_thread()
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
    for kept, own in _folds(task, seed):
        asked = np.concatenate([x[some], task.x[0, own]])
        logits = pool.method.fit(task.subset(kept)).logits(asked) / confidence.temperature
        before, of_pool = logits[-len(own) :], logits[: -len(own)]
        found = fit_gaussians(pool.support[kept], task.y[kept], pool.f[some], of_pool, pool.weights[some])
        share = len(of_pool) / (len(of_pool) + len(kept))
        held.append(_Held(own, before, (before + share * found.scores(pool.support[own])) / 2))
    verdict = _judge(held, task, pool, gaussians)
    if not verdict.evidence.used:
        return Learned(fitted, confidence, verdict.evidence)
    learned = move(fitted, pool.axes, gaussians, confidence.temperature, x, task.n)
    return Learned(learned, Confidence.of(learned, task, verdict.held_out), verdict.evidence)


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
    base = fitted.head.weight if fitted.adapter is None else fitted.adapter
    some = x[:: -(-len(x) // MEASURED)]
    lengths = np.maximum(row_lengths(_inputs(fitted, some)), 1e-30)
    ratio = float((row_lengths(_embedded(fitted, some)) / lengths).mean())
    direct = parallel_matmul(axes.axes, gaussians.weight.T.astype(axes.axes.dtype))  # [Do, K]
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
    longer = float((row_lengths(_embedded(moved, some)) / lengths).mean())
    return replace(moved, scale=0.5 * fitted.scale / temperature * longer / ratio, fit_scale=None)


@dataclass(frozen=True, eq=False)
class _Pool:
    axes: Axes
    support: Array  # coordinates [n, r]
    f: Array  # coordinates [m, r]
    weights: Array  # how far each belongs [m]

    method: Method  # settled

    def sample(self) -> slice:
        return slice(None, None, -(-len(self.f) // ASKED))


@dataclass(frozen=True, eq=False)
class _Held:
    images: Array  # [h]
    before: Array  # calibrated logits [h, K]
    after: Array  # the mean of these and of the clusters' [h, K]


@dataclass(frozen=True, eq=False)
class _Verdict:
    evidence: Evidence
    held_out: HeldOutPredictions  # with the pool
    temperature: float = 1.0  # of these


def _pool(fitted: Fitted, confidence: Confidence, task: Task | None, x: Array) -> tuple[_Pool | None, str]:
    """The pool beside the support set, or why there is none."""
    if task is None:
        return None, "the model was saved without the features of its support set"
    method = methods.from_settings(fitted.settings)
    if method.trains_tower:
        return (
            None,
            f"{fitted.method} trains through the model itself, too long for a look at held-out images",
        )
    out_of_distribution = confidence.out_of_distribution or OutOfDistribution.of(task)
    weights = out_of_distribution.weights(x, task.linear)
    least = max(LEAST, PER_CLASS * task.classes)
    if weights.sum() < least:
        return None, f"{weights.sum():.0f} images that belong are too few, it takes {least}"
    inputs = [_inputs(fitted, features, task) for features in (task.x[0], x)]
    axes = Axes.of(np.concatenate(inputs), task.classes)
    return _Pool(axes, axes(inputs[0]), axes(inputs[1]), weights, method), ""


def _folds(task: Task, seed: int) -> list[tuple[Array, Array]]:
    """Images kept and held out, of as many folds as it takes to ask about ENOUGH."""
    parts = fold_parts(task, seed)
    asked = np.cumsum([len(own) for _, own in parts])
    return parts[: int(np.searchsorted(asked, ENOUGH)) + 1]


def _judge(held: Sequence[_Held], task: Task, pool: _Pool, gaussians: Gaussians) -> _Verdict:
    """Were the held-out images helped?"""
    if not held:
        right = recognise(gaussians, pool.f, pool.weights, pool.support, task.y)
        asked = int((~np.isnan(right)).sum())
        share = float(np.nansum(right)) / max(asked, 1)
        why = f"the pool's clusters recognise {share:.0%} of {asked} labelled images without seeing them"
        nothing = HeldOutPredictions(np.zeros((0, task.classes)), task.y[:0], np.zeros(0, int))
        return _Verdict(Evidence(share >= 0.5, why, asked, None, share), nothing)
    images = np.concatenate([each.images for each in held])
    order = images.argsort()
    before = np.concatenate([each.before for each in held])[order]
    after = np.concatenate([each.after for each in held])[order]
    y = task.y[images[order]]
    shares = np.maximum(gaussians.counts[y].astype(np.float64), 1e-6)
    shares /= shares.sum()
    temperatures = [fit_temperature(logits, y, shares * len(y)) for logits in (before, after)]
    gains = cross_entropy(before / temperatures[0], y) - cross_entropy(after / temperatures[1], y)
    gain = float(shares @ gains)
    error = float(np.sqrt(np.square(shares * (gains - gain)).sum()))
    alone, joint = (float(shares @ (logits.argmax(axis=1) == y)) for logits in (before, after))
    why = (
        f"of {len(y)} held-out labelled images {joint:.1%} are right with the others, {alone:.1%} alone; "
        f"the log-likelihood of their labels changes by {gain:+.3f}, standard error {error:.3f}"
    )
    evidence = Evidence(gain >= MARGIN * error, why, len(y), alone, joint, gain, error)
    return _Verdict(evidence, HeldOutPredictions(after, y, images[order]), temperatures[1])


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
