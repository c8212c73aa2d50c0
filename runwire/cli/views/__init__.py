"""What a run, a pause, an artifact or a tool looks like for people, and how it is saved."""
