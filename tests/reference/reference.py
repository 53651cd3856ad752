"""Plain computations in float64, written from the papers' formulas: nothing here is shared with the methods.

A `Loss` takes parameters (a list of arrays) and rows of the support set, and gives a value and a gradient for
each parameter.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np
from scipy import optimize

from prolip.core.arrays import Array
from reference.problems import Problem

Parameters = list[Array]
Loss = Callable[[Parameters, Array], tuple[float, Parameters]]


def unit(v: Array) -> Array:
    """Rows of length one; zeros stay, as in PyTorch's `normalize`."""
    return v / np.maximum(np.sqrt((v**2).sum(axis=-1, keepdims=True)), 1e-12)


def through_unit(v: Array, slope: Array) -> Array:
    """The gradient by v of a function of unit(v), from its gradient by unit(v)."""
    length = np.maximum(np.sqrt((v**2).sum(axis=-1, keepdims=True)), 1e-12)
    u = v / length
    return (slope - u * (u * slope).sum(axis=-1, keepdims=True)) / length


def softmax(logits: Array) -> Array:
    """Probabilities of each row."""
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def cross_entropy(logits: Array, y: Array) -> tuple[float, Array]:
    """Mean cross-entropy, and its gradient by the logits."""
    p = softmax(logits)
    every = np.arange(len(y))
    value = -float(np.mean(np.log(np.maximum(p[every, y], 1e-300))))
    p[every, y] -= 1
    return value, p / len(y)


class Numbers:
    """A problem as plain float64 arrays."""

    def __init__(self, problem: Problem) -> None:
        task = problem.task
        self.problem, self.s, self.n, self.views = problem, task.scale, task.n, task.views
        self.rows = task.x.reshape(-1, task.x.shape[2]).astype(np.float64)  # all views, one below another
        self.y = np.tile(task.y, task.views)
        self.v = self.embed(self.rows)
        self.f = unit(self.v)
        self.test = unit(self.embed(problem.x))
        self.held = unit(self.embed(problem.validation.x[0]))
        self.t = task.text.rows.astype(np.float64)
        self.shots = self.n / len(self.t)
        # Class texts as long as the text tower makes them; 10 at scale 100 where that is not known.
        self.raw = self.s / 10 * self.t
        if task.text.features is not None:
            projection = task.text.projection.weight.astype(np.float64)
            self.raw = (task.text.features.astype(np.float64) @ projection).mean(axis=0)

    def embed(self, x: Array) -> Array:
        """Embeddings v = x W + b."""
        x = np.asarray(x, np.float64)
        head = self.problem.task.head
        if head is None:
            return x
        bias = 0.0 if head.bias is None else head.bias.astype(np.float64)
        return x @ head.weight.astype(np.float64) + bias

    def view(self, epoch: int) -> Array:
        """Places of the one view that an epoch sees: 1, 2, .., V - 1, 0, 1, .."""
        return (epoch + 1) % self.views * self.n + np.arange(self.n)

    def right(self, logits: Array) -> float:
        """Accuracy on the validation images."""
        return float(np.mean(logits.argmax(axis=1) == self.problem.validation.y))


def minimum(loss: Loss, start: Parameters, rows: Array) -> Parameters:
    """The minimum by SciPy's L-BFGS-B, from `start`: within 1e-4 of a logit of where rounding ends."""
    shapes, sizes = [a.shape for a in start], np.cumsum([a.size for a in start])[:-1]

    def flat(x: Array) -> tuple[float, Array]:
        value, slopes = loss([p.reshape(s) for p, s in zip(np.split(x, sizes), shapes, strict=True)], rows)
        return value, np.concatenate([slope.ravel() for slope in slopes])

    options = {"maxiter": 1000, "maxfun": 1500, "ftol": 1e-13, "gtol": 1e-8, "maxcor": 30}
    x0 = np.concatenate([a.ravel() for a in start]).astype(np.float64)
    found = optimize.minimize(flat, x0, jac=True, method="L-BFGS-B", options=options)
    assert found.status != 1, "SciPy ran out of steps: this is no minimum to compare with"
    return [p.reshape(s) for p, s in zip(np.split(found.x, sizes), shapes, strict=True)]


def cosine(lr: float, share: float) -> float:
    """A rate that has fallen along a cosine."""
    return lr * (1 + math.cos(math.pi * share)) / 2


def adam(
    loss: Loss, start: Parameters, steps: Iterable[tuple[float, Array]], eps: float = 1e-4, decay: float = 0.0
) -> Parameters:
    """Adam, with decoupled weight decay, over (rate, rows) of each step; where it ends."""
    return last(adam_points(loss, start, steps, eps, decay))


def adam_points(
    loss: Loss, start: Parameters, steps: Iterable[tuple[float, Array]], eps: float = 1e-4, decay: float = 0.0
) -> Iterable[Parameters]:
    """The same; the parameters after each step."""
    point = [np.array(p, np.float64) for p in start]
    mean, square = [np.zeros_like(p) for p in point], [np.zeros_like(p) for p in point]
    for count, (lr, rows) in enumerate(steps, start=1):
        _, slopes = loss(point, rows)
        for i, slope in enumerate(slopes):
            mean[i] = 0.9 * mean[i] + 0.1 * slope
            square[i] = 0.999 * square[i] + 0.001 * slope**2
            step = (mean[i] / (1 - 0.9**count)) / (np.sqrt(square[i] / (1 - 0.999**count)) + eps)
            point[i] = point[i] - lr * decay * point[i] - lr * step
        yield list(point)


def sgd(
    loss: Loss, start: Parameters, steps: Iterable[tuple[float, Array]], momentum: float = 0.0
) -> Iterable[Parameters]:
    """Gradient descent with momentum; the parameters after each step."""
    point = [np.array(p, np.float64) for p in start]
    speed = [np.zeros_like(p) for p in point]
    for lr, rows in steps:
        _, slopes = loss(point, rows)
        speed = [momentum * old + slope for old, slope in zip(speed, slopes, strict=True)]
        point = [p - lr * v for p, v in zip(point, speed, strict=True)]
        yield point


def last(points: Iterable[Parameters]) -> Parameters:
    """The last of them."""
    found: Parameters = []
    for point in points:
        found = point
    return found


def full_batches(numbers: Numbers, lr: float) -> list[tuple[float, Array]]:
    """The ProLIP paper's steps: one view an epoch, all of it, a cosine to zero over 300 epochs."""
    return [(cosine(lr, epoch / 300), numbers.view(epoch)) for epoch in range(300)]


def dassl_batches(
    numbers: Numbers, lr: float, epochs: int, seed: int, pooled: bool = False
) -> list[tuple[float, Array]]:
    """Dassl's: batches of 256, a partial last one dropped; an epoch at 1e-5, then a cosine by epochs."""
    rng, per_epoch = np.random.default_rng(seed), max(1, numbers.n // 256)
    steps = []
    for epoch in range(epochs):
        rate = 1e-5 if epoch == 0 else cosine(lr, (epoch - 1) / epochs)
        if pooled:
            order = rng.permutation(numbers.views * numbers.n)
        else:
            order = numbers.view(epoch)[0] + rng.permutation(numbers.n)
        steps += [(rate, order[256 * k : 256 * (k + 1)]) for k in range(per_epoch)]
    return steps


def one_hot(y: Array, classes: int) -> Array:
    """Labels [n] as rows [n, K]."""
    return np.eye(classes)[y]
