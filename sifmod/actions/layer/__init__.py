"""Layers: packages over a module's image."""
