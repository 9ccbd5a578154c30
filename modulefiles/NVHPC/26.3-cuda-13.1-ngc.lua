-- NVHPC/26.3-cuda-13.1-ngc: written by sifmod from NVHPC-26.3-cuda-13.1-ngc.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/NVHPC/.generations/26.3-cuda-13.1-ngc/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
NVIDIA HPC SDK, compilers and libraries for C, C++, Fortran and CUDA, in NVIDIA's container.

Commands, which run inside the container image:
  nvc, nvc++, nvfortran, nvcc, mpicc, mpicxx, mpifort, mpirun, start-shell
and any other one:
  apptainer exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=NVHPC
  #SBATCH --nodes=1
  #SBATCH --ntasks-per-node=1
  #SBATCH --gpus-per-node=4
  #SBATCH --exclusive
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load NVHPC/26.3-cuda-13.1-ngc || exit
  export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
  srun nvc

More directories inside:
  export APPTAINER_BIND=SOURCE:TARGET

Contents: nvhpc 26.3, cuda 13.1

Image: docker://nvcr.io/nvidia/nvhpc:26.3-devel-cuda13.1-ubuntu24.04
Installed again by: sifmod install NVHPC-26.3-cuda-13.1-ngc.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://developer.nvidia.com/hpc-sdk
  https://docs.nvidia.com/hpc-sdk/archive/26.3/release-notes/index.html
]==])
whatis("Description: NVIDIA HPC SDK, compilers and libraries for C, C++, Fortran and CUDA, in NVIDIA's container.")
whatis("Keywords: NVHPC, compiler, Fortran, OpenACC, CUDA, MPI")
whatis("Category: compiler")
whatis("License: NVIDIA HPC SDK End-User License Agreement")
whatis("URL: https://developer.nvidia.com/hpc-sdk")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("nvhpc/26.3, cuda/13.1")
end

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "NVHPC-26.3-cuda-13.1-ngc.yaml" .. " installs it")
   end
   run() {
      key = "NVHPC",
      root = root,
      runtime = "apptainer",
      reinstall = "sifmod install NVHPC-26.3-cuda-13.1-ngc.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/NVHPC-26.3-cuda-13.1-ngc.sif",
      },
      image_variables = { "SIF", "SIFNVHPC" },
      python_key = "f04d559e",
      binds = {
         { root .. "/runscripts:/runscripts:ro" },
      },
      flags = { "NV" },
      path_inside = {
         "/runscripts",
      },
      env_inside = {
         LD_PRELOAD = "",
         PYTHONPATH = "",
         WITH_CONDA = "true",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSNVHPC = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTNVHPC = root,
         EBVERSIONNVHPC = "26.3",
      },
   }
end
