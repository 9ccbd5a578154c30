"""A reference to a verified SIF."""
