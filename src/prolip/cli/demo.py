"""`prolip demo`."""

import shlex
from pathlib import Path

from prolip.cli import options
from prolip.cli.console import OUTPUT, console, escape, percent, print_json, program, say
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
    from prolip import FewShotClassifier
    from prolip.data import draw_textures

    for split, count in (("train", TRAIN), ("test", TEST)):
        drawn = draw_textures(count, split=split)
        for i, (image, label) in enumerate(zip(drawn.images, drawn.labels, strict=True)):
            folder = out / "photos" / split / drawn.classes[label]
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{i % count}.jpg", quality=95)
    photos, saved, page = out / "photos", out / "textures-model", out / "report.html"
    clf = FewShotClassifier(store=store, progress=options.progress()).fit(photos / "train")
    clf.save(saved, force=True)
    evaluation = clf.report(photos / "test", held_out=False)
    write_page(page, clf, evaluation, saved.name, str(photos / "test"))
    figures, classes, seconds = evaluation.figures, len(clf.classes_), clf.info_["seconds"]
    if OUTPUT.get().json:
        print_json({
            "accuracy": figures.accuracy, "zero_shot_accuracy": figures.zero_shot_accuracy,
            "classes": classes, "shots": TRAIN, "images": figures.images, "seconds": seconds,
            "out": str(out),
        })  # fmt: skip
        return
    run, report, model_place, photo_place = (
        escape(text) for text in (program(), *(shlex.quote(str(place)) for place in (page, saved, photos)))
    )
    console().print(
        f"{TRAIN} images of each of {classes} textures, learned in {seconds:.1f} s: "
        f"[bold]{percent(figures.accuracy)} %[/] of {figures.images} new ones are right, "
        f"{percent(figures.zero_shot_accuracy)} % before.\n\n"
        f"Report: [bold]{report}[/]\n"
        f"Next:   [bold]{run} predict {model_place} {photo_place}/test[/]\n"
        f"        [bold]{run} fit {photo_place} -o my-model[/]   (or your own: a folder per class)",
        soft_wrap=True,
    )
