"""`prolip methods`: what each method trains and needs."""

from typing import Any

import click

from prolip.cli.console import OUTPUT, print_json, table
from prolip.cli.parameters import command, option

SIZE = click.IntRange(1, 10**9)


@command("methods")
@option("--features", type=SIZE, default=2048, help="Do, the number of features before the image projection.")
@option("--dim", type=SIZE, default=1024, help="D, the dimension of the shared space.")
@option("--classes", type=SIZE, default=1000, help="K, the number of classes.")
@option("--shots", type=SIZE, default=16, help="N, images per class.")
@option(
    "--text-features", type=SIZE, default=512, help="Dt, the number of features before the text projection."
)
def list_methods(features: int, dim: int, classes: int, shots: int, text_features: int) -> None:
    """List the methods: what each trains and needs.

    An open-class method can classify other classes, too. The defaults of the sizes are those of CLIP's RN50
    on ImageNet with 16 images per class. Methods that add a bias to the zero-shot logits can be combined:
    `--method a+b` trains two of them together.
    """
    from prolip import methods
    from prolip.core import UsageError
    from prolip.methods.base import Shape

    shape = Shape(features, dim, classes, shots * classes, text_features)
    found: list[dict[str, Any]] = []
    for name, kind in methods.available().items():
        method = kind.create()
        try:
            count: int | None = method.count(shape)
        except UsageError:  # it trains inside a tower, whose size a shape does not tell
            count = None
        known = {field: getattr(method, field) for field in ("summary", "open_class", "size")}
        found.append({"name": name, **known, "parameters": count, "needs": method.needs.describe()})
    if OUTPUT.get().json:
        print_json(found)
        return
    rows = [
        [
            m["name"],
            "yes" if m["open_class"] else "no",
            m["size"],
            "-" if m["parameters"] is None else f"{m['parameters']:,}",
            ", ".join(m["needs"]),
        ]
        for m in found
    ]
    table(None, ["method", "open-class", "trains", "numbers", "needs"], rows, right=9)
