"""Models whose providers have a protocol of their own, asked through LiteLLM."""
