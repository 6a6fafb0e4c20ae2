"""Experiments with mlrsnet: datasets, networks, a training loop, records, reports, and schedules learned from whole trainings."""

__version__ = "0.2.0.dev0"
