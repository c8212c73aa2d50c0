"""What an operator asks over NATS instead of HTTP: specifications of tools, and what is connected."""
