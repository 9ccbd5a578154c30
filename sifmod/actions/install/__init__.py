"""install: decide first, then change the disk."""
