"""Schedules: their timers, and the runs that they start."""
