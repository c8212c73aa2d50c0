"""Protocols: each a folder with its inputs, its encoder and its routes."""
