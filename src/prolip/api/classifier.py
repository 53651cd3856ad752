"""FewShotClassifier: an adapted model as an estimator like those of scikit-learn."""

from __future__ import annotations

import inspect
import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip import encoders
from prolip.api import predict as prediction
from prolip.api import save as saving
from prolip.api.inputs import Labelled
from prolip.api.model import AdaptedModel, Recipe
from prolip.api.predict import PredictOptions
from prolip.api.support import ImageSource, ReadOptions, open_store
from prolip.core import Fitted, Projected, UsageError
from prolip.core.arrays import Array, log_softmax, softmax
from prolip.core.errors import not_fitted
from prolip.data import as_templates
from prolip.encoders import Encoder
from prolip.encoders.base import check_device
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.out_of_distribution import FALSE_REJECT
from prolip.features import Extraction
from prolip.io.progress import Progress, ProgressBars

# What a prediction does not need is imported where it is used: a saved model then starts sooner.
if TYPE_CHECKING:
    from prolip.api.check import Check
    from prolip.api.evaluate import Report
    from prolip.evaluate.comparison import Candidate, Comparison
    from prolip.evaluate.curve import Curve
    from prolip.evaluate.suggestions import Suggestion


LOGGER = logging.getLogger("prolip")


class TrainingImagesWarning(UserWarning):
    """A model is evaluated on images that it was fitted on."""


