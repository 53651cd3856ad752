"""`prolip datasets`: the paper's datasets, and which of them are on disk."""

from pathlib import Path
from typing import Any

from prolip.cli.console import OUTPUT, console, hint, print_json, table
from prolip.cli.parameters import PATH, argument, command


@command("datasets")
@argument("root", "[ROOT]", "Folder that holds the datasets' folders.", type=PATH, required=False)
def datasets(root: Path | None) -> None:
    """List the paper's datasets, or check a folder for them.

    $ prolip datasets ~/data
    """
    from prolip.data.files import existing
    from prolip.research.datasets import DATASETS
    from prolip.research.datasets.check import check_datasets

    found = {item.dataset.name: item for item in check_datasets(existing(root))} if root else {}
    if OUTPUT.get().json:
        print_json([_as_json(each, found.get(each.name)) for each in DATASETS.values()])
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
        hint("Now: [bold]prolip datasets ROOT[/] checks which of them are in a folder.")
        return
    table(None, ["dataset", "", "classes", *splits], rows, right=2)
    for item in found.values():
        for problem in item.problems:
            console().print(f"\n{item.dataset.name}: {problem}", markup=False, soft_wrap=True, end="")
    console().print()


def _as_json(dataset: Any, found: Any) -> dict[str, Any]:
    from prolip.data import templates_for

    known = {
        name: getattr(dataset, name) for name in ("name", "title", "folder", "classes", "sizes", "source")
    }
    state = {name: getattr(found, name) for name in ("state", "counts", "problems")} if found else {}
    return {**known, "templates": templates_for(dataset.name), **state}
