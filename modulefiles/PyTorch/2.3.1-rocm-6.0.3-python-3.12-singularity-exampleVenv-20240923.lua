-- PyTorch/2.3.1-rocm-6.0.3-python-3.12-singularity-exampleVenv-20240923: written by sifmod from PyTorch-2.3.1-rocm-6.0.3-python-3.12-singularity-exampleVenv-20240923.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/PyTorch/.generations/2.3.1-rocm-6.0.3-python-3.12-singularity-exampleVenv-20240923/1"
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

  module load PyTorch/2.3.1-rocm-6.0.3-python-3.12-singularity-exampleVenv-20240923 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Your own additions: $CONTAINERROOT/user-software, which is /user-software inside; make-squashfs packs it.

Contents: torch 2.3.1, deepspeed 0.14.0, flash-attn 2.6.3, transformers 4.41.2, mpi4py 3.1.6

Image: lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.3.1-dockerhash-2c1c14cafd28.sif
Installed again by: sifmod install PyTorch-2.3.1-rocm-6.0.3-python-3.12-singularity-exampleVenv-20240923.yaml --prefix ]==] .. word(prefix) .. [==[

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
   extensions("torch/2.3.1, deepspeed/0.14.0, flash-attn/2.6.3, transformers/4.41.2, mpi4py/3.1.6")
end
conflict("singularity-AI-bindings")

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "PyTorch-2.3.1-rocm-6.0.3-python-3.12-singularity-exampleVenv-20240923.yaml" .. " installs it")
   end
   run() {
      key = "PyTorch",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install PyTorch-2.3.1-rocm-6.0.3-python-3.12-singularity-exampleVenv-20240923.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.3.1-dockerhash-2c1c14cafd28.sif",
         "/appl/local/containers/easybuild-sif-images/lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.3.1-dockerhash-2c1c14cafd28.sif",
      },
      image_variables = { "SIF", "SIFPYTORCH" },
      python_key = "f4e2fcca",
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
      user_software = { -- the first that exists
         root .. "/user-software.squashfs:/user-software:ro,image-src=/",
         root .. "/user-software:/user-software",
      },
      layers = "PyTorch/2.3.1-rocm-6.0.3-python-3.12-singularity-exampleVenv-20240923", -- below a directory of layers, which `sifmod add` makes
      layer_target = "/user-layer",
      flags = {},
      path_inside = {
         "/runscripts",
         "/user-software/venv/pytorch/bin",
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
         VIRTUAL_ENV = "/user-software/venv/pytorch",
         WITH_CONDA = "source /opt/miniconda3/bin/activate pytorch",
         WITH_CONDA_VENV = "source /runscripts/init-conda-venv",
         WITH_VENV = "source /user-software/venv/pytorch/bin/activate",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSPYTORCH = root .. "/runscripts",
         WITH_CONDA = "source /opt/miniconda3/bin/activate pytorch",
         CONTAINERROOT = root,
         EBROOTPYTORCH = root,
         EBVERSIONPYTORCH = "2.3.1",
      },
   }
end
