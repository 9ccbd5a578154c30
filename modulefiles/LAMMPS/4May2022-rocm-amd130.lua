-- LAMMPS/4May2022-rocm-amd130: written by sifmod from LAMMPS-4May2022-rocm-amd130.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/LAMMPS/.generations/4May2022-rocm-amd130/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
LAMMPS, molecular dynamics of materials, in its vendor's container.

Commands, which run inside the container image:
  lmp, mpirun, start-shell
and any other one:
  singularity run "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=LAMMPS
  #SBATCH --nodes=1
  #SBATCH --ntasks-per-node=1
  #SBATCH --gpus-per-node=8
  #SBATCH --cpus-per-task=56
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load LAMMPS/4May2022-rocm-amd130 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun lmp

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: lammps 4May2022

Image: docker://amdih/lammps:2022.5.04_130@sha256:d885a385d8d8c54e1ed82a6ca601f3f5db0781aa2439c01879998984e9e85b69
Installed again by: sifmod install LAMMPS-4May2022-rocm-amd130.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://www.lammps.org
  https://www.amd.com/en/technologies/infinity-hub/lammps
]==])
whatis("Description: LAMMPS, molecular dynamics of materials, in its vendor's container.")
whatis("Keywords: LAMMPS, molecular dynamics, materials, Kokkos")
whatis("Category: chem")
whatis("License: GPL-2.0-only")
whatis("URL: https://www.lammps.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("lammps/4May2022")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "LAMMPS-4May2022-rocm-amd130.yaml" .. " installs it")
   end
   run() {
      key = "LAMMPS",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install LAMMPS-4May2022-rocm-amd130.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/LAMMPS-4May2022-rocm-amd130.sif",
         "/appl/local/containers/easybuild-sif-images/LAMMPS-4May2022-rocm-amd130.sif",
      },
      image_variables = { "SIF", "SIFLAMMPS" },
      python_key = "3d125aa9",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
         { "/var/spool/slurmd", optional = true },
         { "/opt/cray", optional = true },
         { "/usr/lib64/libcxi.so.1", optional = true },
         { "/pfs", optional = true },
         { "/scratch", optional = true },
         { "/projappl", optional = true },
         { "/project", optional = true },
         { "/flash", optional = true },
         { "/appl", optional = true },
      },
      flags = {},
      path_inside = {
         "/runscripts",
         "/opt/lammps/bin",
         "/opt/lammps/tpl/openmpi/bin",
      },
      env_inside = {
         LD_PRELOAD = "",
         PYTHONPATH = "",
         WITH_CONDA = "true",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSLAMMPS = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTLAMMPS = root,
         EBVERSIONLAMMPS = "4May2022",
      },
   }
end
