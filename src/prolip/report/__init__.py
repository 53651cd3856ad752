"""Reports on a model and on a folder of images: one HTML file each."""

from prolip.report.check_page import check_page
from prolip.report.model_page import model_page

__all__ = ["check_page", "model_page"]
