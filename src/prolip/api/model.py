"""AdaptedModel: one value that holds all that a fit made. It never changes; what follows a fit takes one and
returns another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from prolip import methods
from prolip.core import Fitted, Projected, Task, Text, UsageError
from prolip.core.arrays import Array, softmax, to_python_scalar
from prolip.core.capabilities import Capability
from prolip.data import as_templates
from prolip.encoders import Encoder
from prolip.encoders.precomputed import PrecomputedEmbeddings
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.out_of_distribution import FALSE_REJECT


class NoFeaturesError(UsageError):
    """A model was saved without the features of its support set."""

    def __init__(self) -> None:
        super().__init__(
            "this model was saved without the features of its support set: fit it again from the images"
        )


class PromptNameError(UsageError):
    """The prompts call the class `name` by the name of another class, `prompt_name`."""

    def __init__(self, name: str, prompt_name: str) -> None:
        super().__init__(
            f"the prompts still call class {name!r} {prompt_name!r}: rename it first, with retext=True"
        )
        self.name, self.prompt_name = name, prompt_name


@dataclass(frozen=True)
class Recipe:
    """How a model is fitted, and fitted again when it grows: what the user asked for, not what came of it."""

    method: str = "anchored"
    lam: str | float | None = None  # where the method takes one; None is its own default
    options: dict[str, Any] = field(default_factory=dict)  # further ones, of the method
    views: int = 1  # of each support image
    seed: int = 0  # of augmented views and of folds
    templates: tuple[str, ...] = field(default_factory=lambda: tuple(as_templates(None)))
    descriptions: dict[str, tuple[str, ...]] = field(default_factory=dict)  # sentences by class (`api.texts`)
    calibrate: bool = True  # cross-validate inside the support set after the fit
    prompt_names: dict[str, str] = field(default_factory=dict)  # of classes that prompts name differently

    def __post_init__(self) -> None:
        """Numbers of NumPy become Python's own, which can be saved."""
        for name in ("lam", "views", "seed"):
            object.__setattr__(self, name, to_python_scalar(getattr(self, name)))
        if not isinstance(self.options, Mapping):
            raise UsageError(f"options must be a mapping of names to values, got {self.options!r:.80}")
        options = {name: to_python_scalar(value) for name, value in self.options.items()}
        object.__setattr__(self, "options", options)

    def prompt_names_of(self, classes: Sequence[Any]) -> list[str]:
        """Return what prompts call each class; refuse a name that another class still has in them."""
        names = list(map(str, classes))
        taken = {self.prompt_names[name]: name for name in names if name in self.prompt_names}
        if twice := next((name for name in names if name in taken and name not in self.prompt_names), None):
            raise PromptNameError(taken[twice], twice)
        return [self.prompt_names.get(name, name) for name in names]

    def create(self) -> methods.Method:
        """Return the method with its options, which are checked once."""
        return self._method

    @cached_property
    def _method(self) -> methods.Method:
        for name, number, least in (("views", self.views, 1), ("seed", self.seed, 0)):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise UsageError(f"{name} must be an integer of at least {least}, got {number!r}")
        options, takes = dict(self.options), methods.options(self.method)
        for name, value in (("lam", self.lam), ("seed", self.seed)):
            if value is not None and name in takes:
                options.setdefault(name, value)
        method = methods.create(self.method, **options)
        own_texts = Capability.TEXT_FEATURES in method.needs
        if self.descriptions and (own_texts or method.trains_tower):
            raise UsageError(f"{self.method} makes texts of the templates itself: it takes no descriptions")
        return method


@dataclass(frozen=True, eq=False)
class Support:
    """What a model was fitted on."""

    hashes: tuple[bytes, ...]  # SHA-256 of each image's content
    task: Task | None  # features, labels and class texts; None where a saved model came without them
    skipped: tuple[tuple[str, str], ...] = ()  # (image, reason) of images that could not be read
    images: Sequence[Any] = ()  # the images themselves, loaded when a method trains on them; never saved

    def require_task(self) -> Task:
        """The task, or what to do without it."""
        if self.task is None:
            raise NoFeaturesError
        return self.task


@dataclass(frozen=True, eq=False, repr=False)
class AdaptedModel:
    """A base model and what it has learned."""

    encoder: Encoder  # the base model, as it was before the fit
    recipe: Recipe  # how it was fitted
    fitted: Fitted  # the fitted method, on features
    classes: tuple[Any, ...]  # the labels as the user has them; columns of `logits` are in this order
    text: Text  # their text rows, from the base model
    confidence: Confidence  # temperature, outsiders, and figures on held-out support images
    support: Support  # what it was fitted on
    report: dict[str, Any]  # figures of the fit, for people to read

    def __repr__(self) -> str:
        of = f"{len(self.classes)} classes, {len(self.support.hashes)} images"
        return f"AdaptedModel({self.encoder.name}, {self.recipe.method}, {of})"

    @property
    def templates(self) -> list[str] | None:
        """The prompts of the class names; None for embeddings, which have no text encoder."""
        return None if isinstance(self.encoder, PrecomputedEmbeddings) else list(self.recipe.templates)

    def method(self) -> methods.Method:
        """The method of the recipe, which may be a file's: no module is imported for being named there."""
        methods.require_trusted([self.recipe.method, self.recipe.options])
        return self.recipe.create()

    def logits(self, x: Array) -> Array:
        """Calibrated scores [n, K] of features [n, width]."""
        return self.fitted.logits(x) / self.confidence.temperature

    def probabilities(self, x: Array) -> Array:
        """Probabilities [n, K] of features [n, width]."""
        return softmax(self.logits(x))

    def rejects(
        self, x: Array, answers: Array, false_reject: float = FALSE_REJECT, false_accept: float | None = None
    ) -> Array:
        """Which of features [n, width], with these answers [n], seem to belong to no class: bool [n]."""
        out_of_distribution = self.confidence.out_of_distribution
        if out_of_distribution is None:
            raise UsageError(
                "nothing to reject by: the model was fitted without calibration, or by a method that changes "
                "the image tower"
            )
        threshold = out_of_distribution.threshold(false_reject, false_accept)
        return out_of_distribution.reject(x, self.encoder.head, answers, threshold)

    def zero_shot(self) -> Projected:
        """The model before the fit, with the same class texts."""
        return Projected(self.encoder.head, self.text, self.encoder.scale)
