"""What the tests stand on: real Lmod, Environment Modules, Apptainer, Slurm, a registry, real images."""
