"""What a request passes before it reaches a route: the rules of its connection, and those of its origin."""
