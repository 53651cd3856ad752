"""Unlabelled images: used by a fitted model where held-out labelled images show that they help.

A pool of images is clustered (`clusters`), and makes another matrix, for images that are yet to come.

Evidence. Each fold of the support set in turn is held out, a model is fitted on the rest with the same
settings, and the pool is clustered with it.
The clusters are used if they raise the log-likelihood of the held-out labels by at least MARGIN standard
errors, each side at its best temperature, and each image weighted by the share of its class in the pool.
Counting correct predictions instead sees less in few images. Over 12 sets and 8 draws, with 4 images per
class, the mean gain (and that of the worst set) was

                        pool           half out-of-distribution
    always used         +1.3  (-3.2)   +0.8  (-4.0)
    as many correct     +1.1  (-1.8)   +1.1  (-1.9)
    likelier            +1.7  (-0.8)   +1.2  (-1.4)
    MARGIN = 0.5        +1.7  ( 0.0)   +1.2  (-0.4)
    MARGIN = 1          +1.6  ( 0.0)   +1.1  (-0.1)

With one image per class nothing can be held out: there the clusters, by unlabelled images alone, must
recognise at least half of the labelled ones, which excludes nonsense and no more
(docs/measurements/unlabelled.md). Fewer images than MIN_POOL, or MIN_POOL_PER_CLASS per class, are not used:
batches of 10 to 20 images lost 2.7 points on average with one image per class, and 0.6 with more.
"""

from dataclasses import dataclass, replace

import numpy as np

from prolip import methods
from prolip.core import Fitted, HeldOutPredictions, Projected, Task
from prolip.core.arrays import Array, cross_entropy, row_lengths
from prolip.evaluate import metrics
from prolip.evaluate.calibration import fit_temperature
from prolip.evaluate.clusters import Axes, Gaussians, fit_gaussians, recognise
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.out_of_distribution import OutOfDistribution
from prolip.methods.base import Method
from prolip.methods.selection import fold_parts
from prolip.solvers.threads import parallel_matmul, single_thread

MIN_POOL, MIN_POOL_PER_CLASS = 30, 3
MARGIN = 0.5  # standard errors
MAX_FOLD_POOL = 2048  # images of the pool that folds use, spread evenly over it
MIN_HELD_OUT = 100  # folds stop here: further ones changed no mean gain by more than 0.05
LENGTH_SAMPLE = 512  # images that mean lengths are computed from
TEXT_RANK_TOLERANCE = 1e-3  # relative, of singular values of the texts, as in methods.anchored


@dataclass(frozen=True)
class Evidence:
    """Whether unlabelled images were used, and why."""

    used: bool
    why: str
    held_out: int = 0  # number of held-out support images
    before: float | None = None  # held-out accuracy of the model; None with one image per class
    after: float | None = None  # held-out accuracy with the pool
    gain: float | None = None  # of the log-likelihood of their labels
    error: float | None = None  # its standard error


@dataclass(frozen=True, eq=False)
class Learned:
    """A model and its confidence after a pool, unchanged if the evidence is against it."""

    fitted: Fitted
    confidence: Confidence
    evidence: Evidence


@single_thread()
def learn_from(fitted: Fitted, confidence: Confidence, task: Task, x: Array, seed: int = 0) -> Learned:
    """Use features x [n, width] of unlabelled images to improve a model that was fitted on `task`."""
    pool, refusal = _pool(fitted, confidence, task, x)
    if pool is None or not isinstance(fitted, Projected):
        no_matrix = f"{fitted.method} has no matrix that a pool could change"
        return Learned(fitted, confidence, Evidence(False, refusal or no_matrix))
    plain = fitted.logits(x) / confidence.temperature
    gaussians = fit_gaussians(pool.support, task.y, pool.f, plain, pool.weights)
    evaluation = _evaluate(pool, task, confidence, gaussians, seed)
    if not evaluation.evidence.used:
        return Learned(fitted, confidence, evaluation.evidence)
    learned = move(fitted, pool.axes, gaussians, confidence.temperature, x, task.n)
    return Learned(learned, Confidence.of(learned, task, evaluation.held_out), evaluation.evidence)


