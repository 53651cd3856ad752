"""CoOp and its variants: learn the words around the class name.

**CoOp** (Zhou et al., 2022). The prompt of class k is [w]_1 ... [w]_M [name k], its M words free vectors.
Through the frozen text tower it gives the row t_k(w), and the words minimise the cross-entropy of

    s * normalize(x W0 + b) T(w)'

The image tower is not touched, so its features are cached (one view of each image per epoch), and gradients
flow through the text tower alone.

Defaults are the authors': 16 words from N(0, 0.02), shared by all classes, in front of the name; SGD with
momentum at 0.002, weight decay 5e-4, batches of 32; 50, 100 or 200 epochs for 1, 2 to 4, or more shots; a
warm-up epoch, then a cosine. The paper counts K x M x De parameters, for a
context of each class.

With a validation set the best epoch is used (the first of equals). ImageNet has 50 epochs in any setting.
Their crops show 0.08 to 1 of the image, new ones in each epoch: `view_area=0.08` runs the image tower for
that, otherwise views come from the cache.

LP++'s authors, whose run Table 1 quotes, train 200 epochs by SGD without momentum or weight decay, at a rate
that falls at each step, to zero after 200 steps, and then rises and falls again; partial batches count, and
crops show 0.5 to 1 of the image: `program="lp++"`, `view_area=0.5`.

Difference from both programs: float32 (or bfloat16 on a GPU) instead of float16.

**KgCoOp** (Yao et al., 2023). CoOp's loss, and a penalty on the distance of each learned row t_k(w) from the
row u_k of the hand-written prompt:

    CE + weight * (1 - mean_k <t_k(w), u_k>),        weight = 8

The context starts as "a photo of a"; 100 epochs in batches of 128, as in the authors' scripts. Their u_k come
from a phrase of each dataset ("a photo of a {}, a type of texture." for DTD): `teacher`.

**ProGrad** (Zhu et al., 2023). A batch has two losses: the cross-entropy, with gradient g_a; and the
divergence of the prediction from that of the hand-written prompts, with gradient g_b. Where the two conflict,
the component of g_a against g_b is removed:

    g = g_a - lam * <g_a, g_b> / |g_b|^2 * g_b      if <g_a, g_b> < 0,      else g_a

The teacher's predictions are soft labels of a cross-entropy, which has the gradient of the divergence. The
context starts as zeros, with the phrase as its last words. In the authors' program teacher and phrase are
those of each dataset ("a type of pet, a photo of a {}."): `teacher`, `init`; and `late_conflict` is 0.8 on
Flowers, DTD and EuroSAT.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from prolip.core import Task, Text, UsageError
from prolip.core.arrays import Array, to_numpy, to_torch, unit_rows
from prolip.core.capabilities import Capability
from prolip.core.errors import check_name
from prolip.data import as_templates
from prolip.encoders import Encoder
from prolip.evaluate.metrics import accuracy
from prolip.methods.base import FitContext
from prolip.methods.registry import register
from prolip.research.towers.prompt_tuning import Layout, Prompts, PromptTuning, start_context
from prolip.research.towers.tower_method import TowerFitted, TowerTask
from prolip.solvers.adam import Steps

if TYPE_CHECKING:
    from torch import Tensor, nn

    from prolip.research.towers.training import Batch

_IMAGES_AT_ONCE = 32


@register
@dataclass(frozen=True)
class CoOp(PromptTuning):
    """Learned context words.

    Parameters
    ----------
    contexts
        The number of words M. None is 16, or the length of the phrase in `init`.
    init
        "random", or a phrase like "a photo of a".
    program
        The training recipe: "coop", or "lp++", that of LP++'s authors (SGD without momentum and weight decay,
        and 200 epochs unless `epochs` is given).
    """

    contexts: int | None = None
    init: str = "random"
    program: str = "coop"

    name: ClassVar[str] = "coop"
    summary: ClassVar[str] = "learn the words around the class name, through the text tower"
    size: ClassVar[str] = "M x De"
    needs: ClassVar[Capability] = Capability.TOKEN_EMBEDDINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("program", self.program, ("coop", "lp++"))
        if self.contexts is not None and self.contexts < 1:
            raise UsageError(f"contexts must be 1 or more, got {self.contexts}")

    def steps(self, task: Task) -> Steps:
        """Return the steps of CoOp's program, or of LP++'s."""
        steps = super().steps(task)
        if self.program == "lp++":
            epochs = 200 if self.epochs is None else self.epochs
            plain = {"momentum": 0.0, "decay": 0.0, "drop_last": False, "schedule": "lp++"}
            steps = replace(steps, epochs=epochs, **plain)  # type: ignore[arg-type]
        return steps

    def uses_validation(self) -> bool:
        """Return True: a validation set chooses the best epoch."""
        return True

    def solve(self, task: Task, context: FitContext) -> TowerFitted:
        """Learn the context on embeddings of images."""
        problem, validation, score = self.problem(task), context.validation, None
        if validation is not None:
            held_out = to_torch(self.embeddings(problem.encoder, validation)[0], problem.encoder.device)
            score = lambda: accuracy(self.logits(problem, problem.prompts, held_out), validation.y)  # noqa: E731
        loss = partial(self.loss, problem)
        figures = self.train(problem.task, problem.trained, loss, context.progress, score)
        return replace(self.fitted(problem, task.text), report=figures)

    def problem(self, task: Task) -> ContextProblem:
        """Return what is trained, and on what."""
        task, towers = self.open(task)
        encoder, names = task.encoder, task.names
        start, fixed = start_context(encoder, towers, names[0], self.contexts, self.init, self.seed)
        layout = Layout(len(start), fixed)
        prompts = layout.prompts(encoder, names, towers)
        template = getattr(self, "teacher", None)
        text = task.text if template is None else encoder.text(names, as_templates(template))
        labels, teacher = (to_torch(array, encoder.device) for array in (task.y, text.rows))
        trained, images, views = self.parameters_from(start, task), self.image_encoder(encoder), None
        if self.view_area is None:
            views = to_torch(self.embeddings(images, task), encoder.device)
        return ContextProblem(task, layout, prompts, trained, labels, teacher, images, views)

    def parameters_from(self, start: Tensor, task: TowerTask) -> dict[str, nn.Parameter]:
        """Return what is trained: the context, from these words [M, De]."""
        from torch import nn

        return {"context": nn.Parameter(start.clone())}

    def image_encoder(self, encoder: Encoder) -> Encoder:
        """Return the encoder of images: that of the task, or one of its local features."""
        return encoder

    def embeddings(self, encoder: Encoder, task: Task) -> Array:
        """Return the embeddings [V, n, ...] of the views of a task."""
        return self.embed(encoder, task.x)

    def embed(self, encoder: Encoder, x: Array) -> Array:
        """Return embeddings of features."""
        return unit_rows(encoder.head(x))

    def batch_embeddings(self, problem: ContextProblem, batch: Batch) -> Tensor:
        """Return the embeddings [B, ...] of a step's images: of a cached view, or of new crops."""
        if problem.views is not None:
            return problem.views[batch.epoch % len(problem.views), batch.images]
        x = problem.encoder.encode(batch.pixels)
        return to_torch(self.embed(problem.encoder, x), problem.encoder.device)

    def rows(self, problem: ContextProblem, prompts: Prompts) -> Any:
        """Return what stands for the classes of these prompts: text rows [K, D]."""
        return prompts.embed(problem.context)

    def scores(self, problem: ContextProblem, rows: Any, z: Tensor) -> Tensor:
        """Compute scores [B, K] of embeddings [B, ...] against the `rows` of classes."""
        scores: Tensor = problem.task.scale * z.to(rows.dtype) @ rows.T
        return scores

    def logits(self, problem: ContextProblem, prompts: Prompts, z: Tensor) -> Array:
        """Compute scores [m, K] of embeddings, a few images at a time."""
        from torch import no_grad

        with no_grad():
            rows = self.rows(problem, prompts)
            parts = [to_numpy(self.scores(problem, rows, part)) for part in z.split(_IMAGES_AT_ONCE)]
        return np.concatenate(parts)

    def loss(self, problem: ContextProblem, batch: Batch) -> Tensor:
        """Compute the cross-entropy of a batch."""
        return self.cross_entropy(problem, self.rows(problem, problem.prompts), batch)

    def cross_entropy(self, problem: ContextProblem, rows: Any, batch: Batch) -> Tensor:
        """Compute the cross-entropy of a batch against the `rows` of classes."""
        from torch.nn.functional import cross_entropy

        logits = self.scores(problem, rows, self.batch_embeddings(problem, batch))
        return cross_entropy(logits, problem.labels[batch.images])

    def fitted(self, problem: ContextProblem, text: Text) -> TowerFitted:
        """Return the model with text rows of these classes."""
        task, layout = problem.task, problem.layout
        rows = Text(to_numpy(self.rows(problem, problem.prompts_of(text)).detach()), text.classes)
        words = to_numpy(problem.context.detach())
        for_text = partial(self.fitted, problem)
        return TowerFitted(task.linear, rows, task.scale, for_text, context=words, layout=layout)

    def fitted_by_scores(self, problem: ContextProblem, text: Text) -> TowerFitted:
        """Return the model of these classes, where it is more than text rows."""
        task, encoder, prompts = problem.task, problem.encoder, problem.prompts_of(text)

        def scores(x: Array) -> Array:
            return self.logits(problem, prompts, to_torch(self.embed(encoder, x), encoder.device))

        for_text = partial(self.fitted_by_scores, problem)
        return TowerFitted(task.linear, text, task.scale, for_text, encoder, scores)


