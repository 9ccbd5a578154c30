"""Turn a reference into a verified SIF."""
