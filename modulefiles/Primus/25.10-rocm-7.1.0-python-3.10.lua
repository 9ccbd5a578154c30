-- Primus/25.10-rocm-7.1.0-python-3.10: written by sifmod from Primus-25.10-rocm-7.1.0-python-3.10.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/Primus/.generations/25.10-rocm-7.1.0-python-3.10/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
Primus, training of large models on AMD's Instinct MI300 and later, in AMD's container.

Commands, which run inside the container image:
  python, python3, pip, torchrun, start-shell, list-packages
and any other one:
  singularity exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=Primus
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=8
  #SBATCH --gpus-per-node=8
  #SBATCH --cpus-per-task=7
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load Primus/25.10-rocm-7.1.0-python-3.10 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: torch 2.10.0.dev20251112

Image: docker://rocm/primus:v25.10@sha256:140c37cd2eeeb183759b9622543fc03cc210dc97cbfa18eeefdcbda84420c197
Installed again by: sifmod install Primus-25.10-rocm-7.1.0-python-3.10.yaml --prefix ]==] .. word(prefix) .. [==[

Quirks of this image or site:
  rocm-7-gdr-level: no NCCL_NET_GDR_LEVEL with ROCm 7 (no NCCL_NET_GDR_LEVEL)
    Jobs on several nodes hang when it is set, whatever its value; RCCL finds the right one itself. (https://github.com/lumi-ai-factory/laifs-container-recipes/issues/30)
More information:
  https://github.com/AMD-AGI/Primus
  https://rocm.docs.amd.com/projects/primus/en/latest/
]==])
whatis("Description: Primus, training of large models on AMD's Instinct MI300 and later, in AMD's container.")
whatis("Keywords: Primus, Megatron, TorchTitan, LLM, training, PyTorch, machine learning")
whatis("Category: ai")
whatis("License: MIT")
whatis("URL: https://github.com/AMD-AGI/Primus")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("torch/2.10.0.dev20251112")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "Primus-25.10-rocm-7.1.0-python-3.10.yaml" .. " installs it")
   end
   run() {
      key = "Primus",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install Primus-25.10-rocm-7.1.0-python-3.10.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/Primus-25.10-rocm-7.1.0-python-3.10.sif",
         "/appl/local/containers/easybuild-sif-images/Primus-25.10-rocm-7.1.0-python-3.10.sif",
      },
      image_variables = { "SIF", "SIFPRIMUS" },
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
      layers = "Primus/25.10-rocm-7.1.0-python-3.10", -- below a directory of layers, which `sifmod add` makes
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
         RUNSCRIPTSPRIMUS = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTPRIMUS = root,
         EBVERSIONPRIMUS = "25.10",
      },
   }
end
