"""Reports on a model, a folder of images, and a comparison of methods: one HTML file each."""

from prolip.report.check_page import check_page
from prolip.report.model_page import model_page

__all__ = ["check_page", "model_page"]
