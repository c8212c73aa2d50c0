"""Artifacts over HTTP: downloads, uploads, values in the place of references, and the images that runs are given."""
