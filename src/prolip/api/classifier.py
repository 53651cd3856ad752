"""FewShotClassifier: an adapted model as an estimator like those of scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip import encoders
from prolip.api import predict as prediction
from prolip.api import save as saving
from prolip.api.inputs import ReadOptions, as_images, encode, open_store, read_labelled
from prolip.api.model import AdaptedModel
from prolip.api.predict import PredictOptions
from prolip.api.recipe import RECIPE, Parameters, Recipe
from prolip.core import Fitted, InputError, Task, UsageError
from prolip.core.arrays import Array, softmax
from prolip.core.errors import NotFittedError, Parameter, as_path
from prolip.data import ImageSet
from prolip.encoders import Encoder
from prolip.encoders.base import check_device
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.out_of_distribution import FALSE_REJECT
from prolip.export.saved import manifest_checksum
from prolip.features import Extraction
from prolip.io.progress import Bar, Progress, ProgressBars

# What a prediction does not need is imported where it is used: a saved model then starts sooner.
if TYPE_CHECKING:
    from prolip.api.check import Check
    from prolip.api.evaluate import Report
    from prolip.evaluate.comparison import Candidate, Comparison
    from prolip.evaluate.curve import Curve
    from prolip.evaluate.suggestions import Suggestion


class TrainingImagesWarning(UserWarning):
    """A model is evaluated on images that it was fitted on."""


class FewShotClassifier(Parameters):
    """A classifier of images that learns from a few of each class; an estimator like those of scikit-learn.

    Everything that a fit computes is one immutable value, `model_`. Images come as docs/guides/data.md says:
    a folder, a table, an archive, a dataset, a data frame; or several paths, bytes, PIL images or arrays.

    {parameters}

    Attributes
    ----------
    model_
        The `AdaptedModel`; `classes_`, `fitted_`, `info_`, `confidence_` and `skipped_` are parts of it.
    added_
        What the last `add` changed: `added_classes`, `added_images`, and the held-out accuracy of the old
        classes, `old_accuracy_before` and `old_accuracy`.
    saved_
        The folder that the model was loaded from or saved in, and the checksum of the model there.

    Examples
    --------
    >>> clf = FewShotClassifier(shots=4).fit("photos/train")            # doctest: +SKIP
    >>> clf.predict(["cat.jpg"])                                        # doctest: +SKIP
    array(['cat'], dtype='<U3')
    """

    model_: AdaptedModel
    added_: dict[str, Any]
    saved_: tuple[Path, str | None] | None = None

    # Fitting

    def fit(
        self,
        images: Any = None,
        labels: Any = None,
        groups: Any = None,
        *,
        image_column: str | None = None,
        label_column: str | None = None,
        classes: Sequence[str] | None = None,
        unlabelled: Any = None,
    ) -> FewShotClassifier:
        """Learn the classes of a folder, or of images and labels; an error leaves the old model in place.

        Parameters
        ----------
        images
            Labelled images: a source that has labels, a mapping {label: images}, pairs as of
            `zip(images, labels)`, or images alone with `labels`.
        labels
            One per image, names or numbers; None where `images` have labels.
        groups
            The group of each image, where some are alike (photos of one animal): a group stays in one fold.
        image_column, label_column
            The columns of a table, a dataset or a frame, where they are not recognised.
        classes
            Names of classes, in place of images: a zero-shot model, which learns from images that `add` gets.
        unlabelled
            Further images, of any class or none, used if they help held-out labelled images;
            `info_["unlabelled"]` has the evidence.
        """
        from prolip.api.fit import fit_names, fit_support, read_support, use_unlabelled

        if (images is None) == (classes is None):
            raise UsageError("give labelled images, or classes without images")
        recipe, encoder = self._recipe(), self._encoder(self.model)
        if unlabelled is not None and not recipe.calibrate:
            raise UsageError(
                "held-out images say whether unlabelled ones help: they cannot be used with ",
                Parameter("calibrate", False),
            )
        if classes is not None:
            self.model_ = fit_names(encoder, recipe, classes)
            return self
        labelled = read_labelled(
            images, labels, groups, split="train", image_column=image_column, label_column=label_column
        )
        with progress_bars(self.progress) as bar:
            encoding = bar("encoding images")
            support = read_support(encoder, labelled, recipe, self.reading, encoding)
            model = fit_support(encoder, recipe, labelled.classes, support, bar("training", "steps"))
            if unlabelled is not None:
                model = use_unlabelled(model, unlabelled, self.reading, encoding)
            self.model_ = model
        return self

    def compare(
        self,
        images: Any,
        labels: Any = None,
        groups: Any = None,
        *,
        candidates: Sequence[Candidate | str] | None = None,
        models: Sequence[str | Encoder] | None = None,
    ) -> Comparison:
        """Compare methods on images as `fit` takes them, and recommend one; `model_` does not change.

        `candidates` are compared with the default; None is every method that trains no tower. `models` are
        compared too, in place of `model`, the preferred one first.
        """
        from prolip.api.fit import read_support
        from prolip.evaluate.comparison import DEFAULT, Candidate, compare_models

        recipe, labelled = self._recipe(), read_labelled(images, labels, groups, split="train")
        for name, values in (("candidates", candidates), ("models", models)):
            if isinstance(values, str) or (values is not None and not values):
                raise UsageError(f"{name} must be a list of names, got {values!r}")
        models, chosen = [self.model] if models is None else models, None
        for model in models:
            if isinstance(model, str):
                encoders.check_model(model, require_here=not self.download)
        if candidates is not None:
            named = [Candidate(item) if isinstance(item, str) else item for item in candidates]
            chosen = [DEFAULT, *(candidate for candidate in named if candidate != DEFAULT)]
        for candidate in chosen or ():  # refuse wrong names and options before any image is encoded
            if candidate.create(recipe.seed).trains_tower:
                raise UsageError(f"{candidate} trains the encoder, for minutes: it is for `prolip bench run`")

        def tasks(progress: Progress) -> Iterator[tuple[str, Task]]:
            """Yield the name of each model and the task in its features; one model at a time is in memory."""
            first = None
            for model in models:
                encoder = self._encoder(model)
                support = read_support(encoder, labelled, recipe, self.reading, progress)
                first = first or support
                if support.hashes != first.hashes:
                    raise InputError("images have changed while they were compared: compare again")
                yield encoder.name, replace(support.require_task(), groups=first.require_task().groups)

        with progress_bars(self.progress) as bar:
            return compare_models(
                tasks(bar("encoding images")), chosen, seed=recipe.seed,
                progress=bar("comparing methods", "methods"),
            )  # fmt: skip

    # Prediction: one row per image, in order; None or NaN for one that `skip_bad` skipped.

    def predict(self, images: Any, *, reject: bool = False, false_reject: float = FALSE_REJECT) -> Array:
        """Return the most probable class of each image; with `reject`, None if it is out-of-distribution.

        About the fraction `false_reject` of in-distribution images is rejected too.
        """
        model, extraction, count = self._extract(images)
        options = PredictOptions(reject=reject, false_reject=false_reject)
        predictions = prediction.predict(model, extraction.features[0], options)
        if len(predictions) == count and not reject:
            labels: Array = self.classes_[predictions.best]
            return labels
        rows = np.full(count, None, object)
        rows[extraction.kept] = predictions.labels
        return rows

    def predict_set(self, images: Any, coverage: float = 0.95) -> list[list[Any]]:
        """Return the classes of each image that contain the right one with this frequency, best first.

        That is measured on held-out training images, and holds for images like these; with few of them, sets
        have many classes. An image that was skipped has no class.
        """
        model, extraction, count = self._extract(images)
        sets = model.prediction_sets(extraction.features[0], coverage)
        rows: list[list[Any]] = [[] for _ in range(count)]
        for i, columns in zip(extraction.kept, sets, strict=True):
            rows[i] = [model.classes[k] for k in columns]
        return rows

    def predict_proba(self, images: Any) -> Array:
        """Return probabilities [n, K], with columns as in `classes_`."""
        return softmax(self.decision_function(images))

    def decision_function(self, images: Any) -> Array:
        """Return calibrated logits [n, K], whose softmax is `predict_proba`."""
        model, extraction, count = self._extract(images)
        return _spread(model.logits(extraction.features[0]), extraction, count)

    def transform(self, images: Any) -> Array:
        """Return unit embeddings [n, D] of images, adapted by the fit.

        A method that does not change the projection leaves the embeddings of the base model.
        """
        model, extraction, count = self._extract(images)
        return _spread(model.embed(extraction.features[0]), extraction, count)

    def features(self, images: Any) -> Extraction:
        """Compute the features of images, as `fitted_.logits` takes them; only of those that can be read."""
        return self._extract(images)[1]

    def predict_stream(
        self, images: Sequence[Any], options: PredictOptions, skipped: list[tuple[str, str]]
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield each image with the JSON of its prediction, as they come; see `prolip.api.predict`."""
        with progress_bars(self.progress) as bar:
            progress = bar("encoding images")
            yield from prediction.predict_stream(
                self._model(), images, options, self.reading, skipped, progress
            )

    def score(self, images: Any, labels: Any = None) -> float:
        """Return the accuracy on a folder (its test/ if it has one), or on images and labels."""
        return float(self.report(images, labels, held_out=False).accuracy)

    def report(self, images: Any = None, labels: Any = None, *, held_out: bool = True) -> Report:
        """Predict labelled images; `Report` has figures, confusion matrix and mistakes.

        `rejected` is the fraction that `predict` with `reject` would reject, `duplicates` the number of
        images that the model was fitted on. With `held_out`, training images are predicted by fits that did
        not see them. Without images, the report is on all of the training images.
        """
        from prolip.api.evaluate import evaluate_images, evaluate_support

        model = self._model()
        if images is None:
            return evaluate_support(model)
        labelled = self._labelled(images, labels, None, "test")
        with progress_bars(self.progress) as bar:
            progress = bar("encoding images")
            report = evaluate_images(model, labelled, self.reading, progress, held_out=held_out)
        if seen := int((report.in_support & ~report.held_out).sum()):
            warnings.warn(
                f"{seen} of these images {'was' if seen == 1 else 'were'} in the training set: the accuracy "
                "is optimistic",
                TrainingImagesWarning,
                stacklevel=2 if held_out else 3,
            )
        return report

    def check(self, images: Any, labels: Any = None, *, test: Any = None) -> Check:
        """Find wrong labels, duplicates, and images of no class among training images.

        They are found with the fitted model, or with a fit on these images if there is none. `test` are
        labelled test images, to find copies of them.
        """
        from prolip.api.check import check_images

        model = getattr(self, "model_", None)
        recipe = self._recipe() if model is None else model.recipe
        encoder = self._encoder(self.model) if model is None else model.encoder
        known = () if model is None else model.classes
        train = read_labelled(images, labels, split="train", classes=known)
        other = None if test is None else read_labelled(test, split="test", classes=train.classes)
        with progress_bars(self.progress) as bar:
            progress = bar("encoding images")
            return check_images(encoder, recipe, train, other, self.reading, model=model, progress=progress)

    # New images and classes

    def rename(self, names: Mapping[str, str]) -> FewShotClassifier:
        """Rename classes, {old: new}; the prompts keep the old names, and no prediction changes."""
        from prolip.api.grow import rename_classes

        self.model_ = rename_classes(self._model(), names)
        return self

    def add(
        self, images: Any = None, labels: Any = None, groups: Any = None, *, names: Sequence[str] = ()
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
            return self
        labelled = self._labelled(images, labels, groups, "train")
        with progress_bars(self.progress) as bar:
            self.model_, self.added_ = grow.add_images(
                self._model(), labelled, names, self.reading, bar("encoding images")
            )
        return self

    def learning_curve(self) -> Curve:
        """Measure accuracy against images per class, and estimate it for more images."""
        from prolip.api import grow

        with progress_bars(self.progress) as bar:
            return grow.learning_curve(self._model(), bar("fitting", "fits"))

    def suggest(self, images: Any, count: int = 10) -> list[Suggestion]:
        """Suggest which unlabelled images to label next; `index` counts in `images`."""
        from prolip.api import grow

        with progress_bars(self.progress) as bar:
            return grow.suggest(self._model(), images, count, self.reading, bar("encoding images"))

    # Files

    def save(self, path: str | Path, *, support: bool = True, force: bool = False) -> None:
        """Write a folder that `load` reads.

        With `support`, it has the features of the training images (0.5 MB for 200): the model can then grow
        without the images. A model that is there is replaced with `force`, or if this one was loaded from it
        or saved there before.
        """
        place, own = as_path(path, "path").expanduser().resolve(), None
        if not force:
            own = self.saved_[1] if self.saved_ and self.saved_[0] == place else None
            if own is None and manifest_checksum(place) is not None:
                raise UsageError(
                    f"{path} has a model: name another folder, or replace it with ", Parameter("force", True)
                )
        saving.save(self._model(), path, support=support, replaced=own)
        self.saved_ = place, manifest_checksum(place)

    @classmethod
    def load(
        cls, path: str | Path, *, base: str | Encoder | None = None, download: bool = False, **runtime: Any
    ) -> FewShotClassifier:
        """Read a saved classifier.

        Its base model is downloaded only with `download`, or if `base` names it. `runtime` are `device`,
        `store`, `skip_bad` and `progress` of the constructor.
        """
        if wrong := sorted(runtime.keys() - {"device", "store", "skip_bad", "progress"}):
            raise UsageError(f"load takes no {wrong[0]!r}: the options of the fit are in the saved model")
        clf = cls(base or "offline", download=download, **runtime)
        place = as_path(path, "path").expanduser().resolve()
        clf.saved_ = place, manifest_checksum(place)
        with progress_bars(clf.progress) as bar:
            progress = bar("downloading", "bytes")
            clf.model_ = saving.load(path, clf.device, base=base, download=download, progress=progress)
        recipe = {name: getattr(clf.model_.recipe, name) for name in RECIPE}
        if isinstance(recipe["templates"], tuple):
            recipe["templates"] = list(recipe["templates"])
        clf.set_params(model=clf.model_.encoder.name if base is None else base, **recipe)
        return clf

    def push_to_hub(
        self, name: str, *, private: bool = True, support: bool = False, force: bool = False
    ) -> str:
        """Upload the model with a card to the repository OWNER/NAME of the Hugging Face hub; return its URL.

        With `support`, the features of the training images go along, so that the model can grow elsewhere.
        A repository that has files needs `force`.
        """
        from prolip.api.push import push

        return push(self._model(), name, private, support, force)

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
        evaluation: Report | None = None,
        runtime: str | Path | None = None,
        all_graphs: bool = False,
        weights: str | None = None,
    ) -> list[str]:
        """Export the adapted model for other programs; return the names of the files.

        `to` is "hf", "open_clip", "onnx", "web", or several of them.
        `evaluation`, from `report`, replaces the held-out figures in the model card. For "onnx":
        `all_graphs` also writes graphs of batches and of embeddings. For "web": `runtime`, a folder with the
        package onnxruntime-web, which goes into the page instead of a CDN. For "hf" and "open_clip" of a
        model on ONNX graphs: `weights`, the same model in one of these libraries, like
        "hf:openai/clip-vit-base-patch32"; that of a short name is known, and used without `weights` if it was
        downloaded before.
        """
        targets = [to] if isinstance(to, str) or to is None else list(to)
        return saving.export(
            self._model(), path, targets, force=force, evaluation=evaluation, runtime=runtime,
            all_graphs=all_graphs, weights=weights,
        )  # fmt: skip

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

    @property
    def reading(self) -> ReadOptions:
        """The options `store` and `skip_bad`."""
        return ReadOptions(open_store(self.store), self.skip_bad)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __repr__(self) -> str:
        fitted = ""
        if hasattr(self, "model_"):
            fitted = f", fitted on {self.info_['images']} images of {len(self.classes_)} classes"
        return f"<{type(self).__name__}({self.changed_parameters()}){fitted}>"

    def _recipe(self) -> Recipe:
        """Check the options of a fit."""
        check_device(self.device)
        if hasattr(self, "model_") and self.model_.recipe.method == self.method:
            self.model_.method()  # the name may come from a file, and must be trusted
        return self.recipe()

    def _encoder(self, model: str | Encoder) -> Encoder:
        """Return an encoder; that of the fitted model if it has the same name and device."""
        if isinstance(model, Encoder):
            return model
        known = self.model_.encoder if hasattr(self, "model_") else None
        if known is not None and known.name == model and self.device in ("auto", known.device):
            return known
        if not self.download:
            return encoders.load(model, self.device)
        with progress_bars(self.progress) as bar:
            progress = bar("downloading", "bytes")
            return encoders.load(model, self.device, download=True, progress=progress)

    def _extract(self, images: Any) -> tuple[AdaptedModel, Extraction, int]:
        """Return the model, the features of the images that can be read, and how many images there are."""
        model, listed = self._model(), as_images(images)
        with progress_bars(self.progress) as bar:
            progress: Progress | None = bar("encoding images")
            return model, encode(model.encoder, listed, self.reading, progress=progress), len(listed)

    def _labelled(self, images: Any, labels: Any, groups: Any, split: str) -> ImageSet:
        return read_labelled(images, labels, groups, split=split, classes=self._model().classes)

    def _model(self) -> AdaptedModel:
        if not hasattr(self, "model_"):
            raise NotFittedError("this classifier is not fitted yet: call fit first, or load a saved one")
        return self.model_


def _spread(rows: Array, extraction: Extraction, count: int) -> Array:
    """Return rows for all images, with NaN for those that could not be read."""
    if len(rows) == count:
        return rows
    spread: Array = np.full((count, *rows.shape[1:]), np.nan, rows.dtype)
    spread[extraction.kept] = rows
    return spread


@contextmanager
def progress_bars(progress: Any) -> Iterator[Any]:
    """Yield a function that makes the progress of something, by its label and its unit."""
    if callable(progress):
        yield lambda label, unit="images": partial(progress, label)
    else:
        with ProgressBars(progress) as bars:
            yield partial(Bar, bars)
