"""Bytes without a reader: sweeps for orphans and ended runs, and deletions that were begun."""
