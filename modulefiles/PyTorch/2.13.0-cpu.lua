-- PyTorch/2.13.0-cpu: written by sifmod from PyTorch-2.13.0.yaml --variant cpu; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/PyTorch/.generations/2.13.0-cpu/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
PyTorch, a machine learning framework, in a container.

Commands, which run inside the container image:
  python, python3, pip, torchrun, start-shell, list-packages
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=PyTorch
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=1
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load PyTorch/2.13.0-cpu || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun apptainer exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: torch 2.13.0

Image: docker://pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime
Installed again by: sifmod install PyTorch-2.13.0.yaml --variant cpu --prefix ]==] .. word(prefix) .. [==[

More information:
  https://pytorch.org
]==])
whatis("Description: PyTorch, a machine learning framework, in a container.")
whatis("Keywords: PyTorch, machine learning, deep learning")
whatis("Category: ai")
whatis("License: BSD-3-Clause")
whatis("URL: https://pytorch.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("torch/2.13.0")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "PyTorch-2.13.0.yaml --variant cpu" .. " installs it")
   end
   run() {
      key = "PyTorch",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install PyTorch-2.13.0.yaml --variant cpu --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/PyTorch-2.13.0-cpu.sif",
      },
      image_variables = { "SIF", "SIFPYTORCH" },
      python_key = "51b7adaa",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      layers = "PyTorch/2.13.0-cpu", -- below a directory of layers, which `sifmod add` makes
      layer_target = "/user-layer",
      flags = {},
      path_inside = {
         "/runscripts",
         "/opt/miniconda3/envs/pytorch/bin",
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
         EBVERSIONPYTORCH = "2.13.0",
      },
   }
end
