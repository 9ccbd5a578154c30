-- Lightning/2.2.0-cuda-12.3-python-3.10-ngc-24.01: written by sifmod from Lightning-2.2.0-cuda-12.3-python-3.10-ngc-24.01.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/Lightning/.generations/2.2.0-cuda-12.3-python-3.10-ngc-24.01/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
Lightning on NVIDIA's PyTorch, which stays as it is.

Commands, which run inside the container image:
  python, python3, pip, torchrun, start-shell, list-packages
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=Lightning
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=4
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load Lightning/2.2.0-cuda-12.3-python-3.10-ngc-24.01 || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun apptainer exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: lightning 2.2.0, torch 2.2.0a0+81ea7a4

Image: built from docker://nvcr.io/nvidia/pytorch:24.01-py3 with lightning==2.2.0
Installed again by: sifmod install Lightning-2.2.0-cuda-12.3-python-3.10-ngc-24.01.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://lightning.ai
]==])
whatis("Description: Lightning on NVIDIA's PyTorch, which stays as it is.")
whatis("Category: ai")
whatis("License: NVIDIA Deep Learning Container License")
whatis("URL: https://lightning.ai")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("lightning/2.2.0, torch/2.2.0a0+81ea7a4")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "Lightning-2.2.0-cuda-12.3-python-3.10-ngc-24.01.yaml" .. " installs it")
   end
   run() {
      key = "Lightning",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install Lightning-2.2.0-cuda-12.3-python-3.10-ngc-24.01.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/Lightning-2.2.0-cuda-12.3-python-3.10-ngc-24.01.sif",
      },
      image_variables = { "SIF", "SIFLIGHTNING" },
      python_key = "f04d559e",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      layers = "Lightning/2.2.0-cuda-12.3-python-3.10-ngc-24.01", -- below a directory of layers, which `sifmod add` makes
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
         RUNSCRIPTSLIGHTNING = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTLIGHTNING = root,
         EBVERSIONLIGHTNING = "2.2.0",
      },
   }
end
