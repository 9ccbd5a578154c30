-- vLLM/0.31.0-cuda-13.4-python-3.12-ngc-26.10: written by sifmod from vLLM-0.31.0-cuda-13.4-python-3.12-ngc-26.10.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/vLLM/.generations/0.31.0-cuda-13.4-python-3.12-ngc-26.10/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
vLLM, an engine that runs and serves large language models, in its vendor's container.

Commands, which run inside the container image:
  python, python3, pip, vllm, start-shell, list-packages
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=vLLM
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=4
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load vLLM/0.31.0-cuda-13.4-python-3.12-ngc-26.10 || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun apptainer exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: vllm 0.31.0

Image: docker://nvcr.io/nvidia/vllm:26.10-py3
Installed again by: sifmod install vLLM-0.31.0-cuda-13.4-python-3.12-ngc-26.10.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://docs.vllm.ai
  https://docs.nvidia.com/deeplearning/frameworks/vllm-release-notes/rel-26-10.html
]==])
whatis("Description: vLLM, an engine that runs and serves large language models, in its vendor's container.")
whatis("Keywords: vLLM, LLM, inference, machine learning, deep learning")
whatis("Category: ai")
whatis("License: Apache-2.0")
whatis("URL: https://docs.vllm.ai")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("vllm/0.31.0")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "vLLM-0.31.0-cuda-13.4-python-3.12-ngc-26.10.yaml" .. " installs it")
   end
   run() {
      key = "vLLM",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install vLLM-0.31.0-cuda-13.4-python-3.12-ngc-26.10.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/vLLM-0.31.0-cuda-13.4-python-3.12-ngc-26.10.sif",
      },
      image_variables = { "SIF", "SIFVLLM" },
      python_key = "f04d559e",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      layers = "vLLM/0.31.0-cuda-13.4-python-3.12-ngc-26.10", -- below a directory of layers, which `sifmod add` makes
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
         RUNSCRIPTSVLLM = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTVLLM = root,
         EBVERSIONVLLM = "0.31.0",
      },
   }
end
