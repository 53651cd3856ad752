"""The web application: a page to teach a model on, and a server of saved models."""

PROJECT_FILE = "project.sqlite"  # in the folder of every project