@register
@dataclass(frozen=True)
class KgCoOp(CoOp):
    """Learned context words, guided by hand-written prompts.

    Parameters
    ----------
    weight
        Weight of the penalty.
    teacher
        The hand-written prompt, with a `{}` for the class name; None: those of the task.
    """

    init: str = "a photo of a"
    epochs: int | None = 100
    batch_size: int = 128
    weight: float = 8.0
    teacher: str | None = None

    name: ClassVar[str] = "kgcoop"
    summary: ClassVar[str] = "CoOp with class texts that stay near the hand-written ones"

    def loss(self, problem: ContextProblem, batch: Batch) -> Tensor:
        """Compute the cross-entropy plus the penalty."""
        rows: Tensor = self.rows(problem, problem.prompts)
        distance = 1 - (rows * problem.teacher).sum(dim=1).mean()
        return self.cross_entropy(problem, rows, batch) + self.weight * distance


@register
@dataclass(frozen=True)
class ProGrad(CoOp):
    """Learned context words that do not move against the zero-shot model.

    Parameters
    ----------
    conflict
        The share of a conflicting component that is removed: 1 is all of it.
    late_conflict
        The same from 8 shots on; None: no other.
    teacher
        The hand-written prompt, with a `{}` for the class name; None: those of the task.
    """

    contexts: int | None = 16
    init: str = "a photo of a"
    conflict: float = 1.0
    late_conflict: float | None = None
    teacher: str | None = None

    name: ClassVar[str] = "prograd"
    summary: ClassVar[str] = "CoOp, without steps that go against the zero-shot predictions"

    def loss(self, problem: ContextProblem, batch: Batch) -> Tensor:
        """Return the cross-entropy of a batch, with the projected gradient in the place of its own."""
        from torch.autograd import grad
        from torch.nn.functional import cross_entropy

        late = self.late_conflict is not None and problem.task.shots >= 8
        z, context = self.batch_embeddings(problem, batch), problem.context
        logits = self.scores(problem, self.rows(problem, problem.prompts), z)
        loss = cross_entropy(logits, problem.labels[batch.images])
        soft_labels = self.scores(problem, problem.teacher, z).softmax(dim=1)
        (own,) = grad(loss, context, retain_graph=True)
        (general,) = grad(cross_entropy(logits, soft_labels), context)
        gradient = project(own, general, self.late_conflict if late else self.conflict)  # type: ignore[arg-type]
        value: Tensor = loss.detach() + (gradient * (context - context.detach())).sum()
        return value


def project(own: Tensor, general: Tensor, conflict: float = 1.0) -> Tensor:
    """Remove the component of `own` against `general`, if there is one.

    Examples
    --------
    >>> import numpy as np
    >>> project(np.array([1.0, -1.0]), np.array([0.0, 2.0])).tolist()
    [1.0, 0.0]
    """
    along = (own * general).sum()
    if along < 0:
        own = own - conflict * along / (general * general).sum() * general
    return own


@dataclass(frozen=True, eq=False)
class ContextProblem:
    """Image embeddings, prompts, and what is learned, on the encoder's device."""

    task: TowerTask
    layout: Layout  # to build the same prompts with other class names
    prompts: Prompts
    trained: dict[str, nn.Parameter]  # the context [M, De], and more where a method has more
    labels: Tensor
    teacher: Tensor  # hand-written text rows [K, D]
    encoder: Encoder  # of the images
    views: Tensor | None  # embeddings [V, n, ...] of cached views; None: new crops in each epoch

    @property
    def context(self) -> nn.Parameter:
        """The words that are learned."""
        return self.trained["context"]

    def prompts_of(self, text: Text) -> Prompts:
        """Return the same prompts of other classes."""
        return self.layout.prompts(self.task.encoder, text.classes or ())
