"""Models: one interface, its providers, and how their failures are told apart."""
