-- PyTorch/2.6.0-rocm-6.2.4-python-3.12-singularity-20250326: written by sifmod from PyTorch-2.6.0-rocm-6.2.4-python-3.12-singularity-20250326.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/PyTorch/.generations/2.6.0-rocm-6.2.4-python-3.12-singularity-20250326/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
PyTorch with ROCm, in the container that AMD built for LUMI.

Commands, which run inside the container image:
  python, python3, python3.12, pip, pip3, start-shell, list-packages, pip3.12, torchrun, accelerate, huggingface-cli, ray
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

  module load PyTorch/2.6.0-rocm-6.2.4-python-3.12-singularity-20250326 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Your own additions: $CONTAINERROOT/user-software, which is /user-software inside; make-squashfs packs it.

Contents: torch 2.6.0, deepspeed 0.15.1, flash-attn 2.7.3, transformers 4.50.1, xformers 0.0.30+a0a401e4.d20250322, vllm 0.7.2+rocm624, mpi4py 3.1.6

Image: lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.6.0-dockerhash-33fb441e91f5.sif
Installed again by: sifmod install PyTorch-2.6.0-rocm-6.2.4-python-3.12-singularity-20250326.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://pytorch.org
  https://lumi-supercomputer.github.io/LUMI-EasyBuild-docs/
]==])
whatis("Description: PyTorch with ROCm, in the container that AMD built for LUMI.")
whatis("Keywords: PyTorch, DeepSpeed, flash-attention, xformers, vllm")
whatis("Category: ai")
whatis("URL: https://pytorch.org")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("torch/2.6.0, deepspeed/0.15.1, flash-attn/2.7.3, transformers/4.50.1, xformers/0.0.30+a0a401e4.d20250322, vllm/0.7.2+rocm624, mpi4py/3.1.6")
end
conflict("singularity-AI-bindings")

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "PyTorch-2.6.0-rocm-6.2.4-python-3.12-singularity-20250326.yaml" .. " installs it")
   end
   run() {
      key = "PyTorch",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install PyTorch-2.6.0-rocm-6.2.4-python-3.12-singularity-20250326.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.6.0-dockerhash-33fb441e91f5.sif",
         "/appl/local/containers/easybuild-sif-images/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.6.0-dockerhash-33fb441e91f5.sif",
      },
      image_variables = { "SIF", "SIFPYTORCH" },
      python_key = "d67a6bbc",
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
      layers = "PyTorch/2.6.0-rocm-6.2.4-python-3.12-singularity-20250326", -- below a directory of layers, which `sifmod add` makes
      layer_target = "/user-layer",
      flags = {},
      path_inside = {
         "/runscripts",
         "/user-software/venv/pytorch/bin",
      },
      env_inside = {
         LD_PRELOAD = "",
         PIP_USER = "0",
         PYTHONNOUSERSITE = "1",
         PYTHONPATH = "/runscripts/.pip",
         VIRTUAL_ENV = "/user-software/venv/pytorch",
         WITH_CONDA = "true",
         WITH_CONDA_VENV = "true",
         WITH_VENV = "true",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSPYTORCH = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTPYTORCH = root,
         EBVERSIONPYTORCH = "2.6.0",
         NCCL_NET_GDR_LEVEL = "3",
         NCCL_SOCKET_IFNAME = "hsn",
      },
   }
end
