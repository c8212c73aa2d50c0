"""The HTTP edge: checks input, writes it to a run's inbox, streams a run's events, serves artifacts."""
