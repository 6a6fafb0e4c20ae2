"""Learned schedules inside other training frameworks, one module each."""
