"""Schedules and webhooks over HTTP."""
