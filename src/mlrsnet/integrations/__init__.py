"""Learned schedules inside other training frameworks, one module each; each needs its framework."""
