"""Every method beside an independent computation of the same thing; `make verify` prints the table."""
