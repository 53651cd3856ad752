"""Pages about a model, and about a folder of images: one file each, and no request to anywhere."""

from prolip.report.check_page import check_page
from prolip.report.model_page import model_page

__all__ = ["check_page", "model_page"]
