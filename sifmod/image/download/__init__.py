"""Downloads: in ranges, resumable, verified while they are read."""
