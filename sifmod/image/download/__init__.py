"""Downloads: in ranges, resumable, hashed while written."""
