"""MaPLe: prompts in both towers, coupled (Khattak et al., 2023). Vision transformers only.

Text side: M learned words p_0 in front of "of a [name]."; at the entry of each of the first J - 1 blocks
after the first, they are replaced by learned p_1 .. p_{J-1} [M, De]. Image side: a linear map of each p_j
makes M visual tokens F_j(p_j), which follow the patches on entry and are replaced likewise:

    image tokens on entry to block j:   [class, patches, F_j(p_j)],     j = 0 .. J - 1

All p_j and F_j are trained by cross-entropy, through both towers. J = 1 is the shallow variant.

Defaults are the authors': M = 2, the first two words of "a photo of a" (p_1 and on from N(0, 0.02)), J = 9,
SGD at 0.0035, batches of 4, 5 epochs, crops of 0.08 to 1 of the image. F_1 and on start as copies of one
map. `shared` uses one map F for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from prolip.core import Task, Text, UsageError
from prolip.core.arrays import to_numpy
from prolip.core.capabilities import Capability
from prolip.encoders import Encoder
from prolip.encoders.trainable_towers import Towers
from prolip.io.files import sha256_tensors
from prolip.methods.base import FitContext
from prolip.methods.registry import register
from prolip.research.towers.prompt_tuning import Layout, PromptTuning, phrase_embedding
from prolip.research.towers.tower_method import TowerFitted

if TYPE_CHECKING:
    from prolip.research.towers.coupled_prompts import Coupling


@register
@dataclass(frozen=True)
class MaPLe(PromptTuning):
    """Coupled prompts in both towers.

    Parameters
    ----------
    contexts
        The number of learned words M.
    depth
        The number J of blocks of each tower that get their own prompts; 1 is the shallow variant.
    init
        A phrase. The context starts as its first words; the others stay in the prompt.
    shared
        Use one coupling map for all depths, instead of one for each.
    view_area
        Minimum share of an image that a random crop shows.
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
    needs: ClassVar[Capability] = (
        Capability.TOKEN_EMBEDDINGS | Capability.IMAGE_TOWER | Capability.CLASS_TOKEN
    )
    reads_images: ClassVar[bool] = True

    def solve(self, task: Task, context: FitContext) -> TowerFitted:
        """Train the prompts through both towers of a copy."""
        task, towers = self.open(task, copy=True)
        encoder, names = task.encoder, task.names

        from prolip.research.towers.coupled_prompts import insert_prompts, text_rows

        coupling = self._coupling(encoder, towers, names[0]).to(encoder.device)
        layout = Layout(self.contexts, " ".join(self.init.split()[self.contexts :]))
        prompts = layout.prompts(encoder, names, towers)
        trained = dict(coupling.named_parameters())
        with insert_prompts(towers, coupling):
            rows = partial(text_rows, prompts, coupling)
            figures = self.train_on_images(task, towers, trained, rows, context.progress)
        coupling.requires_grad_(False)
        insert_prompts(towers, coupling).pop_all()  # they stay
        prompted = encoder.with_model(towers.model, sha256_tensors(coupling.state_dict().items()))

        def fitted(text: Text) -> TowerFitted:
            rows = text_rows(layout.prompts(encoder, text.classes or ()), coupling)
            learned = Text(to_numpy(rows), text.classes)
            return TowerFitted(prompted.head, learned, task.scale, fitted, prompted)

        return replace(fitted(task.text), report=figures)

    def _coupling(self, encoder: Encoder, towers: Towers, name: str) -> Coupling:
        from prolip.research.towers.coupled_prompts import Coupling

        deepest = min(len(towers.image_blocks), len(towers.text_blocks))
        if not 1 <= self.depth <= deepest:
            raise UsageError(f"depth must be 1 to {deepest}, the blocks of {encoder.name}, got {self.depth}")
        phrase = phrase_embedding(encoder, towers, self.init, name)
        if len(phrase) < self.contexts:
            raise UsageError(f"{self.init!r} has {len(phrase)} tokens, fewer than contexts={self.contexts}")
        return Coupling.start(phrase[: self.contexts], self.depth, towers, self.shared, self.seed)
