"""`prolip methods`: what each method trains and needs."""

from typing import Annotated, Any

import typer

from prolip.cli.common import Json
from prolip.cli.console import print_json, table

LARGEST = 10**9  # of a size


def list_methods(
    features: Annotated[
        int, typer.Option(min=1, max=LARGEST, help="Do, columns before the image projection.")
    ] = 2048,
    dim: Annotated[int, typer.Option(min=1, max=LARGEST, help="D, of the shared space.")] = 1024,
    classes: Annotated[int, typer.Option(min=1, max=LARGEST, help="K.")] = 1000,
    shots: Annotated[int, typer.Option(min=1, max=LARGEST, help="N, images per class.")] = 16,
    text_features: Annotated[
        int, typer.Option(min=1, max=LARGEST, help="Dt, columns before the text projection.")
    ] = 512,
    json: Json = False,
) -> None:
    """List the methods: what each trains and needs, and whether it can still answer for other classes.

    Numbers of parameters are for CLIP's RN50 on ImageNet with 16 images a class, unless other sizes are
    given. Methods that are biases on zero-shot add up: `--method a+b` trains any two of them together.
    """
    from prolip import methods
    from prolip.core import UsageError
    from prolip.methods.common.method import Shape

    shape = Shape(features, dim, classes, shots * classes, text_features)
    found: list[dict[str, Any]] = []
    for name, kind in methods.available().items():
        method = kind.create()
        try:
            count: int | None = method.count(shape)
        except UsageError:  # it trains inside a tower, whose size a shape does not tell
            count = None
        found.append(
            {
                "name": name,
                "summary": method.summary,
                "open_class": method.open_class,
                "size": method.size,
                "parameters": count,
                "needs": list(method.needs),
            }
        )
    if json:
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
