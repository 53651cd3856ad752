"""The images and class names of a project as one base model sees them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from prolip.app.images import read_pixels
from prolip.app.project import Project
from prolip.core.arrays import Array
from prolip.data.imageset import clean_name
from prolip.encoders import Encoder
from prolip.features import FeatureStore, ImageError
from prolip.io.environment import cores

ENCODE_BATCH = 16  # images encoded between two looks at what is most urgent: half a second of work
MAX_PIXELS = 256  # uploaded images whose pixels wait in memory for the encoder, 150 kB each


class EncodedProject:
    """Features of a project's images, and of prompts, by one encoder. They are also stored on disk.

    One thread at a time encodes; any thread may look an image up in `features` and `bad`, which only grow.
    """

    def __init__(self, project: Project, encoder: Encoder) -> None:
        self.encoder = encoder
        self.features: dict[str, Array] = {}  # [width] by image
        self.bad: dict[str, str] = {}  # why an image cannot be encoded
        self._project = project
        self._space = FeatureStore(project.folder / "features", renew=True).space(encoder)
        self._pixels: dict[str, Array] = {}  # [S, S, 3] uint8
        self._texts: dict[str, Array] = {}

    def keep_pixels(self, image: str, pixels: Array) -> None:
        """Take the pixels of an image that was just decoded, so that it need not be decoded again."""
        if image not in self.features and len(self._pixels) < MAX_PIXELS:
            self._pixels[image] = pixels

    def waiting(self) -> list[str]:
        """Images that are not encoded yet, those with a label first."""
        images = self._project.state.images
        left = [key for key in images if key not in self.features and key not in self.bad]
        return sorted(left, key=lambda key: images[key].label is None)

    def encode(self, images: list[str]) -> dict[str, str]:
        """Encode images, a few at a time; returns those that cannot be read, and why."""
        images = images[:ENCODE_BATCH]
        stored = self._space.get([bytes.fromhex(image) for image in images])
        rows = {image: row for image in images if (row := stored.get((bytes.fromhex(image), 0))) is not None}
        left = [image for image in images if image not in rows]
        with ThreadPoolExecutor(cores()) as threads:
            loaded = dict(zip(left, threads.map(self._load, left), strict=True))
        bad = {image: pixels for image, pixels in loaded.items() if isinstance(pixels, str)}
        new = [image for image in left if image not in bad]
        if new:
            features = self.encoder.encode(np.stack([loaded[image] for image in new]))
            self._space.add([bytes.fromhex(image) for image in new], [0] * len(new), features)
            rows.update(zip(new, features, strict=True))
        self.features.update(rows)
        self.bad.update(bad)
        return bad

    def _load(self, image: str) -> Array | str:
        """Return the pixels of an image, or why it cannot be read."""
        if (pixels := self._pixels.pop(image, None)) is not None:
            return pixels
        try:
            return read_pixels(self._project.image(image).read_bytes(), self.encoder.preprocess)
        except (OSError, ImageError) as error:
            return getattr(error, "reason", str(error))

    def text(self, prompt_name: str, prompts: Sequence[str]) -> Array:
        """Return prompt features [templates, Dt] of a class, before the text head."""
        if prompt_name not in self._texts:
            text = self.encoder.text([clean_name(prompt_name)], prompts)
            assert text.features is not None
            self._texts[prompt_name] = text.features[:, 0]
        return self._texts[prompt_name]
