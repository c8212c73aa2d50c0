"""Schedules and webhooks, which start runs."""
