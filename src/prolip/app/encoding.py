"""The images and class names of a project as one base model sees them."""

import time
from pathlib import Path

from prolip.api.model import Recipe
from prolip.app.project import Project
from prolip.core import ProlipError
from prolip.core.arrays import Array
from prolip.data import clean_name
from prolip.encoders import Encoder
from prolip.features import FeatureStore, NoImageLeft, extract

ENCODE_BATCH = 16  # images encoded between two looks at what is most urgent: half a second of work
RETRY_PAUSE = 10.0  # seconds after features could not be written, such as to a full disk


class EncodedProject:
    """Features of a project's images, and of prompts, by one encoder. They are also stored on disk.

    One thread at a time encodes; any thread may read `features` and `bad`, which are replaced, not changed.
    """

    def __init__(self, project: Project, encoder: Encoder) -> None:
        self.encoder = encoder
        self.features: dict[str, Array] = {}  # [width] by image
        self.bad: dict[str, str] = {}  # why an image cannot be encoded
        self.store_failure = ""  # why features cannot be written at present
        self._project = project
        self._store = FeatureStore(project.folder / "features")
        self._store_retry = 0.0  # when features may be written again
        self._texts: dict[tuple[str, tuple[str, ...]], Array] = {}

    def waiting(self) -> list[str]:
        """Images that are not encoded yet, those with a label first."""
        images = self._project.state.images
        left = [key for key in images if key not in self.features and key not in self.bad]
        return sorted(left, key=lambda key: images[key].label is None)

    def progress(self) -> tuple[int, int]:
        """Return how many images are done, and how many there are."""
        total = len(self._project.state.images)
        return total - len(self.waiting()), total

    def encode(self, images: list[str]) -> None:
        """Encode images, a few at a time."""
        images = images[:ENCODE_BATCH]
        paths = [self._project.image(image) for image in images]
        store = self._store if time.monotonic() > self._store_retry else None
        try:
            rows, bad = self._extract(paths, store)
            self.store_failure = self.store_failure if store is None else ""
        except ProlipError as error:  # such as a full disk: train without storing the features
            rows, bad = self._extract(paths, None)
            self.store_failure, self._store_retry = str(error), time.monotonic() + RETRY_PAUSE
        self.features = {**self.features, **{images[i]: row for i, row in rows.items()}}
        unreadable = {image: bad.get(str(path)) for image, path in zip(images, paths, strict=True)}
        self.bad = {**self.bad, **{image: why for image, why in unreadable.items() if why is not None}}

    def _extract(
        self, paths: list[Path], store: FeatureStore | None
    ) -> tuple[dict[int, Array], dict[str, str]]:
        """Return features [width] of images by index, and why others cannot be read, by path."""
        try:
            found = extract(self.encoder, paths, store=store, skip_bad=True)
        except NoImageLeft as none:
            return {}, dict(none.bad)
        return dict(zip(found.kept, found.features[0], strict=True)), dict(found.bad)

    def text(self, prompt_name: str, recipe: Recipe) -> Array:
        """Return prompt features [templates, Dt] of a class, before the text head."""
        key = (prompt_name, tuple(recipe.templates))
        if key not in self._texts:
            text = self.encoder.text([clean_name(prompt_name)], recipe.templates)
            assert text.features is not None
            self._texts = {**self._texts, key: text.features[:, 0]}
        return self._texts[key]
