-- GROMACS/2022.3-rocm-amd1_174: written by sifmod from GROMACS-2022.3-rocm-amd1_174.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/GROMACS/.generations/2022.3-rocm-amd1_174/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
GROMACS, molecular dynamics, in its vendor's container.

Commands, which run inside the container image:
  gmx, start-shell
and any other one:
  singularity exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=GROMACS
  #SBATCH --nodes=1
  #SBATCH --ntasks-per-node=1
  #SBATCH --gpus-per-node=8
  #SBATCH --cpus-per-task=56
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load GROMACS/2022.3-rocm-amd1_174 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun gmx

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: gromacs 2022.3

Image: docker://amdih/gromacs:2022.3.amd1_174@sha256:3def3e37a32b014a80620e588f16241e23d4043b6a0a022f09a3d856cda72ee3
Installed again by: sifmod install GROMACS-2022.3-rocm-amd1_174.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://www.gromacs.org
  https://www.amd.com/en/technologies/infinity-hub/gromacs
]==])
whatis("Description: GROMACS, molecular dynamics, in its vendor's container.")
whatis("Keywords: GROMACS, molecular dynamics, chemistry, biology")
whatis("Category: bio")
whatis("License: LGPL-2.1-or-later")
whatis("URL: https://www.gromacs.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("gromacs/2022.3")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "GROMACS-2022.3-rocm-amd1_174.yaml" .. " installs it")
   end
   run() {
      key = "GROMACS",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install GROMACS-2022.3-rocm-amd1_174.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/GROMACS-2022.3-rocm-amd1_174.sif",
         "/appl/local/containers/easybuild-sif-images/GROMACS-2022.3-rocm-amd1_174.sif",
      },
      image_variables = { "SIF", "SIFGROMACS" },
      python_key = "ed5cd96c",
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
         EBVERSIONGROMACS = "2022.3",
      },
   }
end
