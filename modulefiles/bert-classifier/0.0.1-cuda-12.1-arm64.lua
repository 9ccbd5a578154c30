-- bert-classifier/0.0.1-cuda-12.1-arm64: written by sifmod from bert-classifier-0.0.1.yaml --variant vista; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/bert-classifier/.generations/0.0.1-cuda-12.1-arm64/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
A classifier of texts by BERT, with the packages that it was written for.

Commands, which run inside the container image:
  python, python3, pip, torchrun, start-shell, list-packages, classify
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=bert-classifier
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=4
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load bert-classifier/0.0.1-cuda-12.1-arm64 || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun apptainer exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: transformers 4.16.2

Image: built from docker://nvcr.io/nvidia/pytorch:23.03-py3 with requirements-arm64.txt, code
Installed again by: sifmod install bert-classifier-0.0.1.yaml --variant vista --prefix ]==] .. word(prefix) .. [==[

More information:
  https://github.com/eriksf/bert-classifier
]==])
whatis("Description: A classifier of texts by BERT, with the packages that it was written for.")
whatis("Keywords: PyTorch, machine learning, deep learning")
whatis("Category: ai")
whatis("License: BSD-3-Clause")
whatis("URL: https://github.com/eriksf/bert-classifier")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("transformers/4.16.2")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "bert-classifier-0.0.1.yaml --variant vista" .. " installs it")
   end
   run() {
      key = "bert_2Dclassifier",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install bert-classifier-0.0.1.yaml --variant vista --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/bert-classifier-0.0.1-cuda-12.1-arm64.sif",
      },
      image_variables = { "SIF", "SIFBERTMINCLASSIFIER" },
      python_key = "f04d559e",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      layers = "bert-classifier/0.0.1-cuda-12.1-arm64", -- below a directory of layers, which `sifmod add` makes
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
         RUNSCRIPTSBERTMINCLASSIFIER = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTBERTMINCLASSIFIER = root,
         EBVERSIONBERTMINCLASSIFIER = "0.0.1",
      },
   }
end
