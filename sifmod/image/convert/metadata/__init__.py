"""What Singularity and Apptainer look for in an image beside its files: `/.singularity.d`, labels, the definition."""
