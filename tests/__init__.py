"""The tests of Runwire; tests/fundamentals reads as a tutorial."""
