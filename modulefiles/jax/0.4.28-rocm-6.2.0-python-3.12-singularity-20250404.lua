-- jax/0.4.28-rocm-6.2.0-python-3.12-singularity-20250404: written by sifmod from jax-0.4.28-rocm-6.2.0-python-3.12-singularity-20250404.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/jax/.generations/0.4.28-rocm-6.2.0-python-3.12-singularity-20250404/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
JAX with ROCm, in the container that AMD built for LUMI.

Commands, which run inside the container image:
  python, python3, python3.12, pip, pip3, start-shell, list-packages
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

  module load jax/0.4.28-rocm-6.2.0-python-3.12-singularity-20250404 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Your own additions: $CONTAINERROOT/user-software, which is /user-software inside; make-squashfs packs it.

Contents: jax 0.4.28, numpy 2.2.2, scipy 1.15.2, pandas 2.2.3

Image: lumi-jax-rocm-6.2.0-python-3.12-jax-0.4.28-dockerhash-1441a4bce06f.sif
Installed again by: sifmod install jax-0.4.28-rocm-6.2.0-python-3.12-singularity-20250404.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://jax.readthedocs.io/en/latest/
  https://lumi-supercomputer.github.io/LUMI-EasyBuild-docs/
]==])
whatis("Description: JAX with ROCm, in the container that AMD built for LUMI.")
whatis("Keywords: JAX")
whatis("Category: ai")
whatis("License: Apache-2.0")
whatis("URL: https://jax.readthedocs.io/en/latest/")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("jax/0.4.28, numpy/2.2.2, scipy/1.15.2, pandas/2.2.3")
end
conflict("singularity-AI-bindings")

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "jax-0.4.28-rocm-6.2.0-python-3.12-singularity-20250404.yaml" .. " installs it")
   end
   run() {
      key = "jax",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install jax-0.4.28-rocm-6.2.0-python-3.12-singularity-20250404.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/lumi-jax-rocm-6.2.0-python-3.12-jax-0.4.28-dockerhash-1441a4bce06f.sif",
         "/appl/local/containers/easybuild-sif-images/lumi-jax-rocm-6.2.0-python-3.12-jax-0.4.28-dockerhash-1441a4bce06f.sif",
      },
      image_variables = { "SIF", "SIFJAX" },
      python_key = "c76372ea",
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
      user_software = { -- the first that exists
         root .. "/user-software.squashfs:/user-software:ro,image-src=/",
         root .. "/user-software:/user-software",
      },
      layers = "jax/0.4.28-rocm-6.2.0-python-3.12-singularity-20250404", -- below a directory of layers, which `sifmod add` makes
      layer_target = "/user-layer",
      flags = {},
      path_inside = {
         "/runscripts",
         "/user-software/venv/jax/bin",
      },
      env_inside = {
         LD_PRELOAD = "",
         PIP_USER = "0",
         PYTHONNOUSERSITE = "1",
         PYTHONPATH = "/runscripts/.pip",
         VIRTUAL_ENV = "/user-software/venv/jax",
         WITH_CONDA = "true",
         WITH_CONDA_VENV = "true",
         WITH_VENV = "true",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSJAX = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTJAX = root,
         EBVERSIONJAX = "0.4.28",
         NCCL_NET_GDR_LEVEL = "3",
         NCCL_SOCKET_IFNAME = "hsn",
      },
   }
end
