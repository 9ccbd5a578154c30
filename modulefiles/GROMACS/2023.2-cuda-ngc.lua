-- GROMACS/2023.2-cuda-ngc: written by sifmod from GROMACS-2023.2-cuda-ngc.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/GROMACS/.generations/2023.2-cuda-ngc/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
GROMACS, molecular dynamics, in its vendor's container.

Commands, which run inside the container image:
  gmx, start-shell
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=GROMACS
  #SBATCH --nodes=1
  #SBATCH --ntasks-per-node=1
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load GROMACS/2023.2-cuda-ngc || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun gmx

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: gromacs 2023.2

Image: docker://nvcr.io/hpc/gromacs:2023.2
Installed again by: sifmod install GROMACS-2023.2-cuda-ngc.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://www.gromacs.org
  https://catalog.ngc.nvidia.com/orgs/hpc/containers/gromacs
]==])
whatis("Description: GROMACS, molecular dynamics, in its vendor's container.")
whatis("Keywords: GROMACS, molecular dynamics, chemistry, biology")
whatis("Category: bio")
whatis("License: LGPL-2.1-or-later")
whatis("URL: https://www.gromacs.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("gromacs/2023.2")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "GROMACS-2023.2-cuda-ngc.yaml" .. " installs it")
   end
   run() {
      key = "GROMACS",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install GROMACS-2023.2-cuda-ngc.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/GROMACS-2023.2-cuda-ngc.sif",
      },
      image_variables = { "SIF", "SIFGROMACS" },
      python_key = "ed5cd96c",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      flags = { "NV" },
      path_inside = {
         "/runscripts",
         "/usr/local/gromacs/avx2_256/bin",
         "/usr/local/gromacs/bin",
      },
      env_inside = {
         LD_PRELOAD = "",
         PYTHONPATH = "",
         WITH_CONDA = "true",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSGROMACS = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTGROMACS = root,
         EBVERSIONGROMACS = "2023.2",
      },
   }
end
