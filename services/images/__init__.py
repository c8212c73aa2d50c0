"""Check and clean untrusted images, each in its own process. Used by the services that accept images."""
