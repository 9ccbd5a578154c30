-- PyTorch/2.10.0-rocm-7.14.1-python-3.12: written by sifmod from PyTorch-2.10.0.yaml --variant rocm; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/PyTorch/.generations/2.10.0-rocm-7.14.1-python-3.12/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
PyTorch, a machine learning framework, in a container.

Commands, which run inside the container image:
  python, python3, pip, torchrun, start-shell, list-packages
and any other one:
  singularity exec "$SIF" COMMAND

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

  module load PyTorch/2.10.0-rocm-7.14.1-python-3.12 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: torch 2.10.0

Image: docker://rocm/pytorch:rocm7.14.1_ubuntu24.04_py3.12_pytorch_release_2.10.0
Installed again by: sifmod install PyTorch-2.10.0.yaml --variant rocm --prefix ]==] .. word(prefix) .. [==[

Quirks of this image or site:
  rocm-7-gdr-level: no NCCL_NET_GDR_LEVEL with ROCm 7 (no NCCL_NET_GDR_LEVEL)
    Jobs on several nodes hang when it is set, whatever its value; RCCL finds the right one itself. (https://github.com/lumi-ai-factory/laifs-container-recipes/issues/30)
More information:
  https://pytorch.org
]==])
whatis("Description: PyTorch, a machine learning framework, in a container.")
whatis("Keywords: PyTorch, machine learning, deep learning")
whatis("Category: ai")
whatis("License: BSD-3-Clause")
whatis("URL: https://pytorch.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("torch/2.10.0")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "PyTorch-2.10.0.yaml --variant rocm" .. " installs it")
   end
   run() {
      key = "PyTorch",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install PyTorch-2.10.0.yaml --variant rocm --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/PyTorch-2.10.0-rocm-7.14.1-python-3.12.sif",
         "/appl/local/containers/easybuild-sif-images/PyTorch-2.10.0-rocm-7.14.1-python-3.12.sif",
      },
      image_variables = { "SIF", "SIFPYTORCH" },
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
      layers = "PyTorch/2.10.0-rocm-7.14.1-python-3.12", -- below a directory of layers, which `sifmod add` makes
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
         RUNSCRIPTSPYTORCH = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTPYTORCH = root,
         EBVERSIONPYTORCH = "2.10.0",
      },
   }
end
