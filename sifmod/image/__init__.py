"""From a reference to a verified SIF."""
