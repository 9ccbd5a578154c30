"""Test whether an installed module works here: start it, check it, and run it on its GPUs and network."""
