"""From images to an adapted model, and what is done with it."""
