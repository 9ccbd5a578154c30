"""stack: make a tree match one file."""
