-- jax/0.10.0-cuda-13.2-python-3.12-ngc-26.05: written by sifmod from jax-0.10.0-cuda-13.2-python-3.12-ngc-26.05.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/jax/.generations/0.10.0-cuda-13.2-python-3.12-ngc-26.05/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
JAX, NumPy with automatic differentiation and a compiler for accelerators, in its vendor's container.

Commands, which run inside the container image:
  python, python3, pip, start-shell, list-packages
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=jax
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=4
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load jax/0.10.0-cuda-13.2-python-3.12-ngc-26.05 || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun apptainer exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: jax 0.10.0

Image: docker://nvcr.io/nvidia/jax:26.05-py3
Installed again by: sifmod install jax-0.10.0-cuda-13.2-python-3.12-ngc-26.05.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://docs.jax.dev
  https://docs.nvidia.com/deeplearning/frameworks/jax-release-notes/rel-26-05.html
]==])
whatis("Description: JAX, NumPy with automatic differentiation and a compiler for accelerators, in its vendor's container.")
whatis("Keywords: JAX, machine learning, deep learning")
whatis("Category: ai")
whatis("License: Apache-2.0")
whatis("URL: https://docs.jax.dev")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("jax/0.10.0")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "jax-0.10.0-cuda-13.2-python-3.12-ngc-26.05.yaml" .. " installs it")
   end
   run() {
      key = "jax",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install jax-0.10.0-cuda-13.2-python-3.12-ngc-26.05.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/jax-0.10.0-cuda-13.2-python-3.12-ngc-26.05.sif",
      },
      image_variables = { "SIF", "SIFJAX" },
      python_key = "f04d559e",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      layers = "jax/0.10.0-cuda-13.2-python-3.12-ngc-26.05", -- below a directory of layers, which `sifmod add` makes
      layer_target = "/user-layer",
      flags = { "NV" },
      path_inside = {
         "/runscripts",
      },
      env_inside = {
         LD_PRELOAD = "",
         PIP_USER = "0",
         PYTHONNOUSERSITE = "1",
         PYTHONPATH = "/runscripts/.pip",
         WITH_CONDA = "true",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSJAX = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTJAX = root,
         EBVERSIONJAX = "0.10.0",
      },
   }
end
