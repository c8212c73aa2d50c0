"""A storm over background tasks, groups, schedules and webhooks, and the rules that judge it."""
