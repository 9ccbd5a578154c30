-- TensorFlow/2.17.0-cuda-12.8-python-3.12-ngc-25.02: written by sifmod from TensorFlow-2.17.0-cuda-12.8-python-3.12-ngc-25.02.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/TensorFlow/.generations/2.17.0-cuda-12.8-python-3.12-ngc-25.02/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
TensorFlow, a machine learning framework, in its vendor's container.

Commands, which run inside the container image:
  python, python3, pip, tensorboard, start-shell, list-packages
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=TensorFlow
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=4
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load TensorFlow/2.17.0-cuda-12.8-python-3.12-ngc-25.02 || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun apptainer exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: tensorflow 2.17.0

Image: docker://nvcr.io/nvidia/tensorflow:25.02-tf2-py3
Installed again by: sifmod install TensorFlow-2.17.0-cuda-12.8-python-3.12-ngc-25.02.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://www.tensorflow.org
  https://docs.nvidia.com/deeplearning/frameworks/tensorflow-release-notes/rel-25-02.html
]==])
whatis("Description: TensorFlow, a machine learning framework, in its vendor's container.")
whatis("Keywords: TensorFlow, Keras, machine learning, deep learning")
whatis("Category: ai")
whatis("License: Apache-2.0")
whatis("URL: https://www.tensorflow.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("tensorflow/2.17.0")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "TensorFlow-2.17.0-cuda-12.8-python-3.12-ngc-25.02.yaml" .. " installs it")
   end
   run() {
      key = "TensorFlow",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install TensorFlow-2.17.0-cuda-12.8-python-3.12-ngc-25.02.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/TensorFlow-2.17.0-cuda-12.8-python-3.12-ngc-25.02.sif",
      },
      image_variables = { "SIF", "SIFTENSORFLOW" },
      python_key = "f04d559e",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      layers = "TensorFlow/2.17.0-cuda-12.8-python-3.12-ngc-25.02", -- below a directory of layers, which `sifmod add` makes
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
         RUNSCRIPTSTENSORFLOW = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTTENSORFLOW = root,
         EBVERSIONTENSORFLOW = "2.17.0",
      },
   }
end
