"""Finds the present tools, by announcements and the tools file, and writes them to the catalogue."""
