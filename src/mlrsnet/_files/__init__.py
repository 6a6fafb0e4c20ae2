"""Schedules as files: how they are stored, found by name, shared on a hub, and read from the authors' checkpoints."""
