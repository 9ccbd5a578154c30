"""One verb a file, each a straight line."""
