"""The kinds of sources that an image can come from."""
