"""Goes with the next commit: its parts stand beside what they belong to."""
