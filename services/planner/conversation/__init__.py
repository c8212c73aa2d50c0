"""Renders the messages of model requests: pure functions from facts to messages.

Rule 1: the system message is the same in all turns and the conversation only grows, so that the provider's cache hits.
Notes of a single turn, such as repairs and budgets, come last.
Rule 2: text of tools, callers and descriptions is data: it is rendered as JSON between markers that it cannot close.
Rule 3: every message has text, and roles are system, user and assistant only, so that any chat template accepts them.
Only the transport `tools` (native.py) uses native calls and results, for models that support them.
"""
