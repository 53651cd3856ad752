"""Training by mini-batches in torch: one step after another, and the best epoch.

Order of images, crops, dropout and learning rate of a step follow from the seed and the number of the step.
"""

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prolip.core import ProlipError
from prolip.core.arrays import Array
from prolip.methods.base import Progress
from prolip.solvers.adam import Steps


def build_optimizer(steps: Steps, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Create the optimizer of these parameters: SGD, Adam, or AdamW where there is a weight decay."""
    common: dict[str, Any] = {"lr": steps.lr, "weight_decay": steps.decay}
    if steps.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=steps.momentum, **common)
    return (torch.optim.AdamW if steps.decay else torch.optim.Adam)(parameters, eps=steps.eps, **common)


@dataclass(frozen=True)
class Batch:
    """The images of one step."""

    images: Tensor  # [B], indices in the support set
    epoch: int
    crops: list[Future[Array]]  # of the images, where the method trains on new ones

    @property
    def pixels(self) -> Array:
        """Pixels [B, S, S, 3] of the crops."""
        return np.stack([crop.result() for crop in self.crops])


ValidationScore = Callable[[], float]  # accuracy on held-out images with the current parameters
Crop = Callable[[int, int], Array]  # pixels [S, S, 3] of an image in an epoch


def train(
    parameters: dict[str, nn.Parameter],
    loss: Callable[[Batch], Tensor],
    images: int,
    steps: Steps,
    device: str,
    crop: Crop | None = None,
    progress: Progress | None = None,
    validation_score: ValidationScore | None = None,
) -> dict[str, Any]:
    """Minimise the mean loss of batches over so many images, and return figures of the run.

    With `validation_score`, the run ends with the parameters of its best epoch (the first of equals), not the
    last.
    """
    optimizer = build_optimizer(steps, list(parameters.values()))
    losses: list[float] = []
    best: dict[str, Tensor] = {}
    figures: dict[str, Any] = {}
    total, per_epoch = steps.total(images), steps.per_epoch(images)
    for step, batch in enumerate(batches(images, steps, crop)):
        for group in optimizer.param_groups:
            group["lr"] = steps.rate(step, images)
        optimizer.zero_grad(set_to_none=True)
        with seeded(steps.seed + 1_000_003 * step, device), _autocast(device):
            value = loss(batch)
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
        if not math.isfinite(losses[-1]):
            raise ProlipError(f"training diverged at step {step + 1}: lower lr (it is {steps.lr:g})")
        if validation_score is not None and ((step + 1) % per_epoch == 0 or step + 1 == total):
            with torch.no_grad():
                accuracy = validation_score()
            if accuracy > figures.get("validation_accuracy", -math.inf):
                figures = {"best_epoch": step // per_epoch + 1, "validation_accuracy": accuracy}
                best = {name: p.detach().clone() for name, p in parameters.items()}
        if progress:
            progress(step + 1, total)
    with torch.no_grad():
        for name, tensor in best.items():
            parameters[name].copy_(tensor)
    first, last = losses[:per_epoch], losses[-per_epoch:]
    return {
        "parameters": sum(parameter.numel() for parameter in parameters.values()),
        "start_loss": sum(first) / max(1, len(first)),
        "loss": sum(last) / max(1, len(last)),
        **figures,
    }


def _autocast(device: str) -> contextlib.AbstractContextManager[Any]:
    """Return half precision on GPUs with bfloat16, which needs no loss scaling; elsewhere float32."""
    if device.startswith("cuda") and torch.cuda.is_bf16_supported():
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()


def batches(images: int, steps: Steps, crop: Crop | None = None) -> Iterator[Batch]:
    """Yield the batch of each step; two threads crop the images of the next one meanwhile."""
    per_epoch, size = steps.per_epoch(images), steps.batch or images
    ahead: deque[Batch] = deque()
    with ThreadPoolExecutor(2, thread_name_prefix="prolip-crops") as pool:
        for step in range(steps.total(images)):
            epoch, place = divmod(step, per_epoch)
            order = torch.Generator().manual_seed(steps.seed * 1_000_003 + epoch)
            chosen = torch.randperm(images, generator=order)[place * size : (place + 1) * size]
            crops = [] if crop is None else [pool.submit(crop, i, epoch) for i in chosen.tolist()]
            ahead.append(Batch(chosen, epoch, crops))
            if step:
                yield ahead.popleft()
        yield from ahead


@contextlib.contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Seed torch's random numbers inside the block; the caller's generator is not affected."""
    with torch.random.fork_rng([device] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        yield
