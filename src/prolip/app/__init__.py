"""The web application: a page to teach a model on, and a server of saved models."""
