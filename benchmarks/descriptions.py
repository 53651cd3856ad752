"""What descriptions of classes bring: birds60 with the offline encoder, sixteen species described.

    python benchmarks/descriptions.py [--data ../shared/data] [--draws 3]

`bird_descriptions.json` has three sentences for each of sixteen of the sixty species, written from what field
guides say and without looking at the photos. Zero-shot, then the default fitted on N photos a class; test
photos of birds60, which is a development set whole. "name" is the template alone, "equal" all prompts with
equal weights, "weighted" what `fit` does.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

import numpy as np

from prolip import Task, methods
from prolip.api.model import Recipe
from prolip.api.texts import class_texts
from prolip.data import read_images
from prolip.data.descriptions import as_descriptions, descriptions_of
from prolip.encoders import load
from prolip.evaluate.metrics import accuracy
from solver_tasks import few_shot, photos

DESCRIPTIONS = as_descriptions(Path(__file__).with_name("bird_descriptions.json"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--draws", type=int, default=3)
    given = parser.parse_args()
    encoder, recipe = load("offline"), Recipe(descriptions=DESCRIPTIONS)
    names = read_images(given.data / "images" / "birds60", split="train").names
    whole, x_test, y_test = photos(given.data, "birds60")
    described = [k for k, name in enumerate(names) if descriptions_of(DESCRIPTIONS, name)]
    for title, classes in (("16 described", described), ("all 60, 16 described", range(60))):
        place = np.full(60, -1)
        place[list(classes)] = np.arange(len(classes))
        own, asked = [names[k] for k in classes], place[y_test] >= 0
        for shots in (1, 4, 16):
            found: dict[str, list[tuple[float, float]]] = {"name": [], "equal": [], "weighted": []}
            for draw in range(1, given.draws + 1):
                chosen = few_shot(whole.y, shots, draw)
                chosen = chosen[place[whole.y[chosen]] >= 0]
                x, y = whole.x[0, chosen], place[whole.y[chosen]]
                texts = {
                    "name": encoder.text(own, recipe.templates),
                    "equal": class_texts(encoder, recipe, own),
                    "weighted": class_texts(encoder, recipe, own, x, y),
                }
                for kind, text in texts.items():
                    task = Task(x, y, text, encoder.head, encoder.scale)
                    fits = [methods.create(method).fit(task) for method in ("zero_shot", "prolip")]
                    scored = [accuracy(f.logits(x_test[asked]), place[y_test[asked]]) for f in fits]
                    found[kind].append((100 * scored[0], 100 * scored[1]))
            cells = (
                f"{kind} {fmean(z for z, _ in runs):5.1f} {fmean(f for _, f in runs):5.1f}"
                for kind, runs in found.items()
            )
            print(f"{title:<22} {shots:>2} a class   zero-shot and fitted: " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()
