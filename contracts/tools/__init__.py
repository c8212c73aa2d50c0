"""Tools: their specifications, calls and replies, and what is checked about them."""
