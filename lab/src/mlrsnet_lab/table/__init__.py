"""A table of small trainings under a grid of step sizes, to fit laws to."""
