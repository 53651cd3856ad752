"""`prolip datasets`: the paper's datasets, and which of them are on disk."""

from pathlib import Path

from prolip.cli.console import console, hint, print_as_json, table
from prolip.cli.options import PATH, argument, command

SPLITS = ("train", "val", "test")


@command("datasets")
@argument("root", "[ROOT]", "Folder that holds the datasets' folders.", type=PATH, required=False)
def datasets(root: Path | None) -> None:
    """List the paper's datasets, or check a folder for them.

    $ prolip datasets ~/data
    """
    from prolip.data import templates_for
    from prolip.data.folders import existing
    from prolip.research.datasets import DATASETS
    from prolip.research.datasets.check import check_datasets

    checks = {check.dataset.name: check for check in check_datasets(existing(root))} if root else {}
    names = ("name", "title", "folder", "classes", "sizes", "source")
    rows = [{name: getattr(d, name) for name in names} for d in DATASETS.values()]
    for row in rows:
        row["templates"] = templates_for(str(row["name"]))
        if check := checks.get(str(row["name"])):
            row |= {"state": check.state, "counts": check.counts, "problems": check.problems}
    if print_as_json(rows):
        return
    lines = []
    for d in DATASETS.values():
        about = [checks[d.name].state] if checks else [d.folder, d.source]
        sizes = [f"{d.sizes[split]:,}" if split in d.sizes else "-" for split in SPLITS]
        lines.append([d.name, *about, f"{d.classes}", *sizes])
    if not checks:
        table(None, ["dataset", "folder", "from", "classes", *SPLITS], lines, right=3)
        console().print("\nSplit files and layout: github.com/KaiyangZhou/CoOp, DATASETS.md")
        hint("Now: [bold]prolip datasets ROOT[/] checks which of them are in a folder.")
        return
    table(None, ["dataset", "", "classes", *SPLITS], lines, right=2)
    for check in checks.values():
        for problem in check.problems:
            console().print(f"\n{check.dataset.name}: {problem}", markup=False, soft_wrap=True, end="")
    console().print()
