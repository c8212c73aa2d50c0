"""The entries of artifacts: `kv` is their bucket, `references` what they say."""