def move(
    fitted: Projected, axes: Axes, gaussians: Gaussians, temperature: float, x: Array, labelled: int
) -> Projected:
    """Return the matrix whose predictions combine a model and its clusters, weighted by the pool's share c.

    With inputs z, embeddings v = z B + offset, a = |v| / |z| on average over the pool x [n, width], and a
    direction h whose product with every z / |z| is about 1,

        2 a |z| logits  ~  (s / t) v T'  +  a c beta ( z V S^-1 mu'  +  (z . h) (offset - mean V S^-1 mu') )

    which is linear in z: the second term is (s / t) z G, and B + G (T')^+ the matrix.
    c = n / (n + labelled): beside many labelled images a regression on them knows more than means do (16
    images of each of 60 birds, a pool of 600: 0.7 points won with c, 0.5 lost without).
    """
    base = fitted.head.weight if fitted.adapter is None else fitted.adapter
    some = x[:: -(-len(x) // LENGTH_SAMPLE)]
    lengths = np.maximum(row_lengths(_inputs(fitted, some)), 1e-30)
    ratio = float((row_lengths(_embedded(fitted, some)) / lengths).mean())
    direct = parallel_matmul(axes.axes, gaussians.weight.T.astype(axes.axes.dtype))  # [Do, K]
    constant = gaussians.offset - axes.mean @ direct
    g = direct + np.outer(_constant_direction(axes, len(x)), constant)
    share = len(x) / (len(x) + labelled)
    g = (ratio * share * gaussians.beta * temperature / fitted.scale) * (g - g.mean(axis=1, keepdims=True))
    weight = (base + g @ np.linalg.pinv(fitted.text.rows.T.astype(np.float64), TEXT_RANK_TOLERANCE)).astype(
        base.dtype
    )
    moved = (
        replace(fitted, head=fitted.head.with_weight(weight), tuned=True)
        if fitted.adapter is None
        else replace(fitted, adapter=weight)
    )
    longer = float((row_lengths(_embedded(moved, some)) / lengths).mean())
    return replace(moved, scale=0.5 * fitted.scale / temperature * longer / ratio, fit_scale=None)


@dataclass(frozen=True, eq=False)
class _Pool:
    """Unlabelled images beside the support set, in principal axes."""

    axes: Axes
    x: Array  # features [m, width]
    f: Array  # coordinates [m, r]
    weights: Array  # how likely each is in-distribution [m]
    support: Array  # coordinates of the support set [n, r]
    method: Method  # of the model, with its settings


@dataclass(frozen=True, eq=False)
class _Evaluation:
    evidence: Evidence
    held_out: HeldOutPredictions  # with the pool


def _pool(fitted: Fitted, confidence: Confidence, task: Task, x: Array) -> tuple[_Pool | None, str]:
    """Return the pool, or why it cannot be used."""
    method = methods.from_settings(fitted.settings)
    if method.trains_tower:
        return None, f"{fitted.method} trains the encoder, and takes too long for cross-validation"
    out_of_distribution = confidence.out_of_distribution or OutOfDistribution.of(task)
    weights = out_of_distribution.weights(x, task.linear)
    least = max(MIN_POOL, MIN_POOL_PER_CLASS * task.classes)
    if weights.sum() < least:
        return None, f"{weights.sum():.0f} in-distribution images are too few, it takes {least}"
    inputs = [_inputs(fitted, features, task) for features in (task.x[0], x)]
    axes = Axes.of(np.concatenate(inputs), task.classes)
    return _Pool(axes, x, axes(inputs[1]), weights, axes(inputs[0]), method), ""


def _evaluate(
    pool: _Pool, task: Task, confidence: Confidence, gaussians: Gaussians, seed: int
) -> _Evaluation:
    """Compare held-out predictions with and without the pool."""
    some = slice(None, None, -(-len(pool.f) // MAX_FOLD_POOL))
    f, weights, x = pool.f[some], pool.weights[some], pool.x[some]
    images, before, after = [], [], []
    for rest, own in fold_parts(task, seed):
        logits = pool.method.fit(task.subset(rest)).logits(np.concatenate([x, task.x[0, own]]))
        logits = logits / confidence.temperature
        own_logits, held_out_f = logits[len(x) :], pool.support[own]
        found = fit_gaussians(pool.support[rest], task.y[rest], f, logits[: len(x)], weights)
        share = len(x) / (len(x) + len(rest))
        after.append((own_logits + share * found.scores(held_out_f)) / 2)
        images.append(own)
        before.append(own_logits)
        if sum(map(len, images)) >= MIN_HELD_OUT:
            break
    if not images:
        return _evaluate_one_shot(pool, task, gaussians)
    order = np.concatenate(images).argsort()
    held_out = np.concatenate(images)[order]
    alone = _model_logits(confidence, held_out, np.concatenate(before)[order])
    return _compare(alone, np.concatenate(after)[order], held_out, task, gaussians)


def _model_logits(confidence: Confidence, images: Array, refitted: Array) -> Array:
    """Return the calibrated logits of the fit itself for held-out images, where it has them."""
    known = confidence.held_out
    if known is None or not np.isin(images, known.images).all():
        return refitted
    return known.logits[np.searchsorted(known.images, images)] / confidence.temperature


def _compare(alone: Array, joint: Array, images: Array, task: Task, gaussians: Gaussians) -> _Evaluation:
    """Compare logits [h, K] for held-out images, those of the model alone and those with the pool."""
    y = task.y[images]
    weights = task.weights[images]
    shares = weights * np.maximum(gaussians.counts[y].astype(np.float64), 1e-6)
    shares /= shares.sum()
    temperatures = [fit_temperature(logits, y, shares * weights.sum()) for logits in (alone, joint)]
    gains = cross_entropy(alone / temperatures[0], y) - cross_entropy(joint / temperatures[1], y)
    gain = float(shares @ gains)
    error = float(np.sqrt(np.square(shares * (gains - gain)).sum()))
    before, after = (metrics.accuracy(logits, y, weights) for logits in (alone, joint))
    of = "" if len(y) == task.n else f" on {len(y)} of {task.n} images"
    used = gain >= MARGIN * error
    why = (
        f"held-out accuracy{of} {100 * before:.1f} % alone, {100 * after:.1f} % together; the probabilities "
        f"of the labels {'rise' if used else 'do not rise'} beyond chance"
    )
    evidence = Evidence(used, why, len(y), before, after, gain, error)
    return _Evaluation(evidence, HeldOutPredictions(joint, y, images))


def _evaluate_one_shot(pool: _Pool, task: Task, gaussians: Gaussians) -> _Evaluation:
    """Check whether the clusters recognise the labelled images, of which none can be held out."""
    correct = recognise(gaussians, pool.f, pool.weights, pool.support, task.y)
    count = int((~np.isnan(correct)).sum())
    share = float(np.nansum(correct)) / max(count, 1)
    known = f"{100 * share:.0f} % of {count} labelled images"
    why = f"the clusters of the pool recognise {known} without seeing them"
    nothing = HeldOutPredictions(np.zeros((0, task.classes)), task.y[:0], np.zeros(0, int))
    return _Evaluation(Evidence(share >= 0.5, why, count, None, share), nothing)


def _inputs(fitted: Fitted, x: Array, task: Task | None = None) -> Array:
    """Return what the matrix of a model multiplies; for other models, features before the projection."""
    if isinstance(fitted, Projected):
        return fitted.head.split(x)[0] if fitted.adapter is None else fitted.head(x)
    return x if task is None else task.linear.split(x)[0]


def _embedded(fitted: Projected, x: Array) -> Array:
    v = fitted.head(x)
    return v if fitted.adapter is None else v @ fitted.adapter.astype(v.dtype, copy=False)


def _constant_direction(axes: Axes, images: int) -> Array:
    """Return the direction h [Do]: the mean without what varies between images, scaled to mean . h = 1."""
    along = axes.axes.T @ axes.mean
    rank = len(along)
    ridge = 2 * rank / (2 * rank + images) * float(axes.variances.mean())
    h = axes.mean - axes.axes @ (along * axes.variances / (axes.variances + ridge))
    return h / float(axes.mean @ h)
