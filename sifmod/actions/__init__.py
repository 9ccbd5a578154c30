"""The use cases: a file or a package for each command, and what several of them share."""
