"""Downloads: in ranges, resumable, certified while they are read."""
