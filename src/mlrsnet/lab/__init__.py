"""Experiments with the library: datasets, networks, a training loop, records and reports. Needs `mlrsnet[lab]`."""
