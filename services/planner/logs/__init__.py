"""The logs of runs and sessions: loading, appending, keeping records small, the index derived from them."""
