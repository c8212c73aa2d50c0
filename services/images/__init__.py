"""Check and clean untrusted images, each in its own process. For the gateway and the tool runner."""
