"""The strategies of runs, each a folder on one base."""
