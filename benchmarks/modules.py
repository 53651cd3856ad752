"""Modules of ours that run for a command: those in which a function is called (`sys.setprofile`).

python benchmarks/modules.py                    prolip fit on drawn images
python benchmarks/modules.py predict            prolip predict of one image by that model
"""

import inspect
import os
import sys
import tempfile
import threading
from pathlib import Path

import prolip

ROOT = Path(prolip.__file__).parent


def main(command: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PROLIP_CACHE"] = str(Path(folder, "cache"))
        draw(Path(folder))
        lines = {
            "fit": ["fit", f"{folder}/photos", "-o", f"{folder}/model"],
            "predict": ["predict", f"{folder}/model", f"{folder}/photos/dotted/0.jpg"],
        }
        if command != "fit":
            run(lines["fit"])
        modules = run(lines[command])
    print(*sorted(modules), sep="\n")
    print(f"{len(modules)} modules run for prolip {command}")


def draw(folder: Path) -> None:
    """Draw eight images each of ten textures."""
    from prolip.data import draw_textures

    drawn = draw_textures(8)
    for i, (image, label) in enumerate(zip(drawn.images, drawn.labels, strict=True)):
        place = folder / "photos" / drawn.classes[label]
        place.mkdir(parents=True, exist_ok=True)
        image.save(place / f"{i % 8}.jpg")


def run(arguments: list[str]) -> set[str]:
    """Run a command, and return the modules in which a function was called, by their paths."""
    called: set[str] = set()

    def note(frame, event, argument) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_NEWLOCALS:  # not the body of a module or a class
            called.add(code.co_filename)

    from prolip.cli import main as start

    sys.argv = ["prolip", *arguments]
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        start()
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    paths = [Path(name) for name in called]
    return {path.relative_to(ROOT).as_posix() for path in paths if path.is_relative_to(ROOT)}


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "fit")
