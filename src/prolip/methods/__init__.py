"""The methods, by name. A method is a file here with a registered class: see CONTRIBUTING.md."""

from prolip.methods.base import Method
from prolip.methods.registry import available, create, from_settings, get, names, options, register, restore

__all__ = ["Method", "available", "create", "from_settings", "get", "names", "options", "register", "restore"]
