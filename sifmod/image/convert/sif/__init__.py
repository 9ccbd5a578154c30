"""SIFs: read and write headers and descriptors."""
