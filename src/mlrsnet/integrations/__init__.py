"""Learned schedules inside other libraries' training loops; each module needs its library."""
