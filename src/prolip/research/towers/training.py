"""Training by mini-batches in torch: one step after another, and the best epoch.

Order of images, crops, dropout and learning rate of a step follow from the seed and the number of the step.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prolip.core import ProlipError
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
    """The images of one step, and its position in the run."""

    images: Tensor  # [B], indices in the support set
    epoch: int
    step: int
    next_images: list[int]  # of the next step, with its epoch, to prepare them in advance
    next_epoch: int


ValidationScore = Callable[[], float]  # accuracy on held-out images with the current parameters


def train(
    parameters: dict[str, nn.Parameter],
    loss: Callable[[Batch], Tensor],
    images: int,
    steps: Steps,
    device: str,
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
    for step in range(total):
        for group in optimizer.param_groups:
            group["lr"] = steps.rate(step, images)
        optimizer.zero_grad(set_to_none=True)
        with seeded(steps.seed + 1_000_003 * step, device), _autocast(device):
            value = loss(_batch(step, images, steps))
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
        "steps": total,
        "epochs": -(-total // per_epoch),
        "start_loss": sum(first) / max(1, len(first)),
        "loss": sum(last) / max(1, len(last)),
        **figures,
    }


def _autocast(device: str) -> contextlib.AbstractContextManager[Any]:
    """Return half precision on GPUs with bfloat16, which needs no loss scaling; elsewhere float32."""
    if device.startswith("cuda") and torch.cuda.is_bf16_supported():
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()


def _batch(step: int, images: int, steps: Steps) -> Batch:
    per_epoch, size = steps.per_epoch(images), steps.batch or images

    def at(step: int) -> tuple[Tensor, int]:
        epoch, place = divmod(step, per_epoch)
        order = torch.Generator().manual_seed(steps.seed * 1_000_003 + epoch)
        start = place * size
        return torch.randperm(images, generator=order)[start : start + size], epoch

    chosen, epoch = at(step)
    after, next_epoch = at(step + 1) if step + 1 < steps.total(images) else (chosen[:0], epoch)
    return Batch(chosen, epoch, step, after.tolist(), next_epoch)


@contextlib.contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Seed torch's random numbers inside the block; the caller's generator is not affected."""
    with torch.random.fork_rng([device] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Switch a model in training to prediction, inside the block."""
    active = [module for module in model.modules() if module.training and not list(module.children())]
    for module in active:
        module.eval()
    try:
        yield
    finally:
        for module in active:
            module.train()
