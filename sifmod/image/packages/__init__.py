"""Python packages for an image: its own, compatible ones, and their installation."""
