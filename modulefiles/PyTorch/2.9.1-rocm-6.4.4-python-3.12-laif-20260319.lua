-- PyTorch/2.9.1-rocm-6.4.4-python-3.12-laif-20260319: written by sifmod from PyTorch-2.9.1-rocm-6.4.4-python-3.12-laif-20260319.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/PyTorch/.generations/2.9.1-rocm-6.4.4-python-3.12-laif-20260319/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
PyTorch, vLLM, DeepSpeed and more with ROCm, in the container of the LUMI AI Factory.

Commands, which run inside the container image:
  python, python3, pip, torchrun, accelerate, start-shell, list-packages
and any other one:
  singularity run "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=PyTorch
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=8
  #SBATCH --gpus-per-node=8
  #SBATCH --cpus-per-task=7
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load PyTorch/2.9.1-rocm-6.4.4-python-3.12-laif-20260319 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity run "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Your own additions: $CONTAINERROOT/user-software, which is /user-software inside; make-squashfs packs it.

Contents: torch 2.9.1

Image: /appl/local/laifs/containers/lumi-multitorch-u24r64f21m43t29-20260319_153422/lumi-multitorch-full-u24r64f21m43t29-20260319_153422.sif
Installed again by: sifmod install PyTorch-2.9.1-rocm-6.4.4-python-3.12-laif-20260319.yaml --prefix ]==] .. word(prefix) .. [==[

Quirks of this image or site:
  laif-mr-cache-monitor: libfabric watches memory by userfaultfd (FI_MR_CACHE_MONITOR=userfaultfd)
    With its default of memhooks jobs on several nodes of LUMI hang now and then when they make a communicator. (https://github.com/Lumi-supercomputer/LUMI-AI-Guide/pull/118)
More information:
  https://pytorch.org
  https://docs.lumi-supercomputer.eu/laif/software/ai-environment/
]==])
whatis("Description: PyTorch, vLLM, DeepSpeed and more with ROCm, in the container of the LUMI AI Factory.")
whatis("Category: ai")
whatis("License: BSD-3-Clause")
whatis("URL: https://pytorch.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("torch/2.9.1")
end
conflict("singularity-AI-bindings", "lumi-aif-singularity-bindings")

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "PyTorch-2.9.1-rocm-6.4.4-python-3.12-laif-20260319.yaml" .. " installs it")
   end
   run() {
      key = "PyTorch",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install PyTorch-2.9.1-rocm-6.4.4-python-3.12-laif-20260319.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/lumi-multitorch-full-u24r64f21m43t29-20260319_153422.sif",
         "/appl/local/containers/easybuild-sif-images/lumi-multitorch-full-u24r64f21m43t29-20260319_153422.sif",
      },
      image_variables = { "SIF", "SIFPYTORCH" },
      python_key = "5be1bca4",
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
      layers = "PyTorch/2.9.1-rocm-6.4.4-python-3.12-laif-20260319", -- below a directory of layers, which `sifmod add` makes
      layer_target = "/user-layer",
      flags = {},
      path_inside = {
         "/runscripts",
         "/user-software/bin",
         "/opt/venv/bin",
      },
      env_inside = {
         FI_MR_CACHE_MONITOR = "userfaultfd",
         LD_PRELOAD = "",
         PIP_USER = "0",
         PYTHONNOUSERSITE = "1",
         PYTHONPATH = "/runscripts/.pip",
         VIRTUAL_ENV = "/opt/venv",
         WITH_CONDA = "source /opt/venv/bin/activate",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSPYTORCH = root .. "/runscripts",
         WITH_CONDA = "source /opt/venv/bin/activate",
         CONTAINERROOT = root,
         EBROOTPYTORCH = root,
         EBVERSIONPYTORCH = "2.9.1",
         SLURM_MPI_TYPE = "pmi2",
      },
   }
end
