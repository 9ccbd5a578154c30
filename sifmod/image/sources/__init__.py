"""The kinds of image sources."""
