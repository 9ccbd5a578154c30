"""Metadata that Singularity and Apptainer expect in an image: `/.singularity.d`, labels, the definition."""
