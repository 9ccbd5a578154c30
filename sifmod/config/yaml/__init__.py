"""YAML to values that know their file, line and column; merged and checked, every problem at once."""
