"""Whether an installed module works here: started, checked, and run on its GPUs and over its network."""
