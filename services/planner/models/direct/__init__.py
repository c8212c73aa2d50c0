"""Models behind OpenAI's protocol, asked directly over HTTP."""
