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

With one image per class nothing can be held out, and the clusters are used
(docs/measurements/unlabelled.md). Fewer images than MIN_POOL, or MIN_POOL_PER_CLASS per class, are not used:
batches of 10 to 20 images lost 2.7 points on average with one image per class, and 0.6 with more.
"""

from dataclasses import dataclass, replace

import numpy as np

from prolip import methods
from prolip.core import Fitted, HeldOutPredictions, Projected, Task
from prolip.core.arrays import Array, cross_entropy, row_lengths
from prolip.evaluate.clusters import Axes, Gaussians, fit_gaussians
from prolip.evaluate.confidence import Confidence, fit_temperature
from prolip.evaluate.metrics import accuracy
from prolip.evaluate.out_of_distribution import OutOfDistribution
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
    before: float | None = None  # held-out accuracy of the model; these are None with one image per class
    after: float | None = None  # held-out accuracy with the pool
    gain: float | None = None  # of the log-likelihood of their labels
    error: float | None = None  # its standard error


@dataclass(frozen=True, eq=False)
class Pool:
    """Unlabelled images beside the support set, in principal axes."""

    axes: Axes
    x: Array  # features [m, width]
    f: Array  # coordinates [m, r]
    weights: Array  # how likely each is in-distribution [m]
    support: Array  # coordinates of the support set [n, r]

    def __len__(self) -> int:
        return len(self.x)

    def sample(self) -> "Pool":
        """Return the images that folds use."""
        some = slice(None, None, -(-len(self) // MAX_FOLD_POOL))
        return replace(self, x=self.x[some], f=self.f[some], weights=self.weights[some])

    def cluster(self, images: Array, y: Array, logits: Array) -> Gaussians:
        """Fit Gaussians to support images with labels y, and to the pool with calibrated logits [m, K]."""
        return fit_gaussians(self.support[images], y, self.f, logits, self.weights)


@single_thread()
def fit_with_pool(
    fitted: Fitted, confidence: Confidence, task: Task, x: Array, seed: int = 0
) -> tuple[Fitted, Confidence, Evidence]:
    """Use features x [n, width] of unlabelled images to improve a model that was fitted on `task`.

    The model and its confidence come back unchanged if the evidence is against the pool.
    """
    weights = (confidence.out_of_distribution or OutOfDistribution.of(task)).weights(x, task.linear)
    least = max(MIN_POOL, MIN_POOL_PER_CLASS * task.classes)
    if not isinstance(fitted, Projected) or fitted.adapter is not None:
        why = f"{fitted.method} tunes no projection that a pool could change"
        return fitted, confidence, Evidence(False, why)
    if weights.sum() < least:
        why = f"{weights.sum():.0f} in-distribution images are too few, it takes {least}"
        return fitted, confidence, Evidence(False, why)
    inputs = [fitted.head.split(features)[0] for features in (task.x[0], x)]
    axes = Axes.of(np.concatenate(inputs), task.classes)
    pool = Pool(axes, x, axes(inputs[1]), weights, axes(inputs[0]))
    gaussians = pool.cluster(np.arange(task.n), task.y, fitted.logits(x) / confidence.temperature)
    held_out = _predict_with_pool(fitted, confidence, task, pool.sample(), seed)
    evidence = Evidence(True, "with one image per class none can be held out to decide")
    if len(held_out):
        evidence = _compare(confidence, held_out, task, gaussians)
    if not evidence.used:
        return fitted, confidence, evidence
    moved = move(fitted, axes, gaussians, confidence.temperature, x, task.n)
    return moved, Confidence.of(moved, task, held_out), evidence


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
    base, some = fitted.head.weight, x[:: -(-len(x) // LENGTH_SAMPLE)]
    lengths = np.maximum(row_lengths(fitted.head.split(some)[0]), 1e-30)
    ratio = float((row_lengths(fitted.head(some)) / lengths).mean())
    direct = parallel_matmul(axes.axes, gaussians.weight.T.astype(axes.axes.dtype))  # [Do, K]
    constant = gaussians.offset - axes.mean @ direct
    g = direct + np.outer(_constant_direction(axes, len(x)), constant)
    share = len(x) / (len(x) + labelled)
    g = (ratio * share * gaussians.beta * temperature / fitted.scale) * (g - g.mean(axis=1, keepdims=True))
    weight = base + g @ np.linalg.pinv(fitted.text.rows.T.astype(np.float64), TEXT_RANK_TOLERANCE)
    head = fitted.head.with_weight(weight.astype(base.dtype))
    longer = float((row_lengths(head(some)) / lengths).mean())
    scale = 0.5 * fitted.scale / temperature * longer / ratio
    return replace(fitted, head=head, tuned=True, scale=scale, fit_scale=None)


def _predict_with_pool(
    fitted: Projected, confidence: Confidence, task: Task, pool: Pool, seed: int
) -> HeldOutPredictions:
    """Predict the images of each fold by a fit on the rest, and the clusters of the pool with it."""
    method = methods.from_settings(fitted.settings)
    logits: list[Array] = []
    images: list[Array] = []
    for rest, held in fold_parts(task, seed):
        if sum(map(len, images)) >= MIN_HELD_OUT:
            break
        model = method.fit(task.subset(rest))
        of_pool, of_held = (model.logits(x) / confidence.temperature for x in (pool.x, task.x[0, held]))
        gaussians = pool.cluster(rest, task.y[rest], of_pool)
        share = len(pool) / (len(pool) + len(rest))
        logits.append((of_held + share * gaussians.scores(pool.support[held])) / 2)
        images.append(held)
    places = np.concatenate([*images, np.zeros(0, int)])
    order = places.argsort()
    rows = np.concatenate([*logits, np.zeros((0, task.classes))])[order]
    return HeldOutPredictions(rows, task.y[places[order]], places[order])


def _compare(confidence: Confidence, joint: HeldOutPredictions, task: Task, gaussians: Gaussians) -> Evidence:
    """Compare predictions for held-out images with the pool to those of the model alone."""
    alone, y, weights = confidence.held_out, joint.y, task.weights[joint.images]
    assert alone is not None
    both = [alone.logits[np.searchsorted(alone.images, joint.images)] / confidence.temperature, joint.logits]
    shares = weights * np.maximum(gaussians.counts[y].astype(np.float64), 1e-6)
    shares /= shares.sum()
    losses = [
        cross_entropy(logits / fit_temperature(logits, y, shares * weights.sum()), y) for logits in both
    ]
    gains = losses[0] - losses[1]
    gain = float(shares @ gains)
    error = float(np.sqrt(np.square(shares * (gains - gain)).sum()))
    before, after = (accuracy(logits, y, weights) for logits in both)
    of = "" if len(y) == task.n else f" on {len(y)} of {task.n} images"
    used = gain >= MARGIN * error
    why = (
        f"held-out accuracy{of} {100 * before:.1f} % alone, {100 * after:.1f} % together; the probabilities "
        f"of the labels {'rise' if used else 'do not rise'} beyond chance"
    )
    return Evidence(used, why, len(y), before, after, gain, error)


def _constant_direction(axes: Axes, images: int) -> Array:
    """Return the direction h [Do]: the mean without what varies between images, scaled to mean . h = 1."""
    along = axes.axes.T @ axes.mean
    rank = len(along)
    ridge = 2 * rank / (2 * rank + images) * float(axes.variances.mean())
    h = axes.mean - axes.axes @ (along * axes.variances / (axes.variances + ridge))
    return h / float(axes.mean @ h)
