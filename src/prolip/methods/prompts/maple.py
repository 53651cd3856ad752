"""MaPLe: prompts in both towers, coupled (Khattak et al., 2023). Vision transformers only.

Text side: M learned words p_0 in front of "of a [name]."; at the entry of each of the first J - 1 blocks
after the first, their places are filled anew with learned p_1 .. p_{J-1} [M, De]. Image side: a linear map of
each p_j makes M visual tokens F_j(p_j), put behind the patches on entry and filled anew likewise:

    image tokens on entry to block j:   [class, patches, F_j(p_j)],     j = 0 .. J - 1

All p_j and F_j are trained by cross-entropy, through both towers. J = 1 is the shallow variant.

Defaults are the authors': M = 2, the first two words of "a photo of a" (p_1 and on from N(0, 0.02)), J = 9,
SGD at 0.0035, batches of 4, 5 epochs, crops of 0.08 to 1 of the picture. `shared` uses one map F for all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from prolip.core import Fitted, Head, InputError, Task, Text, UsageError
from prolip.core.arrays import as_features, unit_rows
from prolip.core.files import sha256_tensors
from prolip.encoders import Encoder
from prolip.encoders.towers import CLASS_TOKEN, IMAGE, WORDS, Towers
from prolip.methods.base import Progress
from prolip.methods.prompts.base import PromptTuning
from prolip.methods.prompts.fitted import other_names, prompts_of
from prolip.methods.prompts.words import Prompts, phrase_embedding
from prolip.methods.towers import Batches
from prolip.methods.training import Batch


@dataclass(frozen=True)
class MaPLe(PromptTuning):
    """Coupled prompts in both towers.

    Parameters
    ----------
    contexts
        M.
    depth
        J: how many blocks of each tower get prompts of their own; 1 is the shallow variant.
    init
        A phrase whose first words the context starts as; the others stay in the prompt.
    shared
        One coupling map for all depths, instead of one for each.
    """

    contexts: int = 2
    depth: int = 9
    init: str = "a photo of a"
    shared: bool = False
    lr: float = 0.0035
    epochs: int | None = 5
    batch_size: int = 4
    view_area: float = 0.08

    name: ClassVar[str] = "maple"
    summary: ClassVar[str] = "coupled prompts in both towers (vision transformers only)"
    size: ClassVar[str] = "J (M x De + (De + 1) width)"
    needs: ClassVar[tuple[str, ...]] = (WORDS, IMAGE, CLASS_TOKEN)
    reads_pictures: ClassVar[bool] = True

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Coupled:
        """Train the prompts through both towers of a copy."""
        started = time.perf_counter()
        task, encoder, towers = self.open(task, copy=True)
        names = task.text.classes
        assert names is not None
        device = encoder.device
        coupling = self._coupling(encoder, towers, names[0]).to(device)
        fixed = " ".join(self.init.split()[self.contexts :])
        prompts = Prompts.build(encoder, towers, names, self.contexts, "end", fixed)
        labels = task.y.to(device)
        preprocess = replace(encoder.preprocess, view_area=self.view_area)
        with Batches(task.pictures, preprocess, self.seed) as batches:

            def loss(batch: Batch) -> Tensor:
                pixels = preprocess.normalise(batches.of(batch).to(device))
                images = unit_rows(towers.embed_image(pixels).float())
                rows = text_rows(prompts, coupling)
                return nn.functional.cross_entropy(task.scale * images @ rows.T, labels[batch.images])

            with see_prompts(towers, coupling):
                figures = self.train(task, towers, dict(coupling.named_parameters()), loss, progress)
        coupling.requires_grad_(False)
        described = {"contexts": self.contexts, "position": "end", "fixed": fixed}
        info = self.report(task, started, prompt=described, **figures)
        with torch.no_grad():
            rows = text_rows(prompts, coupling).cpu()
        state = {name: tensor.cpu() for name, tensor in coupling.state_dict().items()}
        return Coupled(Text(rows, names), task.scale, state, info=info).bind(encoder)

    def parameters(self, task: Task) -> int:
        """Prompts and maps."""
        _, encoder, towers = self.open(task)
        return sum(p.numel() for p in self._coupling(encoder, towers, "cat").parameters())

    def _coupling(self, encoder: Encoder, towers: Towers, name: str) -> Coupling:
        assert towers.words is not None
        deepest = min(len(towers.image_blocks), len(towers.text_blocks))
        if not 1 <= self.depth <= deepest:
            raise UsageError(f"depth must be 1 to {deepest}, the blocks of {encoder.name}, got {self.depth}")
        phrase = phrase_embedding(encoder, towers, self.init, name)
        if len(phrase) < self.contexts:
            raise UsageError(f"{self.init!r} has {len(phrase)} tokens, fewer than contexts={self.contexts}")
        width = _width(towers)
        with torch.random.fork_rng([]):
            torch.manual_seed(self.seed)
            coupling = Coupling(self.contexts, self.depth, phrase.shape[1], width, self.shared)
        with torch.no_grad():
            coupling.prompts[0].copy_(phrase[: self.contexts])
        return coupling


def _width(towers: Towers) -> int:
    """Of the image tower's tokens."""
    norm: Any = next(m for m in towers.image_blocks[0].modules() if isinstance(m, nn.LayerNorm))
    return int(norm.normalized_shape[0])


