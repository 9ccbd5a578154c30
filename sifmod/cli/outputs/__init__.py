"""What `--json` prints: the fields of every verb. The verbs import them for their types alone."""
