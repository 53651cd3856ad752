"""`prolip embed`: embeddings of images, for an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prolip.cli import options
from prolip.cli.console import OUTPUT, bar, print_json, report_skipped, say
from prolip.cli.parameters import FilePath, argument, command, option
from prolip.io.progress import counted


@command("embed")
@options.saved_model
@argument("sources", "DIR...", "Folders of images, archives, tables or images.", nargs=-1, required=True)
@option("--out", "-o", type=FilePath(".npz", ".parquet"), required=True, help="An .npz or .parquet file.")
@option(
    "--ray",
    metavar="ADDRESS",
    help="Encode on a Ray cluster: local starts one here, auto joins a running one.",
)
@options.unlabelled_encoding
@options.unlabelled_tables
def embed(
    saved: options.SavedModel,
    sources: tuple[str, ...],
    out: Path,
    ray: str | None,
    settings: dict[str, Any],
    tables: options.Tables,
) -> None:
    """Write the path and the adapted embedding of each image.

    Features are stored, so that the embeddings of another fit on the same base model take seconds.

    $ prolip embed my-model archive/ -o index.npz
    """
    from prolip.api.output import write_embeddings
    from prolip.core import UsageError
    from prolip.io.files import readable
    from prolip.io.writing import check_place

    check_place(out)
    if ray is not None and settings.get("store") is False:
        raise UsageError("--ray needs the store that --no-store refuses")
    clf, paths = saved.load(settings), tables.listed(list(sources))
    if ray is not None:
        from prolip.features.pool_extract import store_features
        from prolip.io.pool import open_pool

        if clf.reading.store is None or not all(isinstance(path, Path) for path in paths):
            raise UsageError("--ray encodes files: unpack archives and tables of images")
        encoder = clf.model_.encoder
        with open_pool(ray_address=ray) as pool, bar("encoding on Ray") as progress:
            store_features(pool, encoder, paths, clf.reading.store, progress)
    extraction = clf.features(paths)
    rows = clf.model_.embed(extraction.features[0])
    write_embeddings(out, [readable(str(paths[i])) for i in extraction.kept], rows)
    report_skipped(extraction.bad)
    if OUTPUT.get().json:
        summary = {"out": str(out), "images": len(rows), "dimensions": rows.shape[1]}
        print_json({**summary, "skipped": len(extraction.bad)})
    else:
        say(f"embeddings of {counted(len(rows))}, {rows.shape[1]} dimensions each, are in {out}")
