-- PyTorch/2.1.0-rocm-5.6.1-python-3.10-singularity-20231123: written by sifmod from PyTorch-2.1.0-rocm-5.6.1-python-3.10-singularity-20231123.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/PyTorch/.generations/2.1.0-rocm-5.6.1-python-3.10-singularity-20231123/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
PyTorch with ROCm, in the container that AMD built for LUMI.

Commands, which run inside the container image:
  python, python3, pip, pip3, start-shell, list-packages, torchrun
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

  module load PyTorch/2.1.0-rocm-5.6.1-python-3.10-singularity-20231123 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: torch 2.1.0

Image: lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.1.0-dockerhash-10b8c0aaec73.sif
Installed again by: sifmod install PyTorch-2.1.0-rocm-5.6.1-python-3.10-singularity-20231123.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://pytorch.org
  https://lumi-supercomputer.github.io/LUMI-EasyBuild-docs/
]==])
whatis("Description: PyTorch with ROCm, in the container that AMD built for LUMI.")
whatis("Keywords: PyTorch, DeepSpeed, flash-attention, xformers, vllm")
whatis("Category: ai")
whatis("License: BSD-3-Clause")
whatis("URL: https://pytorch.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("torch/2.1.0")
end
conflict("singularity-AI-bindings")

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "PyTorch-2.1.0-rocm-5.6.1-python-3.10-singularity-20231123.yaml" .. " installs it")
   end
   run() {
      key = "PyTorch",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install PyTorch-2.1.0-rocm-5.6.1-python-3.10-singularity-20231123.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.1.0-dockerhash-10b8c0aaec73.sif",
         "/appl/local/containers/easybuild-sif-images/lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.1.0-dockerhash-10b8c0aaec73.sif",
      },
      image_variables = { "SIF", "SIFPYTORCH" },
      python_key = "220558be",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
         { "/usr/lib64/libjansson.so.4", optional = true },
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
      layers = "PyTorch/2.1.0-rocm-5.6.1-python-3.10-singularity-20231123", -- below a directory of layers, which `sifmod add` makes
      layer_target = "/user-layer",
      flags = {},
      path_inside = {
         "/runscripts",
         "/opt/miniconda3/envs/pytorch/bin",
         "/opt/miniconda3/condabin",
      },
      env_inside = {
         CONDA_DEFAULT_ENV = "pytorch",
         CONDA_EXE = "/opt/miniconda3/bin/conda",
         CONDA_PREFIX = "/opt/miniconda3/envs/pytorch",
         LD_PRELOAD = "",
         PIP_USER = "0",
         PYTHONNOUSERSITE = "1",
         PYTHONPATH = "/runscripts/.pip",
         WITH_CONDA = "source /opt/miniconda3/bin/activate pytorch",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSPYTORCH = root .. "/runscripts",
         WITH_CONDA = "source /opt/miniconda3/bin/activate pytorch",
         CONTAINERROOT = root,
         EBROOTPYTORCH = root,
         EBVERSIONPYTORCH = "2.1.0",
      },
   }
end
