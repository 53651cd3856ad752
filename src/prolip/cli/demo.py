"""`prolip demo`."""

import shlex
from pathlib import Path

from prolip.cli import options
from prolip.cli.console import OUTPUT, bar, console, escape, percent, print_json, program, say
from prolip.cli.parameters import PATH, command, option
from prolip.cli.report import write_page

TRAIN, TEST = 16, 10  # images of each class


@command("demo")
@option("--out", "-o", type=PATH, default="prolip-demo", help="Folder to write.")
@options.features_store
def demo(out: Path, store: Path | None) -> None:
    """Show what this does, without data or network, in a minute.

    Draws textures of ten kinds, fits the offline encoder on 16 images of each, and writes the images, the
    model and a report on other images of the same kinds.
    """
    say("drawing textures ...")
    from prolip.api import FewShotClassifier
    from prolip.api.evaluate import figures, predict_labelled
    from prolip.api.support import ImageSource
    from prolip.data import draw_textures

    for split, count in (("train", TRAIN), ("test", TEST)):
        drawn = draw_textures(count, split=split)
        for i, (image, label) in enumerate(zip(drawn.images, drawn.labels, strict=True)):
            folder = out / "photos" / split / drawn.classes[label]
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{i % count}.jpg", quality=95)
    photos, saved, page = out / "photos", out / "textures-model", out / "report.html"
    clf = FewShotClassifier(store=store).fit(photos / "train")
    clf.save(saved)
    model = clf.model_
    tested = ImageSource(model.encoder).labelled(photos / "test", None, "test", model.classes)
    with bar("encoding") as progress:
        predicted = predict_labelled(model, tested, clf.reading, progress)
    write_page(page, model, predicted, saved.name, str(photos / "test"))
    found, seconds = figures(model, predicted), model.report["seconds"]
    if OUTPUT.get().json:
        print_json({
            "accuracy": found.accuracy, "zero_shot_accuracy": found.zero_shot_accuracy,
            "classes": len(model.classes), "shots": TRAIN, "images": found.images, "seconds": seconds,
            "out": str(out),
        })  # fmt: skip
        return
    run, report, model_place, photo_place = (
        escape(text) for text in (program(), *(shlex.quote(str(place)) for place in (page, saved, photos)))
    )
    console().print(
        f"{TRAIN} images of each of {len(model.classes)} textures, learned in {seconds:.1f} s: "
        f"[bold]{percent(found.accuracy)} %[/] of {found.images} new ones are right, "
        f"{percent(found.zero_shot_accuracy)} % before.\n\n"
        f"Report: [bold]{report}[/]\n"
        f"Next:   [bold]{run} predict {model_place} {photo_place}/test[/]\n"
        f"        [bold]{run} fit {photo_place} -o my-model[/]   (or your own: a folder per class)",
        soft_wrap=True,
    )
