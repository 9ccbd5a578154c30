-- PyTorch/2.1.0-cuda-12.2-python-3.10-ngc-23.10: written by sifmod from PyTorch-2.1.0-cuda-12.2-python-3.10-ngc-23.10.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/PyTorch/.generations/2.1.0-cuda-12.2-python-3.10-ngc-23.10/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
PyTorch with CUDA, in NVIDIA's container.

Commands, which run inside the container image:
  python, python3, pip, torchrun, start-shell, list-packages
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=PyTorch
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=4
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load PyTorch/2.1.0-cuda-12.2-python-3.10-ngc-23.10 || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun apptainer exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: torch 2.1.0a0+32f93b1

Image: docker://nvcr.io/nvidia/pytorch:23.10-py3
Installed again by: sifmod install PyTorch-2.1.0-cuda-12.2-python-3.10-ngc-23.10.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://pytorch.org
  https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/rel-23-10.html
]==])
whatis("Description: PyTorch with CUDA, in NVIDIA's container.")
whatis("Keywords: PyTorch, machine learning, deep learning")
whatis("Category: ai")
whatis("License: NVIDIA Deep Learning Container License")
whatis("URL: https://pytorch.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("torch/2.1.0a0+32f93b1")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "PyTorch-2.1.0-cuda-12.2-python-3.10-ngc-23.10.yaml" .. " installs it")
   end
   run() {
      key = "PyTorch",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install PyTorch-2.1.0-cuda-12.2-python-3.10-ngc-23.10.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/PyTorch-2.1.0-cuda-12.2-python-3.10-ngc-23.10.sif",
      },
      image_variables = { "SIF", "SIFPYTORCH" },
      python_key = "f04d559e",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      layers = "PyTorch/2.1.0-cuda-12.2-python-3.10-ngc-23.10", -- below a directory of layers, which `sifmod add` makes
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
         RUNSCRIPTSPYTORCH = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTPYTORCH = root,
         EBVERSIONPYTORCH = "2.1.0",
      },
   }
end
