"""AdaptedModel: one immutable value with everything that a fit computed, and the options of the fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from prolip import methods
from prolip.core import Fitted, Head, Projected, Task, Text, UsageError
from prolip.core.arrays import Array, softmax, to_python_scalar, unit_rows
from prolip.data import as_templates
from prolip.data.sampling import check_shots
from prolip.encoders import Encoder
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.out_of_distribution import FALSE_REJECT


@dataclass(frozen=True)
class Recipe:
    """The options of a fit, as the user gave them; they are used again when the model grows."""

    method: str = "anchored"
    lam: str | float | None = None  # of a method that has one; None is its default
    options: dict[str, Any] = field(default_factory=dict)  # further options of the method
    views: int = 1  # of each training image
    seed: int = 0  # for augmented views and folds
    templates: tuple[str, ...] = field(default_factory=lambda: tuple(as_templates(None)))
    calibrate: bool = True  # by cross-validation on the training images
    prompt_names: dict[str, str] = field(default_factory=dict)  # of classes that prompts name differently
    shots: int | None = None  # images per class that are sampled for the fit; None takes all

    def __post_init__(self) -> None:
        """Convert NumPy scalars to Python's, which can be saved, and check numbers."""
        for name in ("lam", "views", "seed", "shots"):
            object.__setattr__(self, name, to_python_scalar(getattr(self, name)))
        for name, number, least in (("views", self.views, 1), ("seed", self.seed, 0)):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise UsageError(f"{name} must be an integer of at least {least}, got {number!r}")
        check_shots(self.shots)
        if not isinstance(self.options, Mapping):
            raise UsageError(f"options must be a mapping of names to values, got {self.options!r:.80}")
        options = {name: to_python_scalar(value) for name, value in self.options.items()}
        object.__setattr__(self, "options", options)

    def prompt_names_of(self, classes: Sequence[Any]) -> list[str]:
        """Return what prompts call each class; refuse a name that another class still has in them."""
        names = list(map(str, classes))
        taken = {self.prompt_names[name]: name for name in names if name in self.prompt_names}
        if twice := next((name for name in names if name in taken and name not in self.prompt_names), None):
            raise UsageError(f"the prompts still call class {taken[twice]!r} {twice!r}: choose another name")
        return [self.prompt_names.get(name, name) for name in names]

    def params(self) -> dict[str, Any]:
        """Return the recipe as parameters of `FewShotClassifier`, with None for what is the default."""
        given = list(self.templates) if len(self.templates) > 1 else self.templates[0]
        return {
            "method": self.method,
            "lam": self.lam,
            "views": self.views,
            "seed": self.seed,
            "shots": self.shots,
            "templates": None if self.templates == tuple(as_templates(None)) else given,
            "options": dict(self.options) or None,
            "calibrate": self.calibrate,
        }

    def create(self) -> methods.Method:
        """Return the method with its options, which are checked once."""
        return self._method

    @cached_property
    def _method(self) -> methods.Method:
        options, takes = dict(self.options), methods.options(self.method)
        for name, value in (("lam", self.lam), ("seed", self.seed)):
            if value is not None and name in takes:
                options.setdefault(name, value)
        return methods.create(self.method, **options)


@dataclass(frozen=True, eq=False)
class Support:
    """The training images of a model."""

    hashes: tuple[bytes, ...]  # SHA-256 of each image's content
    task: Task | None  # features, labels and class texts; None if a model has no images, or no features
    skipped: tuple[tuple[str, str], ...] = ()  # (image, reason) of images that could not be read
    images: Sequence[Any] = ()  # for methods that train the encoder; never saved

    def require_task(self) -> Task:
        """Return the task; refuse a model that was saved without it."""
        if self.task is None:
            raise UsageError(
                "this model was saved without the features of its support set: fit it again from the images"
                if self.hashes
                else "this model has no training images, only class names: add images first"
            )
        return self.task


@dataclass(frozen=True, eq=False, repr=False)
class AdaptedModel:
    """A base model, and what a fit added to it."""

    encoder: Encoder  # the base model
    recipe: Recipe  # the options of the fit
    fitted: Fitted  # the fitted method, on features
    classes: tuple[Any, ...]  # the labels, in the order of the columns of `logits`
    text: Text  # their text rows, from the base model
    confidence: Confidence  # calibration, out-of-distribution scores and held-out figures
    support: Support  # the training images
    report: dict[str, Any]  # of the fit, for people to read

    def __repr__(self) -> str:
        size = f"{len(self.classes)} classes, {len(self.support.hashes)} images"
        return f"AdaptedModel({self.encoder.name}, {self.recipe.method}, {size})"

    @property
    def templates(self) -> list[str]:
        """The prompts of the class names."""
        return list(self.recipe.templates)

    def method(self) -> methods.Method:
        """Create the method; refuse to import a module that only a saved file names."""
        methods.require_trusted([self.recipe.method, self.recipe.options])
        return self.recipe.create()

    def logits(self, x: Array) -> Array:
        """Return calibrated logits [n, K] of features [n, width]."""
        return self.fitted.logits(x) / self.confidence.temperature

    def probabilities(self, x: Array) -> Array:
        """Return probabilities [n, K] of features [n, width]."""
        return softmax(self.logits(x))

    def embed(self, x: Array) -> Array:
        """Return unit embeddings [n, D] of features [n, width]; those of the base model if unchanged."""
        if isinstance(self.fitted, Projected):
            return self.fitted.embed(x)
        head: Head = self.fitted.encoder_for(self.encoder).head
        return unit_rows(head(x))

    def rejects(
        self, x: Array, best: Array, false_reject: float = FALSE_REJECT, false_accept: float | None = None
    ) -> Array:
        """Return which features [n, width] are out-of-distribution, [n]; `best` [n] are predicted classes."""
        out_of_distribution = self.confidence.out_of_distribution
        if out_of_distribution is None:
            raise UsageError(
                "this model cannot reject images: it was fitted without calibration, or by a method that "
                "trains the encoder"
            )
        threshold = out_of_distribution.threshold(false_reject, false_accept)
        return out_of_distribution.reject(x, self.encoder.head, best, threshold)

    def zero_shot(self) -> Projected:
        """Return the model before the fit, with the same class texts."""
        return Projected(self.encoder.head, self.text, self.encoder.scale)
