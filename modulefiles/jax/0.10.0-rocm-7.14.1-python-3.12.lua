-- jax/0.10.0-rocm-7.14.1-python-3.12: written by sifmod from jax-0.10.0-rocm-7.14.1-python-3.12.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/jax/.generations/0.10.0-rocm-7.14.1-python-3.12/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
JAX, NumPy with automatic differentiation and a compiler for accelerators, in its vendor's container.

Commands, which run inside the container image:
  python, python3, pip, start-shell, list-packages
and any other one:
  singularity exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=jax
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=8
  #SBATCH --gpus-per-node=8
  #SBATCH --cpus-per-task=7
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load jax/0.10.0-rocm-7.14.1-python-3.12 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: jax 0.10.0

Image: docker://rocm/jax:rocm7.14.1-jax0.10.0-py3.12
Installed again by: sifmod install jax-0.10.0-rocm-7.14.1-python-3.12.yaml --prefix ]==] .. word(prefix) .. [==[

Quirks of this image or site:
  rocm-7-gdr-level: no NCCL_NET_GDR_LEVEL with ROCm 7 (no NCCL_NET_GDR_LEVEL)
    Jobs on several nodes hang when it is set, whatever its value; RCCL finds the right one itself. (https://github.com/lumi-ai-factory/laifs-container-recipes/issues/30)
More information:
  https://docs.jax.dev
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
         .. "sifmod install " .. "jax-0.10.0-rocm-7.14.1-python-3.12.yaml" .. " installs it")
   end
   run() {
      key = "jax",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install jax-0.10.0-rocm-7.14.1-python-3.12.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/jax-0.10.0-rocm-7.14.1-python-3.12.sif",
         "/appl/local/containers/easybuild-sif-images/jax-0.10.0-rocm-7.14.1-python-3.12.sif",
      },
      image_variables = { "SIF", "SIFJAX" },
      python_key = "f04d559e",
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
      layers = "jax/0.10.0-rocm-7.14.1-python-3.12", -- below a directory of layers, which `sifmod add` makes
      layer_target = "/user-layer",
      flags = {},
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
