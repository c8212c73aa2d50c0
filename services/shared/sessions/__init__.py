"""A session as the fold of its log, for all who read one. Pure: no clock, no await."""
