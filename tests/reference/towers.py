"""Methods that train through a tower, beside plain loops of torch's own optimizers and schedules.

On the offline encoder's towers and drawn textures: no download, a few steps. What is compared is training
(the loss, the gradient, the batches, the rates), in logits of the support images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip import encoders, methods
from prolip.core.arrays import Array, to_numpy, to_torch
from prolip.data import builtin
from prolip.research.towers.tower_method import Batches, TowerTask
from reference.closed_forms import Pair
from reference.compare import Line, differences
from reference.reference import cosine

if TYPE_CHECKING:
    from torch import Tensor

EPOCHS, BATCH, SEED = 3, 8, 5


def tower_lines(names: Collection[str]) -> Iterator[Line]:
    """A line for each of these methods; none where torch is not installed."""
    if not names or find_spec("torch") is None:
        return
    task = textures_task()
    for name in names:
        started = time.perf_counter()
        apart = differences(*TOWERS[name](task), task.y)
        yield Line(name, "a loop of torch's", apart, time.perf_counter() - started)


def textures_task() -> TowerTask:
    """Twelve pictures of four textures, through the offline encoder."""
    encoder = encoders.load("offline", "cpu")
    drawn = builtin("textures", per_class=3)
    chosen = [i for i, label in enumerate(drawn.labels) if label < 4]
    pictures = [drawn.images[i] for i in chosen]
    pixels = np.stack([encoder.preprocess.centre(picture) for picture in pictures])
    text = encoder.text(drawn.classes[:4], drawn.templates)
    y = [drawn.labels[i] for i in chosen]
    x = encoder.encode(pixels)
    return TowerTask(x, y, text, encoder.head, encoder.scale, encoder, drawn.templates, tuple(pictures))


def coop(task: TowerTask) -> Pair:
    """Cross-entropy of learned words: SGD with momentum 0.9 and weight decay 5e-4, Dassl's schedule."""
    return _prompts(task, "coop", lambda loss, *_: loss.backward())


def kgcoop(task: TowerTask) -> Pair:
    """The same with eight times the distance from the teacher's rows."""

    def backward(loss: Tensor, logits: Tensor, rows: Tensor, teacher: Tensor, *_: Any) -> None:
        (loss + 8 * (1 - (rows * teacher).sum(dim=1).mean())).backward()

    return _prompts(task, "kgcoop", backward)


def prograd(task: TowerTask) -> Pair:
    """The same, less the part of the gradient that goes against the teacher's."""

    def backward(
        loss: Tensor, logits: Tensor, rows: Tensor, teacher: Tensor, z: Tensor, context: Tensor
    ) -> None:
        import torch

        soft = (task.scale * z @ teacher.T).softmax(dim=1)
        apart = -(soft * logits.log_softmax(dim=1)).sum(dim=1).mean()
        (own,) = torch.autograd.grad(loss, context, retain_graph=True)
        (general,) = torch.autograd.grad(apart, context)
        along = (own * general).sum()
        context.grad = own if along >= 0 else own - along / general.square().sum() * general

    return _prompts(task, "prograd", backward)


def _prompts(task: TowerTask, name: str, backward: Callable[..., None]) -> Pair:
    """Our prompts, and words trained from "a photo of a" by torch.optim."""
    import torch
    from torch.nn.functional import cross_entropy, normalize

    from prolip.research.towers.prompt_tuning import Layout, phrase_embedding

    options = {"contexts": None, "init": "a photo of a", "lr": 0.01}
    options |= {"epochs": EPOCHS, "batch_size": BATCH, "seed": SEED}
    mine = methods.create(name, **options).fit(task).logits(task.x[0])
    assert task.encoder is not None
    assert task.text.classes is not None
    towers, names = task.encoder.towers(), task.text.classes
    words = phrase_embedding(task.encoder, towers, "a photo of a", names[0])
    prompts = Layout(len(words), "end").prompts(task.encoder, names)
    context = torch.nn.Parameter(words.clone())
    z, y = normalize(to_torch(task.embeddings()[0]), dim=1), to_torch(task.y)
    teacher = to_torch(task.text.rows)
    optimizer = torch.optim.SGD([context], lr=0.01, momentum=0.9, weight_decay=5e-4)
    for epoch in range(EPOCHS):
        optimizer.param_groups[0]["lr"] = cosine(0.01, (epoch - 1) / EPOCHS) if epoch else 1e-5  # Dassl's
        for batch in _order(len(y), epoch)[: len(y) // BATCH]:  # the partial one is dropped
            optimizer.zero_grad()
            rows = prompts.embed(context)
            logits = task.scale * z[batch] @ rows.T
            backward(cross_entropy(logits, y[batch]), logits, rows, teacher, z[batch], context)
            optimizer.step()
    theirs = task.scale * z @ prompts.embed(context.detach()).T
    return mine, to_numpy(theirs)


def last_layer(task: TowerTask) -> Pair:
    """Adam at 1e-4 with eps 1e-4 on the last layer, a cosine by steps, partial batches kept."""
    import torch
    from torch.nn.functional import cross_entropy, normalize

    options = {"lr": 1e-4, "epochs": EPOCHS, "batch_size": BATCH, "view_area": 1.0, "seed": SEED}
    fitted = methods.create("last_layer", **options).fit(task)
    assert task.encoder is not None
    mine = fitted.logits(fitted.encoder_for(task.encoder).encode(_centres(task)))
    towers = task.encoder.towers(copy=True)
    trained = towers.parameters(towers.last_layer_prefixes)
    for parameter in trained.values():
        parameter.requires_grad_(True)
    per_epoch = -(-task.n // BATCH)
    optimizer = torch.optim.Adam(trained.values(), lr=1e-4, eps=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * per_epoch)
    rows, y = to_torch(task.text.rows), to_torch(task.y)
    preprocess = replace(task.encoder.preprocess, view_area=1.0)
    with Batches(task.images, preprocess, SEED) as batches:
        for epoch in range(EPOCHS):
            for batch in _order(task.n, epoch):
                optimizer.zero_grad()
                pixels = preprocess.normalise(to_torch(batches.get(batch.tolist(), epoch)))
                images = normalize(towers.embed_image(pixels), dim=1)
                cross_entropy(task.scale * images @ rows.T, y[batch]).backward()
                optimizer.step()
                schedule.step()
    with torch.no_grad():
        seen = towers.embed_image(preprocess.normalise(to_torch(_centres(task))))
    return mine, to_numpy(task.scale * normalize(seen, dim=1) @ rows.T)


def _centres(task: TowerTask) -> Array:
    assert task.encoder is not None
    return np.stack([task.encoder.preprocess.centre(picture) for picture in task.images])


def _order(images: int, epoch: int) -> list[Tensor]:
    """The batches of an epoch, in the order that our training draws too."""
    import torch

    order = torch.randperm(images, generator=torch.Generator().manual_seed(SEED * 1_000_003 + epoch))
    return list(order.split(BATCH))


TOWERS: dict[str, Callable[[TowerTask], Pair]] = {
    "coop": coop,
    "kgcoop": kgcoop,
    "prograd": prograd,
    "last_layer": last_layer,
}
