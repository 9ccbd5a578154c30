"""SIFs: header and descriptors, read and written."""
