"""Reads inboxes, folds a run's log, asks the model, appends facts, dispatches calls."""
