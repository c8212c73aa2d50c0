"""A run from its request to its payload: events, the messages of its inbox, pauses, what models decide."""
