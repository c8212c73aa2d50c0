"""Models: one interface, its providers, and the classification of their failures."""
