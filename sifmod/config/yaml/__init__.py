"""Parse YAML to values with file, line and column; merge and validate them, and report all problems at once."""
