"""Calls of tools in the rules of a run: plans, joins, approvals, outcomes. Pure."""
