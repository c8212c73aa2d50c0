"""Artifacts and images, as they travel: references, requests of the store, what a caller may send."""
