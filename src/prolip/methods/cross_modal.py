"""Cross-modal linear probe: class texts are further shots.

Every class text is a training sample of its class, beside the images (Lin et al., 2023):

    minimise over W:   mean over images CE( s f W', y ) / 2  +  mean over classes CE( s t_k W', k ) / 2
                       +  lam (s / 100)^2 |W - T|^2

Half of each of their batches is images and half is texts, hence the halves. W starts at the texts, as in
their paper and by the default of their program (whose script says random since February 2025).

Differences: their texts are single prompts, here a class has one, the mean of its prompts. They train by
AdamW for 12,800 steps with a weight decay of 0 to 0.01 and stop early on a validation set, which picks a
point on the way from T to a minimum at infinity. Here the pull to T says how far to go, the minimum is exact,
and lam is searched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prolip.core import Task
from prolip.methods.classifiers import LinearClassifier, unit_features
from prolip.methods.logit_bias import stopping
from prolip.methods.penalty import PenaltyMethod
from prolip.methods.registry import register
from prolip.solvers.regression import SoftmaxRegression


@register
@dataclass(frozen=True)
class CrossModal(PenaltyMethod):
    """A linear probe on images and texts together."""

    name: ClassVar[str] = "cross_modal"
    summary: ClassVar[str] = "a linear probe that counts class texts among its samples"
    size: ClassVar[str] = "K x D"

    def path(self, task: Task, lams: Sequence[float], coarse: bool = False) -> Iterator[LinearClassifier]:
        """W for each lam; the unknown of the regression is s (W - T)."""
        x, y = task.rows()
        images, s = unit_features(task.linear, x), task.scale
        texts = task.text.rows.astype(images.dtype, copy=False)
        f, labels = np.concatenate([images, texts]), np.concatenate([y, np.arange(len(texts))])
        weights = np.concatenate([np.full(len(rows), 0.5 / len(rows)) for rows in (images, texts)])
        problem = SoftmaxRegression(f, labels, task.classes, intercept=False)
        problem = problem.on(s * (f @ texts.T), weights[:, None])
        start = None
        for lam in lams:
            found = problem.solve(lam / 1e4, start=start, **stopping(f, coarse))
            start = found.unknowns
            figures = {"converged": found.minimum.converged, "evaluations": found.minimum.evaluations}
            weight = s * texts + found.weight
            yield LinearClassifier(task.linear, task.text, weight, found.bias, report=figures)
