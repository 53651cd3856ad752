"""Every method beside an independent computation of the same thing: `prolip bench verify`."""
