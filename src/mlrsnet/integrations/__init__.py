"""Learned schedules in other people's training loops, one file per framework."""

from mlrsnet.scheduler import LearnedLR

# Accelerate's `prepare` returns a scheduler with this mark as it is. Its wrapper would step once per process.
LearnedLR._is_accelerate_prepared = True  # type: ignore[attr-defined]
