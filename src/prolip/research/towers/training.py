"""Training by mini-batches: schedules, checkpoints and progress.

A step depends on the previous steps only through parameters and optimizer state: order of images, crops,
dropout and learning rate follow from the seed and the number of the step. So a run that was interrupted and
resumed ends in the same weights as one that was not.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prolip.core import ProlipError, SavedModelError, UsageError
from prolip.io.files import sha256_tensors
from prolip.io.writing import write_tensors
from prolip.methods.base import Progress

_WRITE_SECONDS = 30.0  # between checkpoints
_WARM_UP_RATE = 1e-5
_FILE = "training.safetensors"


class OtherRunError(UsageError):
    """A checkpoint belongs to another run."""


class DivergenceError(ProlipError):
    """The loss is not finite any more."""


@dataclass(frozen=True)
class TrainingRecipe:
    """How parameters are trained: the optimizer, and a learning rate that falls along a cosine."""

    lr: float  # at the start
    epochs: int
    batch_size: int
    steps: int | None = None  # total, for methods that count steps; it replaces the epochs
    optimizer: str = "sgd"  # or "adam" (weight decay as a penalty) or "adamw"
    momentum: float = 0.9  # of SGD
    weight_decay: float = 0.0
    eps: float = 1e-8
    floor: float = 0.0  # minimum learning rate
    # Cosine of the learning rate: "epochs", updated once an epoch; "steps", at each step; "waves", at each
    # step, with a period that counts steps where it should count epochs, so that it rises and falls again, as
    # in some authors' programs (see `solvers.adam.Steps`).
    schedule: str = "epochs"
    drop_last: bool = True  # whether a last batch that is not full is skipped, as Dassl does
    warm_up: int = 0  # epochs (or steps) at 1e-5 before that, if there are more of them than these
    seed: int = 0
    checkpoint: str | Path | None = None  # a folder for the state, from which an interrupted run continues

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.batch_size < 1 or not self.lr > 0:
            raise UsageError(
                f"epochs must be 0 or more, batch_size 1 or more and lr positive, got {self.epochs}, "
                f"{self.batch_size} and {self.lr}"
            )

    def per_epoch(self, images: int) -> int:
        """Return the steps of an epoch."""
        whole, rest = divmod(images, self.batch_size)
        return max(1, whole + (rest > 0 and not self.drop_last))

    def total(self, images: int) -> int:
        """Return the steps of the whole run."""
        return self.epochs * self.per_epoch(images) if self.steps is None else self.steps

    def rate(self, step: int, images: int) -> float:
        """Return the learning rate of a step."""
        done, span = step, self.epochs if self.schedule == "waves" else self.total(images)
        if self.schedule == "epochs":
            per_epoch = self.per_epoch(images)
            done, span = step // per_epoch, -(-span // per_epoch)
        warm_up = self.warm_up if span > self.warm_up else 0
        if done < warm_up:
            return _WARM_UP_RATE
        return self.floor + (self.lr - self.floor) * (1 + math.cos(math.pi * (done - warm_up) / span)) / 2

    def build(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Create the optimizer of these parameters."""
        common: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay}
        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, momentum=self.momentum, **common)
        kinds: dict[str, type[torch.optim.Adam]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        return kinds[self.optimizer](parameters, eps=self.eps, **common)


@dataclass(frozen=True)
class Batch:
    """The images of one step, and its position in the run."""

    images: Tensor  # [B], indices in the support set
    epoch: int
    step: int
    next_images: list[int]  # of the next step, with its epoch, to prepare them in advance
    next_epoch: int


Gradient = Callable[[Batch], Tensor]  # sets every parameter's grad, returns the loss
Judge = Callable[[], float]  # accuracy on held-out images with the current parameters


def train(
    parameters: dict[str, nn.Parameter],
    loss: Callable[[Batch], Tensor],
    images: int,
    recipe: TrainingRecipe,
    device: str,
    progress: Progress | None = None,
    identity: str = "",
    gradient: Gradient | None = None,
    judge: Judge | None = None,
) -> dict[str, Any]:
    """Minimise the mean loss of batches over so many images, and return figures of the run.

    With `judge`, the run ends with the parameters of its best epoch (the first of equals), not the last.
    `identity` describes the run further: a checkpoint of another run is refused. `gradient` replaces the
    gradient of the loss.
    """
    optimizer = recipe.build(list(parameters.values()))
    run = _Run(parameters, optimizer, recipe, images, identity)
    losses, total, per_epoch = run.resume(), recipe.total(images), recipe.per_epoch(images)
    for step in range(len(losses), total):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step, images)
        optimizer.zero_grad(set_to_none=True)
        with seeded(recipe.seed + 1_000_003 * step, device), _autocast(device):
            batch = _batch(step, images, recipe)
            value = gradient(batch) if gradient else loss(batch)
        if gradient is None:
            value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
        if not math.isfinite(losses[-1]):
            raise DivergenceError(f"training diverged at step {step + 1}: lower lr (it is {recipe.lr:g})")
        if judge is not None and ((step + 1) % per_epoch == 0 or step + 1 == total):
            with torch.no_grad():
                run.consider(judge(), step // per_epoch + 1)
        run.write(losses)
        if progress:
            progress(step + 1, total)
            if hasattr(progress, "note"):  # a bar that can show a text beside the count
                progress.note(f"loss {losses[-1]:.3f}")
    return {**_figures(losses, per_epoch), **run.finish()}


def _figures(losses: list[float], per_epoch: int) -> dict[str, Any]:
    """Return steps, and the mean loss over the first and the last epoch."""
    first, last = losses[:per_epoch], losses[-per_epoch:]
    return {
        "steps": len(losses),
        "epochs": -(-len(losses) // per_epoch),
        "start_loss": sum(first) / max(1, len(first)),
        "loss": sum(last) / max(1, len(last)),
    }


def _autocast(device: str) -> contextlib.AbstractContextManager[Any]:
    """Return half precision on GPUs with bfloat16, which needs no loss scaling; elsewhere float32."""
    if device.startswith("cuda") and torch.cuda.is_bf16_supported():
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()


def _batch(step: int, images: int, recipe: TrainingRecipe) -> Batch:
    per_epoch = recipe.per_epoch(images)

    def at(step: int) -> tuple[Tensor, int]:
        epoch, place = divmod(step, per_epoch)
        order = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
        start = place * recipe.batch_size
        return torch.randperm(images, generator=order)[start : start + recipe.batch_size], epoch

    chosen, epoch = at(step)
    after, next_epoch = at(step + 1) if step + 1 < recipe.total(images) else (chosen[:0], epoch)
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


class _Run:
    """The state of a run on disk: one safetensors file, with JSON in its metadata."""

    def __init__(
        self,
        parameters: dict[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
        recipe: TrainingRecipe,
        images: int,
        identity: str,
    ) -> None:
        self.parameters, self.optimizer, self.recipe = parameters, optimizer, recipe
        self.path = None if recipe.checkpoint is None else Path(recipe.checkpoint) / _FILE
        described = {**asdict(recipe), "checkpoint": None, "images": images, "identity": identity}
        if self.path:
            described["start"] = sha256_tensors(parameters.items())
            _make_folder(self.path.parent)
        self.described = json.dumps(described, sort_keys=True)
        self.written = time.monotonic()
        self.best: dict[str, Tensor] = {}  # parameters of the best epoch
        self.best_epoch, self.best_accuracy = 0, -math.inf

    def consider(self, accuracy: float, epoch: int) -> None:
        """Remember the current parameters if their accuracy is the best so far."""
        if accuracy > self.best_accuracy:
            self.best_epoch, self.best_accuracy = epoch, accuracy
            self.best = {name: p.detach().clone() for name, p in self.parameters.items()}

    def write(self, losses: list[float]) -> None:
        """Write a checkpoint, if the last one is old enough."""
        if self.path is None or time.monotonic() - self.written < _WRITE_SECONDS:
            return
        tensors = {f"parameter.{name}": p.detach() for name, p in self.parameters.items()}
        for name, p in self.parameters.items():
            for key, value in self.optimizer.state[p].items():
                tensors[f"optimizer.{key}.{name}"] = torch.as_tensor(value)
        tensors |= {f"best.{name}": p for name, p in self.best.items()}
        metadata = {"run": self.described, "losses": json.dumps(losses)}
        metadata |= {"best": json.dumps([self.best_epoch, self.best_accuracy])} if self.best else {}
        write_tensors(self.path, tensors, metadata)
        self.written = time.monotonic()

    def resume(self) -> list[float]:
        """Restore the state of an earlier run, if there is one, and return the losses of its steps."""
        from safetensors import SafetensorError, safe_open

        if self.path is None or not self.path.is_file():
            return []
        try:
            with safe_open(self.path, "pt") as stored:
                metadata = stored.metadata() or {}
                if metadata.get("run") != self.described:
                    raise OtherRunError(
                        f"{self.path} belongs to another run (other images, options or model): "
                        "remove it, or choose another folder"
                    )
                losses: list[float] = json.loads(metadata["losses"])
                if "best" in metadata:
                    self.best_epoch, self.best_accuracy = json.loads(metadata["best"])
                    self.best = {
                        name: stored.get_tensor(f"best.{name}").to(p.device)
                        for name, p in self.parameters.items()
                    }
                for name, parameter in self.parameters.items():
                    state = self.optimizer.state[parameter]
                    with torch.no_grad():
                        parameter.copy_(stored.get_tensor(f"parameter.{name}"))
                    for key in stored.keys():  # noqa: SIM118 - not a dictionary
                        kind, _, rest = key.partition(".")
                        entry, _, owner = rest.partition(".")
                        if kind == "optimizer" and owner == name:
                            value = stored.get_tensor(key)
                            state[entry] = value if entry == "step" else value.to(parameter.device)
        except (SafetensorError, KeyError, ValueError) as error:
            raise SavedModelError(f"{self.path} is damaged ({error}): remove it to start again") from error
        return losses

    def finish(self) -> dict[str, Any]:
        """Restore the best parameters, remove the checkpoint, and return the best epoch if there is one."""
        with torch.no_grad():
            for name, tensor in self.best.items():
                self.parameters[name].copy_(tensor)
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        found = {"best_epoch": self.best_epoch, "validation_accuracy": self.best_accuracy}
        return found if self.best else {}


def _make_folder(folder: Path) -> None:
    """Create the checkpoint folder before the first step, so that a wrong path fails early."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"checkpoint={folder}: this folder cannot be created ({error.strerror})") from error
