-- AlphaFold/69afc4d-rocm-5.5.1-python-3.9-singularity-20231108: written by sifmod from AlphaFold-69afc4d-rocm-5.5.1-python-3.9-singularity-20231108.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/AlphaFold/.generations/69afc4d-rocm-5.5.1-python-3.9-singularity-20231108/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
AlphaFold with ROCm, in the container that AMD built for LUMI.

Commands, which run inside the container image:
  python, python3, pip, pip3, start-shell, list-packages
and any other one:
  singularity exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=AlphaFold
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=8
  #SBATCH --gpus-per-node=8
  #SBATCH --cpus-per-task=7
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load AlphaFold/69afc4d-rocm-5.5.1-python-3.9-singularity-20231108 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: alphafold 69afc4d

Image: lumi-alphafold-rocm-5.5.3-python-3.9-alphafold-69afc4d-dockerhash-b52a3dc67cad.sif
Installed again by: sifmod install AlphaFold-69afc4d-rocm-5.5.1-python-3.9-singularity-20231108.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://github.com/google-deepmind/alphafold
  https://lumi-supercomputer.github.io/LUMI-EasyBuild-docs/
]==])
whatis("Description: AlphaFold with ROCm, in the container that AMD built for LUMI.")
whatis("Keywords: AlphaFold, protein structure")
whatis("Category: bio")
whatis("URL: https://github.com/google-deepmind/alphafold")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("alphafold/69afc4d")
end
conflict("singularity-AI-bindings")

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "AlphaFold-69afc4d-rocm-5.5.1-python-3.9-singularity-20231108.yaml" .. " installs it")
   end
   run() {
      key = "AlphaFold",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install AlphaFold-69afc4d-rocm-5.5.1-python-3.9-singularity-20231108.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/lumi-alphafold-rocm-5.5.3-python-3.9-alphafold-69afc4d-dockerhash-b52a3dc67cad.sif",
         "/appl/local/containers/easybuild-sif-images/lumi-alphafold-rocm-5.5.3-python-3.9-alphafold-69afc4d-dockerhash-b52a3dc67cad.sif",
      },
      image_variables = { "SIF", "SIFALPHAFOLD" },
      python_key = "857e0ddf",
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
      layers = "AlphaFold/69afc4d-rocm-5.5.1-python-3.9-singularity-20231108", -- below a directory of layers, which `sifmod add` makes
      layer_target = "/user-layer",
      flags = {},
      path_inside = {
         "/runscripts",
         "/opt/miniconda3/envs/alphafold/bin",
         "/opt/miniconda3/condabin",
      },
      env_inside = {
         CONDA_DEFAULT_ENV = "alphafold",
         CONDA_EXE = "/opt/miniconda3/bin/conda",
         CONDA_PREFIX = "/opt/miniconda3/envs/alphafold",
         LD_PRELOAD = "",
         PIP_USER = "0",
         PYTHONNOUSERSITE = "1",
         PYTHONPATH = "/runscripts/.pip",
         WITH_CONDA = "source /opt/miniconda3/bin/activate alphafold",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSALPHAFOLD = root .. "/runscripts",
         WITH_CONDA = "source /opt/miniconda3/bin/activate alphafold",
         CONTAINERROOT = root,
         EBROOTALPHAFOLD = root,
         EBVERSIONALPHAFOLD = "69afc4d",
      },
   }
end
