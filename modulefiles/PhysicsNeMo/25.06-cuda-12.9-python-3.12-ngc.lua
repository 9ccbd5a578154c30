-- PhysicsNeMo/25.06-cuda-12.9-python-3.12-ngc: written by sifmod from PhysicsNeMo-25.06-cuda-12.9-python-3.12-ngc.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/PhysicsNeMo/.generations/25.06-cuda-12.9-python-3.12-ngc/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
NVIDIA PhysicsNeMo, deep learning for physics and simulations, in NVIDIA's container.

Commands, which run inside the container image:
  python, python3, pip, torchrun, start-shell, list-packages
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=PhysicsNeMo
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=4
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load PhysicsNeMo/25.06-cuda-12.9-python-3.12-ngc || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun apptainer exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: torch 2.7.0

Image: docker://nvcr.io/nvidia/physicsnemo/physicsnemo:25.06
Installed again by: sifmod install PhysicsNeMo-25.06-cuda-12.9-python-3.12-ngc.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://github.com/NVIDIA/physicsnemo
]==])
whatis("Description: NVIDIA PhysicsNeMo, deep learning for physics and simulations, in NVIDIA's container.")
whatis("Keywords: PhysicsNeMo, Modulus, physics, surrogate models, PyTorch, machine learning")
whatis("Category: ai")
whatis("License: Apache-2.0")
whatis("URL: https://github.com/NVIDIA/physicsnemo")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("torch/2.7.0")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "PhysicsNeMo-25.06-cuda-12.9-python-3.12-ngc.yaml" .. " installs it")
   end
   run() {
      key = "PhysicsNeMo",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install PhysicsNeMo-25.06-cuda-12.9-python-3.12-ngc.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/PhysicsNeMo-25.06-cuda-12.9-python-3.12-ngc.sif",
      },
      image_variables = { "SIF", "SIFPHYSICSNEMO" },
      python_key = "f04d559e",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      layers = "PhysicsNeMo/25.06-cuda-12.9-python-3.12-ngc", -- below a directory of layers, which `sifmod add` makes
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
         RUNSCRIPTSPHYSICSNEMO = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTPHYSICSNEMO = root,
         EBVERSIONPHYSICSNEMO = "25.06",
      },
   }
end
