"""Read an image's metadata and contents without a runtime."""
