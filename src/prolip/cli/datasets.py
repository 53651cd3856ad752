"""`prolip datasets`: the paper's datasets, and what of them is on this disk."""

from pathlib import Path
from typing import Annotated

import typer

from prolip.cli.common import Json
from prolip.cli.console import console, hint, print_json, table


def datasets(
    root: Annotated[
        Path | None, typer.Argument(metavar="ROOT", help="Folder that holds the datasets' folders.")
    ] = None,
    json: Json = False,
) -> None:
    """List the paper's datasets; with ROOT, say what is there, what is missing and where it comes from.

    prolip datasets ~/data
    """
    from prolip.data import DATASETS, check_datasets, templates_for
    from prolip.data.files import existing

    found = {item.dataset.name: item for item in check_datasets(existing(root))} if root else {}
    if json:
        print_json(
            [
                {
                    "name": d.name,
                    "title": d.title,
                    "folder": d.folder,
                    "classes": d.classes,
                    "sizes": d.sizes,
                    "templates": templates_for(d.name),
                    "source": d.source,
                    **({"state": f.state, "counts": f.counts, "problems": f.problems} if f else {}),
                }
                for d in DATASETS.values()
                for f in [found.get(d.name)]
            ]
        )
        return
    splits = ("train", "val", "test")
    rows = [
        [
            d.name,
            *([found[d.name].state] if found else [d.folder, d.source]),
            f"{d.classes}",
            *(f"{d.sizes[split]:,}" if split in d.sizes else "-" for split in splits),
        ]
        for d in DATASETS.values()
    ]
    if not found:
        table(None, ["dataset", "folder", "from", "classes", *splits], rows, right=3)
        console().print("\nSplit files and layout: github.com/KaiyangZhou/CoOp, DATASETS.md")
        hint("Now: [bold]prolip datasets ROOT[/] says which of them are in a folder.")
        return
    table(None, ["dataset", "", "classes", *splits], rows, right=2)
    for item in found.values():
        for problem in item.problems:
            console().print(f"\n{item.dataset.name}: {problem}", markup=False, soft_wrap=True, end="")
    console().print()
