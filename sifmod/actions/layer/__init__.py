"""Layers: packages on top of a module's image."""
