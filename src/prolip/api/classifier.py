"""FewShotClassifier: from images to an adapted model, in scikit-learn's manner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip import encoders, methods
from prolip.api import keeping
from prolip.api.inputs import as_images
from prolip.core import Fitted, Head, Projected, Task, Text, UsageError
from prolip.core.arrays import Array, softmax
from prolip.encoders.arrays import read_arrays
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.reject import FALSE_REJECT
from prolip.features import Extraction, FeatureStore, extract

# What predicting does without is imported where it is used: a saved model then answers sooner.
if TYPE_CHECKING:
    from prolip.api.support import Support
    from prolip.evaluate.curve import Curve
    from prolip.evaluate.suggest import Suggestion
    from prolip.evaluate.test_time import AdaptedPredictions

Progress = Callable[[int, int], None]


class FewShotClassifier:
    """A classifier of images, taught by a few of each class.

    Parameters
    ----------
    model
        The encoder: "offline", "open_clip:ARCH/TAG", "open_clip:local-dir:PATH", "hf:ID-or-PATH", or one that
        is loaded already; or "arrays" for embeddings that you bring.
    method
        A name of `prolip.methods.names()`.
    lam
        Weight of the pull towards the pretrained matrix: "auto", "1/N", "1/N^2" or a number. None is the
        method's own default.
    views
        Views of each support image: the centre crop, and views - 1 augmented ones.
    seed
        Of few-shot sampling, of augmented views and of folds.
    shots
        Images per class to sample for the fit; None takes all.
    templates
        A prompt with a `{}` for the class name, or several; or the name of a benchmark dataset, for its own.
    device
        Of the towers: "auto", "cpu", "cuda" or "mps".
    store
        Where features are kept: a folder, None for the user's cache, False to keep none.
    skip_bad
        Go on past images that cannot be read (`skipped_` lists them), instead of stopping at the first.
    options
        Further options of the method.
    calibrate
        Cross-validate inside the support set after the fit, so that probabilities mean what they say.

    Attributes
    ----------
    classes_
        The labels; columns of `predict_proba` are in this order.
    fitted_
        The fitted method, on features.
    info_
        Figures of the fit: lam, shots, seconds of the solve, parameters.
    confidence_
        Temperature, outsiders, and figures on held-out support images.
    skipped_
        (image, reason) of every support image that could not be read.

    Examples
    --------
    >>> clf = FewShotClassifier(shots=4).fit("photos/train")            # doctest: +SKIP
    >>> clf.predict(["cat.jpg"])                                        # doctest: +SKIP
    ['cat']
    """

    classes_: list[Any]
    task_: Task | None
    text_: Text
    fitted_: Fitted
    info_: dict[str, Any]
    confidence_: Confidence
    skipped_: list[tuple[str, str]]
    support_: list[bytes]

    def __init__(
        self,
        model: str | encoders.Encoder = "offline",
        method: str = "prolip",
        lam: str | float | None = "auto",
        views: int = 1,
        seed: int = 0,
        *,
        shots: int | None = None,
        templates: str | Sequence[str] | None = None,
        device: str = "auto",
        store: str | Path | bool | None = None,
        skip_bad: bool = False,
        options: dict[str, Any] | None = None,
        calibrate: bool = True,
    ) -> None:
        self.model = model if isinstance(model, str) else model.name
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
        self._encoder = None if isinstance(model, str) else model

    # Fitting

    def fit(
        self,
        images: Any,
        labels: Any = None,
        *,
        text: Any = None,
        progress: Progress | None = None,
        training: Progress | None = None,
    ) -> FewShotClassifier:
        """Learn the classes of a folder, or of images and labels.

        Parameters
        ----------
        images
            A folder with a folder per class (or with train/ inside, or a metadata table); or a sequence of
            paths, PIL images or arrays. For model="arrays": embeddings [n, D], or a file of them.
        labels
            One per image, names or numbers; a folder brings its own.
        text
            For model="arrays": class rows [K, D].
        progress
            Called with (done, total) while images are encoded.
        training
            The same while a method takes its steps.
        """
        from prolip.api.support import support_of_arrays, support_of_images

        method = self._method()
        if self.views < 1:
            raise UsageError(f"views must be at least 1, got {self.views}")
        if self.model == "arrays":
            support = support_of_arrays(self, read_arrays(images, labels, text))
        else:
            support = support_of_images(self, images, labels, progress)
        self._adapt(support, method, training)
        return self

    def _adapt(self, support: Support, method: methods.Method, progress: Progress | None = None) -> None:
        """Fit, and keep the fit; a failure leaves the classifier as it was."""
        from prolip.api.fitting import fit_and_calibrate

        task = support.task
        if self.calibrate:
            fitted, confidence = fit_and_calibrate(method, task, self.seed, progress)
        else:
            fitted, confidence = method.fit(task, progress), Confidence()
        self.task_, self.text_, self.classes_ = task, task.text, support.classes
        self.support_, self.skipped_ = support.hashes, support.skipped
        self.fitted_, self.confidence_ = fitted, confidence
        self.info_ = {
            **fitted.info,
            "model": self.model,
            "classes": len(self.classes_),
            "images": task.n,
            "shots": task.shots,
            "views": task.views,
        }

    def _method(self) -> methods.Method:
        options = dict(self.options or {})
        takes = methods.options(self.method)
        for name, value in (("lam", self.lam), ("seed", self.seed)):
            if value is not None and name in takes:
                options.setdefault(name, value)
        return methods.create(self.method, **options)

    # Using

    @property
    def encoder(self) -> encoders.Encoder:
        """The encoder, loaded when it is first needed."""
        if self._encoder is None:
            self._encoder = encoders.load(self.model, self.device)
        return self._encoder

    def features(self, images: Any, *, progress: Progress | None = None) -> Extraction:
        """Pre-projection features of images, the centre view: what `fitted_.logits` reads.

        After a fit that changed the tower, they are those of the changed one.
        """
        encoder = self.fitted_.encoder_for(self.encoder) if hasattr(self, "fitted_") else self.encoder
        return self._extract(as_images(images), (0,), progress, encoder)

    def logits(self, images: Any, *, progress: Progress | None = None) -> Array:
        """Scores [n, K], calibrated; a softmax of them is `predict_proba`."""
        return self.calibrated(self._read(images, progress))

    def calibrated(self, x: Array) -> Array:
        """Scores [n, K] of features [n, width]."""
        self._require_fitted()
        return self.fitted_.logits(x) / self.confidence_.temperature

    def _read(self, images: Any, progress: Progress | None = None) -> Array:
        self._require_fitted()
        if self.model == "arrays":
            return read_arrays(images).x
        return self.features(images, progress=progress).features[0]

    def test_time(
        self, images: Any, way: str = "prolip", *, progress: Progress | None = None, **options: Any
    ) -> AdaptedPredictions:
        """Scores of images, each after a step that makes the model surer of views of that image alone.

        Parameters
        ----------
        way
            "prolip" adapts the projection, "tpt" the words of the prompt, which takes far longer.
        options
            Of `prolip.methods.test_time`: views, rho, lr and others.
        """
        from prolip.evaluate.test_time import adapt_images
        from prolip.methods import test_time

        self._require_fitted()
        if self.model == "arrays":
            raise UsageError("test-time adaptation makes views of images: embeddings alone are not enough")
        adaptation = test_time.create(way, **options)
        adapted = adapt_images(
            self.encoder, self.fitted_, as_images(images), adaptation, self.skip_bad, progress
        )
        return replace(adapted, logits=adapted.logits / self.confidence_.temperature)

    def predict_proba(self, images: Any) -> Array:
        """Probabilities [n, K], columns as in `classes_`."""
        return softmax(self.logits(images))

    def predict(
        self,
        images: Any,
        *,
        reject: bool = False,
        false_reject: float = FALSE_REJECT,
        false_accept: float | None = None,
    ) -> list[Any]:
        """The most probable class of each image.

        With `reject`, None for an image that seems to belong to no class. Of images that do belong, about
        the fraction `false_reject` is refused too; or, where `false_accept` is given, about that fraction of
        images of unknown classes is let pass.
        """
        x = self._read(images)
        # From the probabilities, whose rounding may make two classes equal, so that both always agree.
        answers = softmax(self.calibrated(x)).argmax(axis=1)
        refused = [False] * len(answers)
        if reject:
            refused = self.outsiders(x, answers, false_reject, false_accept).tolist()
        return [None if no else self.classes_[k] for k, no in zip(answers.tolist(), refused, strict=True)]

    def outsiders(
        self,
        x: Array,
        answers: Array,
        false_reject: float = FALSE_REJECT,
        false_accept: float | None = None,
    ) -> Array:
        """Which of features [n, width], with these answers [n], seem to belong to no class: bool [n]."""
        outsiders = self.confidence_.outsiders
        if outsiders is None:
            raise UsageError(
                "nothing to reject by: the model was fitted without calibration (--no-calibration), or by a "
                "method that changes the image tower"
            )
        return outsiders.reject(x, self.base_head(), answers, outsiders.threshold(false_reject, false_accept))

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
        from prolip.api import measuring

        self._require_fitted()
        return measuring.evaluate(self, images, labels, progress)

    def zero_shot(self) -> Projected:
        """The model before the fit, with the same class texts."""
        self._require_fitted()
        return Projected(self.base_head(), self.text_, self.base_scale())

    def base_head(self) -> Head:
        """The pretrained head; for embeddings, the identity."""
        return Head.identity(self.text_.rows.shape[1]) if self.model == "arrays" else self.encoder.head

    def base_scale(self) -> float:
        """The pretrained scale; for embeddings, CLIP's."""
        return 100.0 if self.model == "arrays" else self.encoder.scale

    def _extract(
        self,
        images: Any,
        views: Sequence[int],
        progress: Progress | None,
        encoder: encoders.Encoder | None = None,
    ) -> Extraction:
        store = None
        if self.store is not False:
            store = FeatureStore(None if self.store in (None, True) else Path(str(self.store)))
        return extract(
            encoder or self.encoder,
            images,
            views=views,
            store=store,
            skip_bad=self.skip_bad,
            progress=progress,
        )

    def _require_fitted(self) -> None:
        if not hasattr(self, "fitted_"):
            raise UsageError("this classifier is not fitted yet: call fit first, or load a saved one")

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

        Parameters
        ----------
        images, labels
            As for `fit`; new classes come after those that are there.
        names
            Classes to add by name alone, without an image. Without `images` nothing is fitted: the adapted
            model is asked about one more text.

        Returns what was added, and the accuracy on the old classes before and after (`old_accuracy_before`,
        `old_accuracy`), both on held-out support images.
        """
        from prolip.api import growing

        self._require_fitted()
        if images is None:
            if not names:
                raise UsageError("nothing to add: give images, or names")
            return growing.add_names(self, list(names))
        return growing.add_images(self, images, labels, list(names), progress)

    def learning_curve(self, *, progress: Progress | None = None) -> Curve:
        """Accuracy against images per class inside the support set, and what more images would bring."""
        from prolip.api import growing
        from prolip.evaluate.curve import learning_curve

        task = growing.require_task(self)
        return learning_curve(self._method(), self.fitted_, task, seed=self.seed, progress=progress)

    def suggest(self, images: Any, count: int = 10, *, progress: Progress | None = None) -> list[Suggestion]:
        """Which of these unlabelled images to label next; `index` counts in `images`."""
        from prolip.api import growing
        from prolip.evaluate.suggest import suggest

        task = growing.require_task(self)
        x, places = growing.unlabelled(self, images, progress)
        inputs, _ = self.base_head().split(x)
        labelled, _ = self.base_head().split(task.x[0])
        found = suggest(inputs, softmax(self.calibrated(x)), labelled, count)
        return [replace(one, index=places[one.index]) for one in found]

    # Keeping

    def save(self, path: str | Path, *, support: bool = True, card: bool = False) -> None:
        """Write a folder that `load` reads: a JSON and safetensors.

        With `support`, the features of the support set go along (about 0.5 MB for 200 images), so that the
        model can be fitted again with more classes or images, without the old images. With `card`, a model
        card goes along.
        """
        self._require_fitted()
        keeping.write(self, Path(path), support, card)

    @classmethod
    def load(
        cls, path: str | Path, *, device: str = "auto", store: str | Path | bool | None = None
    ) -> FewShotClassifier:
        """Read a saved classifier; refuse it where its base model is not the one it was fitted on."""
        return keeping.read(cls, Path(path), device, store)

    def export(
        self,
        path: str | Path,
        to: str | Sequence[str],
        *,
        force: bool = False,
        evaluation: dict[str, Any] | None = None,
    ) -> list[str]:
        """Write the adapted model for other programs: "hf", "open_clip", "adapter", "onnx", or several.

        `evaluation`, from `evaluate`, goes into the model card instead of figures on held-out support images.
        Returns the names of the files. See `prolip.export.write.export`.
        """
        self._require_fitted()
        if self.model == "arrays":
            raise UsageError("embeddings have no model behind them that could be exported")
        from prolip.export.write import export

        targets = [to] if isinstance(to, str) else list(to)
        config = {**keeping.describe(self), "evaluation": evaluation}
        return export(Path(path), self.encoder, self.fitted_, config, targets, force=force)
