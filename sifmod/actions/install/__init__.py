"""install: decided, then done."""
