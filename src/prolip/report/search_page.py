"""A page of the images that a search found."""

from collections.abc import Sequence

from prolip.api.search import SearchResult
from prolip.report.page import gallery, page, section
from prolip.report.thumbnails import thumbnails


def search_page(results: Sequence[SearchResult], names: Sequence[str], *, query: str, source: str) -> str:
    """Write thumbnails in the order of their scores; `names` are what the images are called."""
    drawn = thumbnails([each.image for each in results], range(len(results)))
    images = [
        {"name": name, "lines": [[f"{each.score:.3f}", ""]], **({"src": drawn[i]} if i in drawn else {})}
        for i, (each, name) in enumerate(zip(results, names, strict=True))
    ]
    found = section(
        "Images",
        gallery(list(range(len(images)))),
        note="Nearest first. The number is the cosine between an image and the query: it ranks images, and "
        "says little by itself.",
    )
    lead = f"{len(images)} of the images in {source}"
    return page(f"Search: {query}", lead, [found], {"classes": [], "images": images})
