"""What the methods share: see the README of `prolip.methods`."""
