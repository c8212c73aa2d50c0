"""Proposals: changes that a model has written and a person has accepted, checked against the table as it is now."""
