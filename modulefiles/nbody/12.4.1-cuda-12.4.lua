-- nbody/12.4.1-cuda-12.4: written by sifmod from nbody-12.4.1.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/nbody/.generations/12.4.1-cuda-12.4/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
The n-body simulation of NVIDIA's CUDA samples, a benchmark in one program.

Commands, which run inside the container image:
  nbody
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=nbody
  #SBATCH --nodes=1
  #SBATCH --ntasks-per-node=1
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load nbody/12.4.1-cuda-12.4 || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun nbody

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: cuda 12.4.1, cuda-samples 12.4.1

Image: built from nbody/nbody.def
Installed again by: sifmod install nbody-12.4.1.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://github.com/NVIDIA/cuda-samples
]==])
whatis("Description: The n-body simulation of NVIDIA's CUDA samples, a benchmark in one program.")
whatis("Category: phys")
whatis("URL: https://github.com/NVIDIA/cuda-samples")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("cuda/12.4.1, cuda-samples/12.4.1")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "nbody-12.4.1.yaml" .. " installs it")
   end
   run() {
      key = "nbody",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install nbody-12.4.1.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/nbody-12.4.1-cuda-12.4.sif",
      },
      image_variables = { "SIF", "SIFNBODY" },
      python_key = "f04d559e",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      flags = { "NV" },
      path_inside = {
         "/runscripts",
      },
      env_inside = {
         LD_PRELOAD = "",
         PIP_USER = "0",
         PYTHONNOUSERSITE = "1",
         PYTHONPATH = "",
         WITH_CONDA = "true",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSNBODY = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTNBODY = root,
         EBVERSIONNBODY = "12.4.1",
      },
   }
end
