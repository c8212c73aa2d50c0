"""Budgets of API keys: what all runs that a key started on a day may spend together, and have spent."""
