"""The bytes of artifacts over HTTP: downloads, uploads, and values in the place of references."""
