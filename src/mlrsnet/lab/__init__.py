"""Experiments that show what the core does; needs `mlrsnet[lab]`."""
