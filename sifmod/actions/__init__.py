"""One file for each command, read from top to bottom."""
