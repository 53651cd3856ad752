"""FewShotClassifier: an adapted model in scikit-learn's manner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip import encoders
from prolip.api import predict as prediction
from prolip.api import save as keep
from prolip.api.estimator import Estimator
from prolip.api.inputs import Labelled
from prolip.api.model import Recipe
from prolip.api.predict import PredictOptions
from prolip.api.support import ImageSource, Progress, ReadOptions, open_store
from prolip.core import Projected, UsageError
from prolip.core.arrays import Array, softmax
from prolip.data import as_templates
from prolip.data.descriptions import as_descriptions
from prolip.encoders import Encoder
from prolip.encoders.base import check_device
from prolip.evaluate.out_of_distribution import FALSE_REJECT
from prolip.features import Extraction

# What predicting does without is imported where it is used: a saved model then answers sooner.
if TYPE_CHECKING:
    from prolip.evaluate.comparison import Candidate, Comparison
    from prolip.evaluate.curve import Curve
    from prolip.evaluate.suggestions import Suggestion
    from prolip.evaluate.unlabelled import TransductivePredictions


class FewShotClassifier(Estimator):
    """A classifier of images, taught by a few of each class.

    The constructor stores, `fit` works. Everything that a fit makes is one immutable value, `model_`.

    Parameters
    ----------
    model
        The encoder: "offline", "open_clip:ARCH/TAG", "open_clip:local-dir:PATH", "hf:ID-or-PATH", or one that
        is loaded already; or "arrays" for embeddings that you bring.
    method
        A name of `prolip.methods.names()`, or "package.module:Class" for one of your own.
    lam
        Weight of the penalty of a method that has one: for `prolip`, "1/N", "1/N^2" or a number. None is the
        method's default.
    views
        Views of each support image: the centre crop, and views - 1 augmented ones.
    seed
        Of few-shot sampling, of augmented views and of folds.
    shots
        Images per class to sample for the fit; None takes all.
    templates
        A prompt with a `{}` for the class name, or several; or the name of a benchmark dataset, for its own.
    descriptions
        Sentences by class beside the templates, a mapping or a JSON or CSV file, weighted by their fit.
    device
        Of the towers: "auto", "cpu", "cuda" or "mps".
    store
        Where features are kept: a folder, None for the user's cache, False to keep none.
    skip_bad, exact_decode
        Go on past images that cannot be read (`skipped_` lists them), instead of stopping at the first;
        decode large images in full, which takes several times longer for all but the same answers.
    options
        Further options of the method.
    calibrate
        Cross-validate inside the support set after the fit, so that probabilities mean what they say.

    Attributes
    ----------
    model_
        The `AdaptedModel`; `classes_`, `fitted_`, `info_`, `confidence_` and `skipped_` are parts of it.

    Examples
    --------
    >>> clf = FewShotClassifier(shots=4).fit("photos/train")            # doctest: +SKIP
    >>> clf.predict(["cat.jpg"])                                        # doctest: +SKIP
    ['cat']
    """

    def __init__(
        self,
        model: str | Encoder = "offline",
        method: str = "anchored",
        lam: str | float | None = None,
        views: int = 1,
        seed: int = 0,
        *,
        shots: int | None = None,
        templates: str | Sequence[str] | None = None,
        descriptions: Mapping[str, Sequence[str]] | str | Path | None = None,
        device: str = "auto",
        store: str | Path | bool | None = None,
        skip_bad: bool = False,
        exact_decode: bool = False,
        options: dict[str, Any] | None = None,
        calibrate: bool = True,
    ) -> None:
        self.model = model
        self.method = method
        self.lam = lam
        self.views = views
        self.seed = seed
        self.shots = shots
        self.templates = templates
        self.descriptions = descriptions
        self.device = device
        self.store = store
        self.skip_bad = skip_bad
        self.exact_decode = exact_decode
        self.options = options
        self.calibrate = calibrate

    # Fitting

    def fit(
        self,
        images: Any,
        labels: Any = None,
        *,
        text: Any = None,
        unlabelled: Any = None,
        progress: Progress | None = None,
        training: Progress | None = None,
    ) -> FewShotClassifier:
        """Learn the classes of a folder, or of images and labels. A failure leaves what was there.

        Parameters
        ----------
        images
            A folder per class, a table, an archive, a dataset or a data frame (see docs/data.md); or several
            paths, bytes, PIL images or arrays. For model="arrays": embeddings [n, D], or a file of them.
        labels
            One per image, names or numbers; a folder brings its own.
        text
            For model="arrays": class rows [K, D].
        unlabelled
            Further images, of any class or none: what they add to the model is used where held-out labelled
            images say that it helps; `info_["unlabelled"]` tells.
        progress
            Called with (done, total) while images are encoded; `training` while a method takes its steps.
        """
        from prolip.api.fit import fit_images

        source, recipe, labelled = self._begin(images, labels, text)
        self.model_ = fit_images(
            source,
            recipe,
            labelled,
            shots=self.shots,
            unlabelled=unlabelled,
            progress=progress,
            training=training,
        )
        return self

    def compare(
        self,
        images: Any,
        labels: Any = None,
        *,
        text: Any = None,
        candidates: Sequence[Candidate | str] | None = None,
        progress: Progress | None = None,
        fitting: Progress | None = None,
    ) -> Comparison:
        """Methods side by side on images as `fit` takes them, and which to take; nothing is fitted here.

        `candidates` are held against the default; None is every method that trains no tower. `fitting` is
        called with (done, total) methods.
        """
        from prolip.api.compare import compare

        source, recipe, labelled = self._begin(images, labels, text)
        return compare(
            source,
            recipe,
            labelled,
            candidates=candidates,
            shots=self.shots,
            progress=progress,
            fitting=fitting,
        )

    # Using

    def predict(
        self,
        images: Any,
        *,
        reject: bool = False,
        false_reject: float = FALSE_REJECT,
        false_accept: float | None = None,
        transductive: bool = False,
    ) -> list[Any]:
        """The most probable class of each image; with `reject`, None where it seems to belong to no class.

        Of images that do belong, about the fraction `false_reject` is refused too; or, with `false_accept`,
        about that fraction of images of unknown classes is let pass. For `transductive`, see that method.
        """
        options = PredictOptions(1, reject, false_reject, false_accept, transductive=transductive)
        return prediction.predict(self._model(), self.features(images).features[0], options).labels

    def predict_proba(self, images: Any) -> Array:
        """Probabilities [n, K], columns as in `classes_`."""
        return softmax(self.logits(images))

    def transductive(self, images: Any, *, progress: Progress | None = None) -> TransductivePredictions:
        """Probabilities of images that are classified together, each by all the others too.

        Where held-out labelled images say that this is no help they are those of `predict_proba`; `evidence`
        tells which it was, and why.
        """
        x = self.features(images, progress=progress).features[0]
        return prediction.predict_transductive(self._model(), x)

    def logits(self, images: Any, *, progress: Progress | None = None) -> Array:
        """Scores [n, K], calibrated; a softmax of them is `predict_proba`."""
        return self._model().logits(self.features(images, progress=progress).features[0])

    def features(self, images: Any, *, progress: Progress | None = None) -> Extraction:
        """Features of images, of the centre view and the tower as fitted: what `fitted_.logits` reads."""
        return prediction.features(self._model(), images, self.reading, progress)

    def zero_shot(self) -> Projected:
        """The model before the fit, with the same class texts."""
        return self._model().zero_shot()

    def score(self, images: Any, labels: Any = None) -> float:
        """Accuracy on a folder (its test/ if it has one), or on images and labels."""
        return float(self.evaluate(images, labels)["accuracy"])

    def evaluate(
        self, images: Any, labels: Any = None, *, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Accuracy, zero-shot accuracy, accuracy of each class, calibration.

        `calibration_error_before` is that of the same model at the scale that it was fitted at, and
        `calibration_error_floor` what chance alone gives on so many images. `rejected` is the fraction that
        `predict` with `reject` would refuse. `duplicates` counts images that were in the support set too.
        """
        from prolip.api.evaluate import figures, predict_labelled

        model, labelled = self._model(), self._labelled(images, labels, "test")
        return figures(model, predict_labelled(model, labelled, self.reading, progress)).to_json()

    # Growing

    def add(
        self,
        images: Any = None,
        labels: Any = None,
        *,
        names: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Add images, of new classes or of known ones, and fit again; the old images are not needed.

        New classes come after those that are there. `names` are classes to add without an image; with no
        image at all nothing is fitted: the adapted model is asked about one more text.

        Returns what was added, and `old_accuracy_before` and `old_accuracy`: of old classes, held out.
        """
        from prolip.api import grow

        names = [names] if isinstance(names, str) else list(names)
        if images is None and not names:
            raise UsageError("nothing to add: give images, or names")
        if images is None:
            self.model_, report = grow.add_names(self._model(), names)
        else:
            more = self._labelled(images, labels, "train")
            self.model_, report = grow.add_images(self._model(), more, names, self.reading, progress)
        return report

    def learning_curve(self, *, progress: Progress | None = None) -> Curve:
        """Accuracy against images per class inside the support set, and what more images would bring."""
        from prolip.api import grow

        return grow.learning_curve(self._model(), progress)

    def suggest(self, images: Any, count: int = 10, *, progress: Progress | None = None) -> list[Suggestion]:
        """Which of these unlabelled images to label next; `index` counts in `images`."""
        from prolip.api import grow

        return grow.suggest(self._model(), images, count, self.reading, progress)

    # Keeping

    def save(self, path: str | Path, *, support: bool = True, card: bool = False) -> None:
        """Write a folder that `load` reads; with `card`, a model card goes along.

        With `support`, features go along (0.5 MB for 200 images): the model can grow without the old images.
        """
        keep.save(self._model(), path, support=support, card=card)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        store: str | Path | bool | None = None,
        skip_bad: bool = False,
        exact_decode: bool = False,
        base: str | Encoder | None = None,
        trust_base: bool = False,
    ) -> FewShotClassifier:
        """Read a saved classifier. A base that was never used here must be named, or the file trusted."""
        model = keep.load(path, device, base=base, trust_base=trust_base)
        params = asdict(model.recipe) | {"descriptions": model.recipe.descriptions or None}
        del params["prompt_names"]
        params |= {"store": store, "skip_bad": skip_bad, "exact_decode": exact_decode, "device": device}
        clf = cls(model.encoder, **params)
        clf.model_ = model
        return clf

    def export(
        self,
        path: str | Path,
        to: str | Sequence[str],
        *,
        force: bool = False,
        evaluation: dict[str, Any] | None = None,
    ) -> list[str]:
        """Write the adapted model for other programs: "hf", "open_clip", "adapter", "onnx", or several.

        `evaluation`, from `evaluate`, goes into the model card in the place of figures on held-out images.
        """
        targets = [to] if isinstance(to, str) or to is None else list(to)
        return keep.export(self._model(), path, targets, force=force, evaluation=evaluation)

    @property
    def reading(self) -> ReadOptions:
        """How images are read: `store`, `skip_bad` and `exact_decode`."""
        return ReadOptions(open_store(self.store), self.skip_bad, self.exact_decode)

    def _begin(self, images: Any, labels: Any, text: Any) -> tuple[ImageSource, Recipe, Labelled]:
        """What a fit starts from; wrong options are refused before a model is loaded."""
        check_device(self.device)
        options = {} if self.options is None else self.options
        texts = tuple(as_templates(self.templates)), as_descriptions(self.descriptions)
        recipe = Recipe(self.method, self.lam, options, self.views, self.seed, *texts, self.calibrate)
        if hasattr(self, "model_") and self.model_.recipe.method == self.method:
            self.model_.method()  # the name may be a file's, not the user's
        recipe.create()
        encoder = self.model if isinstance(self.model, Encoder) else encoders.load(self.model, self.device)
        source = ImageSource.of(encoder, self.reading)
        return source, recipe, source.labelled(images, labels, "train", text=text)

    def _labelled(self, images: Any, labels: Any, split: str) -> Labelled:
        model = self._model()
        return ImageSource.of(model.encoder).labelled(images, labels, split, model.classes)
