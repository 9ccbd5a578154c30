"""A plan to text: modulefiles, wrappers, runscripts."""
