"""Whole systems: real processes, killed and frozen."""
