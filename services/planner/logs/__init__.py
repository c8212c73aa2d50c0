"""The logs of runs and sessions: loading, appending, the index derived from them."""
