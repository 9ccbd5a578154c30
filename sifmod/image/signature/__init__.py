"""Signatures in a SIF: listed, checked, and held against the site's policy."""