class Coupling(nn.Module):
    """Text prompts of each depth, and the maps that make visual ones of them."""

    def __init__(self, contexts: int, depth: int, words: int, width: int, shared: bool) -> None:
        super().__init__()
        self.prompts = nn.ParameterList(
            nn.Parameter(0.02 * torch.randn(contexts, words)) for _ in range(depth)
        )
        self.maps = nn.ModuleList(nn.Linear(words, width) for _ in range(1 if shared else depth))

    @classmethod
    def of(cls, state: dict[str, Tensor]) -> Coupling:
        """From its tensors."""
        depth = sum(name.startswith("prompts.") for name in state)
        maps = sum(name.endswith(".bias") for name in state)
        (contexts, words), width = state["prompts.0"].shape, len(state["maps.0.bias"])
        made = cls(contexts, depth, words, width, shared=maps == 1 and depth > 1)
        made.load_state_dict(state)
        return made.requires_grad_(False)

    def visual(self, depth: int) -> Tensor:
        """Visual tokens [M, width] of a depth."""
        tokens: Tensor = self.maps[min(depth, len(self.maps) - 1)](self.prompts[depth])
        return tokens


def see_prompts(towers: Towers, coupling: Coupling) -> ExitStack:
    """Let the image tower see the visual prompts, until this is closed."""
    stack = ExitStack()

    def enter(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        prompts = coupling.visual(0).to(args[0].dtype).expand(len(args[0]), -1, -1)
        return (torch.cat([args[0], prompts], dim=1), *args[1:])

    def again(depth: int) -> Any:
        def fill(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            prompts = coupling.visual(depth).to(args[0].dtype).expand(len(args[0]), -1, -1)
            return (torch.cat([args[0][:, : -prompts.shape[1]], prompts], dim=1), *args[1:])

        return fill

    assert towers.class_token is not None
    handles = [towers.class_token.register_forward_pre_hook(enter)]
    for depth in range(1, len(coupling.prompts)):
        handles.append(towers.image_blocks[depth].register_forward_pre_hook(again(depth)))
    for handle in handles:
        stack.callback(handle.remove)
    return stack


@contextmanager
def _read_prompts(prompts: Prompts, coupling: Coupling) -> Iterator[None]:
    """Fill the slots anew at the entry of each of the first text blocks after the first."""

    def again(depth: int) -> Any:
        def fill(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            hidden = args[0]  # [K, L, De]
            index = prompts.slots[:, :, None].expand(-1, -1, hidden.shape[2])
            words = coupling.prompts[depth].to(hidden.dtype).expand(len(hidden), -1, -1)
            return (hidden.scatter(1, index, words), *args[1:])

        return fill

    blocks = prompts.towers.text_blocks
    handles = [
        blocks[depth].register_forward_pre_hook(again(depth)) for depth in range(1, len(coupling.prompts))
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def text_rows(prompts: Prompts, coupling: Coupling) -> Tensor:
    """Unit rows [K, D] of the deep text prompts."""
    with _read_prompts(prompts, coupling):
        return prompts.embed(coupling.prompts[0])


@dataclass(frozen=True, eq=False)
class Coupled(Fitted):
    """Prompts in both towers; `logits` takes features of the tower that sees them."""

    kind: ClassVar[str] = "coupled"

    text: Text  # learned
    scale: float
    state: dict[str, Tensor]
    base: Encoder | None = None
    encoder: Encoder | None = None  # the one that sees the prompts
    info: dict[str, Any] = field(default_factory=dict)

    def logits(self, x: Any) -> Tensor:
        """Class scores [m, K] of features of the prompted tower."""
        if self.encoder is None:
            raise InputError("maple changed the image tower: bind the model to its encoder first")
        z = unit_rows(self.encoder.head(as_features(x, "features")))
        return self.scale * z @ self.text.rows.to(z.dtype).T

    def encoder_for(self, base: Any) -> Any:
        """The tower that sees the prompts."""
        return self.encoder or base

    def bind(self, encoder: Encoder) -> Coupled:
        """Show the prompts to a copy of the base model's image tower."""
        towers = encoder.towers(copy=True)
        see_prompts(towers, Coupling.of(self.state).to(encoder.device)).pop_all()
        seeing = encoder.with_model(towers.model, sha256_tensors(self.state.items()))
        return replace(self, base=encoder, encoder=seeing)

    def with_text(self, text: Any) -> Coupled:
        """The same prompts around other class names."""
        names = other_names(self, text)
        assert self.base is not None
        prompts = prompts_of(replace(self, encoder=self.base), names)
        with torch.no_grad():
            rows = text_rows(prompts, Coupling.of(self.state).to(self.base.device)).cpu()
        return replace(self, text=Text(rows, names))

    def tensors(self) -> dict[str, Tensor]:
        """Prompts and maps, and the class rows that they make."""
        return {"rows": self.text.rows, **self.state}

    @classmethod
    def restore(
        cls, tensors: dict[str, Tensor], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> Coupled:
        """Without the encoder, until it is bound to one."""
        state = {name: tensor for name, tensor in tensors.items() if name != "rows"}
        return cls(Text(tensors["rows"], text.classes), scale, state, info=info)
