"""Programs for work on this repository."""
