"""Python packages for an image: what it holds, what goes with that, and what is installed."""
