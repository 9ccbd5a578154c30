-- LAMMPS/15Jun2023-cuda-ngc: written by sifmod from LAMMPS-15Jun2023-cuda-ngc.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/LAMMPS/.generations/15Jun2023-cuda-ngc/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
LAMMPS, molecular dynamics of materials, in its vendor's container.

Commands, which run inside the container image:
  lmp, mpirun, start-shell
and any other one:
  apptainer run "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=LAMMPS
  #SBATCH --nodes=1
  #SBATCH --ntasks-per-node=1
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load LAMMPS/15Jun2023-cuda-ngc || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun lmp

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: lammps 15Jun2023

Image: docker://nvcr.io/hpc/lammps:patch_15Jun2023
Installed again by: sifmod install LAMMPS-15Jun2023-cuda-ngc.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://www.lammps.org
  https://catalog.ngc.nvidia.com/orgs/hpc/containers/lammps
]==])
whatis("Description: LAMMPS, molecular dynamics of materials, in its vendor's container.")
whatis("Keywords: LAMMPS, molecular dynamics, materials, Kokkos")
whatis("Category: chem")
whatis("License: GPL-2.0-only")
whatis("URL: https://www.lammps.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("lammps/15Jun2023")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "LAMMPS-15Jun2023-cuda-ngc.yaml" .. " installs it")
   end
   run() {
      key = "LAMMPS",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install LAMMPS-15Jun2023-cuda-ngc.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/LAMMPS-15Jun2023-cuda-ngc.sif",
      },
      image_variables = { "SIF", "SIFLAMMPS" },
      python_key = "3d125aa9",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      flags = { "NV" },
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
         EBVERSIONLAMMPS = "15Jun2023",
      },
   }
end
