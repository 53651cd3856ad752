"""Extraction by worker processes, here or on a cluster: they encode files, and this process stores rows.

The workers must be able to read the files at the same paths: a shared folder, or one machine. Features that
are stored already are not computed again, so that an interrupted run continues.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from prolip import encoders
from prolip.core.arrays import Array
from prolip.encoders import Encoder
from prolip.features.extract import extract
from prolip.features.store import FeatureStore
from prolip.io.files import file_state
from prolip.io.pool import Pool
from prolip.io.progress import Progress

BATCH = 64  # images of a job
Job = tuple[str, str, list[str]]  # model, device, paths
_encoder = lru_cache(maxsize=1)(encoders.load)  # once for each worker


def store_features(
    pool: Pool,
    encoder: Encoder,
    images: Sequence[str | os.PathLike[str]],
    store: FeatureStore,
    progress: Progress | None = None,
) -> None:
    """Encode the files that the store lacks; those that cannot be read are left for `extract` to report."""
    space, states = store.space(encoder), {}
    stored = space.of_files(images, (0,))
    for index, image in enumerate(images):
        if index not in stored:
            with suppress(OSError, ValueError):
                states[str(Path(image).absolute())] = file_state(image)
    missing = list(states)
    batches = [missing[start : start + BATCH] for start in range(0, len(missing), BATCH)]
    jobs: list[Job] = [(encoder.name, encoder.device, batch) for batch in batches]
    done = len(stored)
    for size, paths, hashes, x in pool.imap_unordered(_encode, jobs):
        space.add(hashes, [0] * len(hashes), x)
        store.remember([(path, states[path], key) for path, key in zip(paths, hashes, strict=True)])
        done += size
        if progress is not None:
            progress(done, len(stored) + len(missing))


def _encode(job: Job) -> tuple[int, list[str], list[bytes], Array]:
    """Return the size of a batch; of its readable images the paths, the hashes and the features."""
    model, device, paths = job
    extraction = extract(_encoder(model, device), paths, skip_bad=True)
    return len(paths), [paths[i] for i in extraction.kept], extraction.hashes, extraction.features[0]