class FewShotClassifier:
    """A classifier of images that learns from a few of each class; an estimator like those of scikit-learn.

    Everything that a fit computes is one immutable value, `model_`.

    Parameters
    ----------
    model
        The encoder: "offline", "clip" (or another name that `prolip models` lists), "onnx:ID-or-PATH",
        "open_clip:ARCH/TAG", "open_clip:local-dir:PATH", "hf:ID-or-PATH", or a loaded encoder.
    method
        A name of `prolip.methods.names()`, or "package.module:Class" for one of your own.
    lam
        Weight of the penalty of a method that has one: for `prolip`, "1/N", "1/N^2" or a number. None is the
        method's default.
    views
        Views of each training image: the centre crop, and views - 1 augmented ones.
    seed
        Random seed for sampling, augmented views and folds.
    shots
        Images per class to sample for the fit; None takes all.
    templates
        A prompt with a `{}` for the class name, or several; or the name of a dataset, for its prompts.
    device
        Where the encoder runs: "auto", "cpu", "cuda" or "mps".
    store
        Where features are stored: a folder, None for the user's cache, False for nowhere.
    skip_bad
        Skip images that cannot be read (`skipped_` lists them), a number at most this fraction of all.
    options
        Further options of the method.
    calibrate
        Cross-validate on the training images, and calibrate probabilities.
    verbose
        Whether to draw progress bars; None draws them in a terminal or a notebook, for what takes more than
        two seconds. A `progress` of a method, called with (done, total), replaces its bar. The logger
        "prolip" has a line for each fit.
    download
        Whether `model` may be downloaded, if it is a short name like "clip" that is not on this machine.

    Attributes
    ----------
    model_
        The `AdaptedModel`; `classes_`, `fitted_`, `info_`, `confidence_` and `skipped_` are parts of it.
    added_
        What the last `add` changed: `added_classes`, `added_images`, and the held-out accuracy of the old
        classes, `old_accuracy_before` and `old_accuracy`.

    Examples
    --------
    >>> clf = FewShotClassifier(shots=4).fit("photos/train")            # doctest: +SKIP
    >>> clf.predict(["cat.jpg"])                                        # doctest: +SKIP
    array(['cat'], dtype='<U3')
    """

    model_: AdaptedModel
    added_: dict[str, Any]

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
        device: str = "auto",
        store: str | Path | bool | None = None,
        skip_bad: bool | float = False,
        options: dict[str, Any] | None = None,
        calibrate: bool = True,
        verbose: bool | None = None,
        download: bool = False,
    ) -> None:
        self.model = model
        self.method = method
        self.lam = lam
        self.views = views
        self.seed = seed
        self.shots = shots
        self.templates = templates
        self.device = device
        self.store = store
        self.skip_bad = skip_bad
        self.options = options
        self.calibrate = calibrate
        self.verbose = verbose
        self.download = download

    # Fitting

    def fit(
        self,
        images: Any = None,
        labels: Any = None,
        *,
        image_column: str | None = None,
        label_column: str | None = None,
        classes: Sequence[str] | None = None,
        unlabelled: Any = None,
        progress: Progress | None = None,
        training: Progress | None = None,
    ) -> FewShotClassifier:
        """Learn the classes of a folder, or of images and labels; an error leaves the old model in place.

        Parameters
        ----------
        images
            A folder per class, a table, an archive, a dataset or a data frame (docs/guides/data.md); or
            several paths, bytes, PIL images or arrays, with `labels`, as a mapping {label: images}, or as
            pairs [(image, label), ...] or `zip(images, labels)`.
        labels
            One per image, names or numbers; None where `images` have labels.
        image_column, label_column
            The columns of a table, a dataset or a frame, where they are not recognised.
        classes
            Names of classes, in place of images: a zero-shot model, which learns from images that `add` gets.
        unlabelled
            Further images, of any class or none, used if they help held-out labelled images;
            `info_["unlabelled"]` has the evidence.
        progress
            Called with (done, total) images as they are encoded; `training` with steps of training.
        """
        from prolip.api.fit import fit_images, fit_names

        if (images is None) == (classes is None):
            raise UsageError("give labelled images, or classes without images")
        if classes is not None:
            self.model_ = fit_names(*self._prepare(), classes)
            return self
        columns = {"image_column": image_column, "label_column": label_column}
        source, recipe, labelled = self._begin(images, labels, **columns)
        started = time.perf_counter()
        with ProgressBars(self.verbose) as bars:
            self.model_ = fit_images(
                source, recipe, labelled, unlabelled=unlabelled,
                progress=bars.bar("encoding images", progress), training=bars.bar("training", training),
            )  # fmt: skip
        LOGGER.info(
            "fitted %s on %d images of %d classes in %.1f s, held-out accuracy %s", self.method,
            self.info_["images"], len(self.model_.classes), time.perf_counter() - started,
            self.confidence_.figures.accuracy,
        )  # fmt: skip
        return self

    def compare(
        self,
        images: Any,
        labels: Any = None,
        *,
        candidates: Sequence[Candidate | str] | None = None,
        models: Sequence[str | Encoder] | None = None,
        progress: Progress | None = None,
        fitting: Progress | None = None,
    ) -> Comparison:
        """Compare methods on images as `fit` takes them, and recommend one; `model_` does not change.

        `candidates` are compared with the default; None is every method that trains no tower. `models` are
        compared too, in place of `model`, the preferred one first. `fitting` is called with (done, total)
        methods of each.
        """
        from prolip.api.compare import compare

        with ProgressBars(self.verbose) as bars:
            return compare(
                [self.model] if models is None else models,
                lambda model: ImageSource(self._encoder(model), self.reading),
                self._recipe(),
                lambda source: source.labelled(images, labels, "train"),
                candidates=candidates,
                download=self.download,
                progress=bars.bar("encoding images", progress),
                fitting=bars.bar("comparing methods", fitting),
            )

    # Prediction

    def predict(
        self,
        images: Any,
        *,
        reject: bool = False,
        false_reject: float = FALSE_REJECT,
        false_accept: float | None = None,
        progress: Progress | None = None,
    ) -> Array:
        """Return the most probable class of each image; with `reject`, None if it is out-of-distribution.

        About the fraction `false_reject` of in-distribution images is rejected too; or, with `false_accept`,
        about that fraction of images of unknown classes is accepted.
        """
        options = PredictOptions(1, reject, false_reject, false_accept)
        x = self.features(images, progress=progress).features[0]
        found = prediction.predict(self._model(), x, options)
        labels = self.classes_[found.best]
        if found.rejected is not None:
            labels = labels.astype(object)
            labels[found.rejected] = None
        return labels

    def top_k(
        self, images: Any, k: int = 5, *, progress: Progress | None = None
    ) -> list[list[tuple[Any, float]]]:
        """Return the k most probable classes of each image with their probabilities, best first."""
        options = PredictOptions(k)
        x = self.features(images, progress=progress).features[0]
        found = prediction.predict(self._model(), x, options)
        return [
            [(found.classes[c], float(row[c])) for c in best]
            for best, row in zip(found.ranking, found.probabilities, strict=True)
        ]

    def predict_proba(self, images: Any, *, progress: Progress | None = None) -> Array:
        """Return probabilities [n, K], with columns as in `classes_`."""
        return softmax(self.decision_function(images, progress=progress))

    def predict_log_proba(self, images: Any, *, progress: Progress | None = None) -> Array:
        """Return logarithms of the probabilities [n, K]."""
        return log_softmax(self.decision_function(images, progress=progress))

    def decision_function(self, images: Any, *, progress: Progress | None = None) -> Array:
        """Return calibrated logits [n, K], whose softmax is `predict_proba`."""
        return self._model().logits(self.features(images, progress=progress).features[0])

    def transform(self, images: Any, *, progress: Progress | None = None) -> Array:
        """Return unit embeddings [n, D] of images, adapted by the fit.

        A method that does not change the projection leaves the embeddings of the base model.
        """
        return self._model().embed(self.features(images, progress=progress).features[0])

    def features(self, images: Any, *, progress: Progress | None = None) -> Extraction:
        """Compute the features of images, as `fitted_.logits` takes them."""
        model = self._model()
        with self._encoding(progress) as progress:
            return prediction.features(model, images, self.reading, progress)

    def zero_shot(self) -> Projected:
        """Return the model before the fit, with the same class texts."""
        return self._model().zero_shot()

    def score(self, images: Any, labels: Any = None, *, progress: Progress | None = None) -> float:
        """Return the accuracy on a folder (its test/ if it has one), or on images and labels."""
        return float(self._figures(images, labels, progress)["accuracy"])

    def evaluate(
        self, images: Any, labels: Any = None, *, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Compute `prolip.evaluate.Figures` on labelled images, as a dict; figures of each class by its name.

        `calibration_error_before` is that at temperature 1, before calibration; `calibration_error_floor`
        that of a perfectly calibrated model on as many images. `rejected` is the fraction that `predict` with
        `reject` would reject. `duplicates` is the number of images that the model was fitted on.
        """
        found = self._figures(images, labels, progress)
        classes = found.pop("classes")
        by_class = {name: dict(zip(classes, found[name], strict=True)) for name in ("per_class", "counts")}
        return {**found, **by_class}

    def _figures(self, images: Any, labels: Any, progress: Progress | None) -> dict[str, Any]:
        from prolip.api.evaluate import figures, predict_labelled

        model, labelled = self._model(), self._labelled(images, labels, "test")
        with self._encoding(progress) as progress:
            found = figures(model, predict_labelled(model, labelled, self.reading, progress))
        if found.duplicates:
            _warn_of_training_images(found.duplicates, found.images, stacklevel=4)
        return found.to_json()

    def report(self, images: Any = None, labels: Any = None, *, progress: Progress | None = None) -> Report:
        """Predict labelled images, and show figures, confusion matrix and mistakes.

        Training images are predicted by fits that did not see them; None takes all of these.
        """
        from prolip.api.evaluate import Report, figures, predict_held_out, predict_labelled

        model = self._model()
        if images is None:
            found = predict_held_out(model)
        else:
            labelled = self._labelled(images, labels, "test")
            with self._encoding(progress) as progress:
                found = predict_labelled(model, labelled, self.reading, progress, out_of_fold=True)
        if seen := int((found.in_support & ~found.held_out).sum()):
            _warn_of_training_images(seen, len(found.y))
        return Report(model.classes, figures(model, found), found)

    def check(
        self, images: Any, labels: Any = None, *, test: Any = None, progress: Progress | None = None
    ) -> Check:
        """Find wrong labels, duplicates, and images of no class among training images.

        They are found with the fitted model, or with a fit on these images if there is none. `test` are
        labelled test images, to find copies of them.
        """
        from prolip.api.check import check_images

        model = getattr(self, "model_", None)
        if model is None:
            source, recipe, train = self._begin(images, labels)
        else:
            source, recipe = ImageSource(model.encoder, self.reading), model.recipe
            train = self._labelled(images, labels, "train")
        other = None if test is None else source.labelled(test, None, "test", train.classes)
        with self._encoding(progress) as progress:
            return check_images(source, recipe, train, other, model=model, progress=progress)

    # Classes

    def rename(self, names: Mapping[str, str]) -> FewShotClassifier:
        """Rename classes, {old: new}; the prompts keep the old names, and no prediction changes."""
        from prolip.api.classes import rename_classes

        self.model_ = rename_classes(self._model(), names)
        return self

    # New images and classes

    def add(
        self,
        images: Any = None,
        labels: Any = None,
        *,
        names: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> FewShotClassifier:
        """Add images of new or known classes, and fit again; the old images are not needed.

        New classes follow the known ones. `names` are classes to add without images; if there are no images
        at all, nothing is fitted. `added_` has what changed.
        """
        from prolip.api import grow

        names = [names] if isinstance(names, str) else list(names)
        if images is None and not names:
            raise UsageError("nothing to add: give images, or names")
        if images is None:
            self.model_, self.added_ = grow.add_names(self._model(), names)
        else:
            more = self._labelled(images, labels, "train")
            with self._encoding(progress) as progress:
                self.model_, self.added_ = grow.add_images(self._model(), more, names, self.reading, progress)
        return self

    def learning_curve(self, *, progress: Progress | None = None) -> Curve:
        """Measure accuracy against images per class, and estimate it for more images."""
        from prolip.api import grow

        with ProgressBars(self.verbose) as bars:
            return grow.learning_curve(self._model(), bars.bar("fitting", progress))

    def suggest(self, images: Any, count: int = 10, *, progress: Progress | None = None) -> list[Suggestion]:
        """Suggest which unlabelled images to label next; `index` counts in `images`."""
        from prolip.api import grow

        with self._encoding(progress) as progress:
            return grow.suggest(self._model(), images, count, self.reading, progress)

    # Files

    def save(self, path: str | Path, *, support: bool = True, card: bool = False) -> None:
        """Write a folder that `load` reads, with a model card if `card`.

        With `support`, it has the features of the training images (0.5 MB for 200): the model can then grow
        without the images.
        """
        saving.save(self._model(), path, support=support, card=card)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        store: str | Path | bool | None = None,
        skip_bad: bool | float = False,
        verbose: bool | None = None,
        base: str | Encoder | None = None,
    ) -> FewShotClassifier:
        """Read a saved classifier.

        Its base model is not downloaded, unless `base` names it.
        """
        model = saving.load(path, device, base=base)
        clf = cls(
            model.encoder.name if base is None else base, **model.recipe.params(), device=device,
            store=store, skip_bad=skip_bad, verbose=verbose,
        )  # fmt: skip
        clf.model_ = model
        return clf

    def push_to_hub(
        self,
        name: str,
        *,
        private: bool = True,
        support: bool = False,
        example: Any = None,
        force: bool = False,
    ) -> str:
        """Upload the model with a card to the repository OWNER/NAME of the Hugging Face hub; return its URL.

        With `support`, the features of the training images go along, so that the model can grow elsewhere.
        `example` is an image to try on its page. A repository that has files needs `force`.
        """
        from prolip.api.push import push

        return push(self._model(), name, private, support, example, force)

    @classmethod
    def from_pretrained(cls, name: str, *, revision: str | None = None, **options: Any) -> FewShotClassifier:
        """Download a model that `push_to_hub` uploaded, and load it; `options` are those of `load`."""
        from prolip.api.push import fetch

        return cls.load(fetch(name, revision), **options)

    def export(
        self,
        path: str | Path,
        to: str | Sequence[str],
        *,
        force: bool = False,
        evaluation: dict[str, Any] | None = None,
        runtime: str | Path | None = None,
        single_file: bool = False,
        base_url: str | None = None,
        weights: str | None = None,
    ) -> list[str]:
        """Export the adapted model for other programs.

        `to` is "hf", "open_clip", "onnx", "web", or several of them.
        `evaluation`, from `evaluate`, replaces the held-out figures in the model card. For "web": `runtime`,
        a folder with the package onnxruntime-web that the page uses instead of a CDN; `single_file` puts
        everything into index.html; `base_url` is where the other files will be. For "hf" and "open_clip" of a
        model on ONNX graphs: `weights`, the same model in one of these libraries, like
        "hf:openai/clip-vit-base-patch32"; that of a short name is known, and used without `weights` if it was
        downloaded before.
        """
        from prolip.export.web import WebOptions

        web = WebOptions.of(runtime, single_file, base_url)
        targets = [to] if isinstance(to, str) or to is None else list(to)
        return saving.export(
            self._model(), path, targets, force=force, evaluation=evaluation, web=web, weights=weights
        )

    @property
    def reading(self) -> ReadOptions:
        """The options `store` and `skip_bad`."""
        return ReadOptions(open_store(self.store), self.skip_bad)

    def _begin(self, images: Any, labels: Any, **columns: str | None) -> tuple[ImageSource, Recipe, Labelled]:
        """Check the options, load the encoder, and read labelled images, in this order."""
        source, recipe = self._prepare()
        return source, recipe, source.labelled(images, labels, "train", **columns)

    def _prepare(self) -> tuple[ImageSource, Recipe]:
        """Check the options, and load the encoder."""
        recipe = self._recipe()
        return ImageSource(self._encoder(self.model), self.reading), recipe

    def _recipe(self) -> Recipe:
        """Check the options of a fit."""
        check_device(self.device)
        options = {} if self.options is None else self.options
        templates = tuple(as_templates(self.templates))
        recipe = Recipe(
            self.method, self.lam, options, self.views, self.seed, templates, self.calibrate, shots=self.shots
        )
        if hasattr(self, "model_") and self.model_.recipe.method == self.method:
            self.model_.method()  # the name may come from a file, and must be trusted
        recipe.create()
        return recipe

    def _encoder(self, model: str | Encoder) -> Encoder:
        """Return an encoder; that of the fitted model if it has the same name and device."""
        if isinstance(model, Encoder):
            return model
        known = self.model_.encoder if hasattr(self, "model_") else None
        if known is not None and known.name == model and self.device in ("auto", known.device):
            return known
        if not self.download:
            return encoders.load(model, self.device)
        with ProgressBars(self.verbose) as bars:
            progress = bars.bar("downloading", None)
            return encoders.load(model, self.device, download=True, progress=progress)

    @contextmanager
    def _encoding(self, progress: Progress | None) -> Iterator[Progress | None]:
        """Show a bar of encoded images, unless `progress` is called instead."""
        with ProgressBars(self.verbose) as bars:
            yield bars.bar("encoding images", progress)

    def _labelled(self, images: Any, labels: Any, split: str) -> Labelled:
        model = self._model()
        return ImageSource(model.encoder).labelled(images, labels, split, model.classes)

    # scikit-learn's protocol, without scikit-learn

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> FewShotClassifier:
        """Change parameters of the constructor, for the next fit."""
        for name, value in params.items():
            if name not in self.get_params():
                known = ", ".join(self.get_params())
                raise UsageError(f"{type(self).__name__} has no parameter {name!r}: it takes {known}")
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            "classifier",
            TargetTags(required=False),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False),
        )

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [
            f"{name}={value.name if isinstance(value, Encoder) else value!r}"
            for name, value in self.get_params().items()
            if value is not defaults[name].default and value != defaults[name].default
        ]
        fitted = ""
        if hasattr(self, "model_"):
            fitted = f", fitted on {self.info_['images']} images of {len(self.classes_)} classes"
        return f"<{type(self).__name__}({', '.join(changed)}){fitted}>"

    # Parts of the model

    @property
    def classes_(self) -> Array:
        """The labels [K], in the order of the columns of `predict_proba`."""
        classes = self._model().classes
        return np.array(classes, None if len(set(map(type, classes))) == 1 else object)

    @property
    def fitted_(self) -> Fitted:
        """The fitted method, on features."""
        return self._model().fitted

    @property
    def info_(self) -> dict[str, Any]:
        """The report of the fit."""
        return self._model().report

    @property
    def confidence_(self) -> Confidence:
        """Temperature, out-of-distribution scores, and figures on held-out training images."""
        return self._model().confidence

    @property
    def skipped_(self) -> list[tuple[str, str]]:
        """(image, reason) of every training image that could not be read."""
        return list(self._model().support.skipped)

    def _model(self) -> AdaptedModel:
        if not hasattr(self, "model_"):
            raise not_fitted("this classifier is not fitted yet: call fit first, or load a saved one")
        return self.model_


def _warn_of_training_images(seen: int, images: int, stacklevel: int = 3) -> None:
    warnings.warn(
        f"{seen} of {images} images are training images, and the accuracy is optimistic: "
        "`confidence_.figures` has that on held-out training images",
        TrainingImagesWarning,
        stacklevel=stacklevel,
    )
