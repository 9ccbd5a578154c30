"""Signatures in a SIF: listed, verified, and compared with the site's policy."""
