"""Learned schedules inside other people's training loops; each module needs its framework."""
