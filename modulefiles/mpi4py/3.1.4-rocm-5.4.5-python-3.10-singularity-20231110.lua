-- mpi4py/3.1.4-rocm-5.4.5-python-3.10-singularity-20231110: written by sifmod from mpi4py-3.1.4-rocm-5.4.5-python-3.10-singularity-20231110.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/mpi4py/.generations/3.1.4-rocm-5.4.5-python-3.10-singularity-20231110/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
mpi4py and CuPy with ROCm, in the container that AMD built for LUMI.

Commands, which run inside the container image:
  python, python3, pip, pip3, start-shell, list-packages
and any other one:
  singularity exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=mpi4py
  #SBATCH --nodes=2
  #SBATCH --ntasks-per-node=8
  #SBATCH --gpus-per-node=8
  #SBATCH --cpus-per-task=7
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load mpi4py/3.1.4-rocm-5.4.5-python-3.10-singularity-20231110 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun --cpu-bind=mask_cpu:0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000 singularity exec "$SIF" conda-python-distributed -u train.py

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: mpi4py 3.1.4

Image: lumi-mpi4py-rocm-5.4.5-python-3.10-mpi4py-3.1.4-dockerhash-7fd741532a9f.sif
Installed again by: sifmod install mpi4py-3.1.4-rocm-5.4.5-python-3.10-singularity-20231110.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://github.com/mpi4py/mpi4py
  https://mpi4py.readthedocs.io/en/
]==])
whatis("Description: mpi4py and CuPy with ROCm, in the container that AMD built for LUMI.")
whatis("Category: mpi")
whatis("URL: https://github.com/mpi4py/mpi4py")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("mpi4py/3.1.4")
end
conflict("singularity-AI-bindings")

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "mpi4py-3.1.4-rocm-5.4.5-python-3.10-singularity-20231110.yaml" .. " installs it")
   end
   run() {
      key = "mpi4py",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install mpi4py-3.1.4-rocm-5.4.5-python-3.10-singularity-20231110.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/lumi-mpi4py-rocm-5.4.5-python-3.10-mpi4py-3.1.4-dockerhash-7fd741532a9f.sif",
         "/appl/local/containers/easybuild-sif-images/lumi-mpi4py-rocm-5.4.5-python-3.10-mpi4py-3.1.4-dockerhash-7fd741532a9f.sif",
      },
      image_variables = { "SIF", "SIFMPI4PY" },
      python_key = "3ec6b3b9",
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
      layers = "mpi4py/3.1.4-rocm-5.4.5-python-3.10-singularity-20231110", -- below a directory of layers, which `sifmod add` makes
      layer_target = "/user-layer",
      flags = {},
      path_inside = {
         "/runscripts",
         "/opt/miniconda3/envs/mpi4py/bin",
         "/opt/miniconda3/condabin",
      },
      env_inside = {
         CONDA_DEFAULT_ENV = "mpi4py",
         CONDA_EXE = "/opt/miniconda3/bin/conda",
         CONDA_PREFIX = "/opt/miniconda3/envs/mpi4py",
         LD_PRELOAD = "",
         PIP_USER = "0",
         PYTHONNOUSERSITE = "1",
         PYTHONPATH = "/runscripts/.pip",
         WITH_CONDA = "source /opt/miniconda3/bin/activate mpi4py",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSMPI4PY = root .. "/runscripts",
         WITH_CONDA = "source /opt/miniconda3/bin/activate mpi4py",
         CONTAINERROOT = root,
         EBROOTMPI4PY = root,
         EBVERSIONMPI4PY = "3.1.4",
      },
   }
end
