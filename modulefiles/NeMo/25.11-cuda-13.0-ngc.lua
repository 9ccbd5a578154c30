-- NeMo/25.11-cuda-13.0-ngc: written by sifmod from NeMo-25.11-cuda-13.0-ngc.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/NeMo/.generations/25.11-cuda-13.0-ngc/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
NVIDIA NeMo Framework, training of large models with Megatron, in NVIDIA's container.

Commands, which run inside the container image:
  python, python3, pip, torchrun, start-shell, list-packages
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=NeMo
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=4
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load NeMo/25.11-cuda-13.0-ngc || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun apptainer exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: torch 2.9.0a0, megatron-core 0.15.0, megatron-bridge 0.2.0

Image: docker://nvcr.io/nvidia/nemo:25.11
Installed again by: sifmod install NeMo-25.11-cuda-13.0-ngc.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://docs.nvidia.com/nemo/megatron-bridge/latest/
]==])
whatis("Description: NVIDIA NeMo Framework, training of large models with Megatron, in NVIDIA's container.")
whatis("Keywords: NeMo, Megatron, LLM, training, PyTorch, machine learning")
whatis("Category: ai")
whatis("License: NVIDIA Deep Learning Container License")
whatis("URL: https://docs.nvidia.com/nemo/megatron-bridge/latest/")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("torch/2.9.0a0, megatron-core/0.15.0, megatron-bridge/0.2.0")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "NeMo-25.11-cuda-13.0-ngc.yaml" .. " installs it")
   end
   run() {
      key = "NeMo",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install NeMo-25.11-cuda-13.0-ngc.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/NeMo-25.11-cuda-13.0-ngc.sif",
      },
      image_variables = { "SIF", "SIFNEMO" },
      python_key = "f04d559e",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      layers = "NeMo/25.11-cuda-13.0-ngc", -- below a directory of layers, which `sifmod add` makes
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
         RUNSCRIPTSNEMO = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTNEMO = root,
         EBVERSIONNEMO = "25.11",
      },
   }
end
