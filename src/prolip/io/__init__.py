"""Reading and writing files: atomic writes, locks, limits on untrusted input."""
