-- vLLM/0.27.0-rocm-10.0.0-python-3.14: written by sifmod from vLLM-0.27.0-rocm-10.0.0-python-3.14.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/vLLM/.generations/0.27.0-rocm-10.0.0-python-3.14/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
vLLM for AMD's Instinct MI300 and later, in AMD's container.

Commands, which run inside the container image:
  python, python3, pip, vllm, start-shell, list-packages
and any other one:
  singularity exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=vLLM
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=8
  #SBATCH --gpus-per-node=8
  #SBATCH --cpus-per-task=7
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load vLLM/0.27.0-rocm-10.0.0-python-3.14 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: vllm 0.27.0

Image: docker://rocm/vllm:rocm10.0.0_ubuntu24.04_py3.14_pytorch_2.12.0_vllm_0.27.0
Installed again by: sifmod install vLLM-0.27.0-rocm-10.0.0-python-3.14.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://docs.vllm.ai
]==])
whatis("Description: vLLM for AMD's Instinct MI300 and later, in AMD's container.")
whatis("Keywords: vLLM, LLM, inference, machine learning, deep learning")
whatis("Category: ai")
whatis("License: Apache-2.0")
whatis("URL: https://docs.vllm.ai")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("vllm/0.27.0")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "vLLM-0.27.0-rocm-10.0.0-python-3.14.yaml" .. " installs it")
   end
   run() {
      key = "vLLM",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install vLLM-0.27.0-rocm-10.0.0-python-3.14.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/vLLM-0.27.0-rocm-10.0.0-python-3.14.sif",
         "/appl/local/containers/easybuild-sif-images/vLLM-0.27.0-rocm-10.0.0-python-3.14.sif",
      },
      image_variables = { "SIF", "SIFVLLM" },
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
      layers = "vLLM/0.27.0-rocm-10.0.0-python-3.14", -- below a directory of layers, which `sifmod add` makes
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
         RUNSCRIPTSVLLM = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTVLLM = root,
         EBVERSIONVLLM = "0.27.0",
      },
   }
end
