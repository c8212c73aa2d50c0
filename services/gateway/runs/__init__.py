"""Runs: accept them within quotas, read them, list them, and change them by messages to planners."""
