-- TensorFlow/2.21-rocm-7.14.1-python-3.12: written by sifmod from TensorFlow-2.21-rocm-7.14.1-python-3.12.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/TensorFlow/.generations/2.21-rocm-7.14.1-python-3.12/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
TensorFlow, a machine learning framework, in its vendor's container.

Commands, which run inside the container image:
  python, python3, pip, tensorboard, start-shell, list-packages
and any other one:
  singularity exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=TensorFlow
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=8
  #SBATCH --gpus-per-node=8
  #SBATCH --cpus-per-task=7
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load TensorFlow/2.21-rocm-7.14.1-python-3.12 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: tensorflow 2.21

Image: docker://rocm/tensorflow:rocm7.14.1-ubuntu24.04-py3.12-tf2.21
Installed again by: sifmod install TensorFlow-2.21-rocm-7.14.1-python-3.12.yaml --prefix ]==] .. word(prefix) .. [==[

Quirks of this image or site:
  rocm-7-gdr-level: no NCCL_NET_GDR_LEVEL with ROCm 7 (no NCCL_NET_GDR_LEVEL)
    Jobs on several nodes hang when it is set, whatever its value; RCCL finds the right one itself. (https://github.com/lumi-ai-factory/laifs-container-recipes/issues/30)
More information:
  https://www.tensorflow.org
]==])
whatis("Description: TensorFlow, a machine learning framework, in its vendor's container.")
whatis("Keywords: TensorFlow, Keras, machine learning, deep learning")
whatis("Category: ai")
whatis("License: Apache-2.0")
whatis("URL: https://www.tensorflow.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("tensorflow/2.21")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "TensorFlow-2.21-rocm-7.14.1-python-3.12.yaml" .. " installs it")
   end
   run() {
      key = "TensorFlow",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install TensorFlow-2.21-rocm-7.14.1-python-3.12.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/TensorFlow-2.21-rocm-7.14.1-python-3.12.sif",
         "/appl/local/containers/easybuild-sif-images/TensorFlow-2.21-rocm-7.14.1-python-3.12.sif",
      },
      image_variables = { "SIF", "SIFTENSORFLOW" },
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
      layers = "TensorFlow/2.21-rocm-7.14.1-python-3.12", -- below a directory of layers, which `sifmod add` makes
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
         RUNSCRIPTSTENSORFLOW = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTTENSORFLOW = root,
         EBVERSIONTENSORFLOW = "2.21",
      },
   }
end
