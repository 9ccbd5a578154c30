"""Layers: tar streams, and their merge into one root file system."""
