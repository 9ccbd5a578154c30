-- TensorFlow/2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20231110: written by sifmod from TensorFlow-2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20231110.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/TensorFlow/.generations/2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20231110/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
TensorFlow and Horovod with ROCm, in the container that AMD built for LUMI.

Commands, which run inside the container image:
  python, python3, pip, pip3, start-shell, list-packages
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

  module load TensorFlow/2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20231110 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: tensorflow 2.11.1, horovod 0.28.1

Image: lumi-tensorflow-rocm-5.5.1-python-3.10-tensorflow-2.11.1-horovod-0.28.1-dockerhash-9c9351c30d4c.sif
Installed again by: sifmod install TensorFlow-2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20231110.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://www.tensorflow.org
  https://lumi-supercomputer.github.io/LUMI-EasyBuild-docs/
]==])
whatis("Description: TensorFlow and Horovod with ROCm, in the container that AMD built for LUMI.")
whatis("Keywords: TensorFlow, Horovod, machine learning")
whatis("Category: ai")
whatis("License: Apache-2.0")
whatis("URL: https://www.tensorflow.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("tensorflow/2.11.1, horovod/0.28.1")
end
conflict("singularity-AI-bindings")

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "TensorFlow-2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20231110.yaml" .. " installs it")
   end
   run() {
      key = "TensorFlow",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install TensorFlow-2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20231110.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/lumi-tensorflow-rocm-5.5.1-python-3.10-tensorflow-2.11.1-horovod-0.28.1-dockerhash-9c9351c30d4c.sif",
         "/appl/local/containers/easybuild-sif-images/lumi-tensorflow-rocm-5.5.1-python-3.10-tensorflow-2.11.1-horovod-0.28.1-dockerhash-9c9351c30d4c.sif",
      },
      image_variables = { "SIF", "SIFTENSORFLOW" },
      python_key = "61ea6d70",
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
      layers = "TensorFlow/2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20231110", -- below a directory of layers, which `sifmod add` makes
      layer_target = "/user-layer",
      flags = {},
      path_inside = {
         "/runscripts",
         "/opt/miniconda3/envs/tensorflow/bin",
         "/opt/miniconda3/condabin",
      },
      env_inside = {
         CONDA_DEFAULT_ENV = "tensorflow",
         CONDA_EXE = "/opt/miniconda3/bin/conda",
         CONDA_PREFIX = "/opt/miniconda3/envs/tensorflow",
         LD_PRELOAD = "",
         PIP_USER = "0",
         PYTHONNOUSERSITE = "1",
         PYTHONPATH = "/runscripts/.pip",
         WITH_CONDA = "source /opt/miniconda3/bin/activate tensorflow",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSTENSORFLOW = root .. "/runscripts",
         WITH_CONDA = "source /opt/miniconda3/bin/activate tensorflow",
         CONTAINERROOT = root,
         EBROOTTENSORFLOW = root,
         EBVERSIONTENSORFLOW = "2.11.1",
      },
   }
end
