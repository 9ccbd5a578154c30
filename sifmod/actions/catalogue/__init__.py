"""catalogue: pages from which users choose a module."""
