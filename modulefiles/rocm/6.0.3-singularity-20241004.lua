-- rocm/6.0.3-singularity-20241004: written by sifmod from rocm-6.0.3-singularity-20241004.yaml; a reinstall replaces it.
local prefix = (...) or myFileName():match("^(.*)/modules/[^/]+/[^/]+$") or "" -- an earlier stub says nothing
local root = prefix .. "/software/rocm/.generations/6.0.3-singularity-20241004/1"
local function word(text) -- of a shell
   return text:find("[^%w_./+@%%=-]") and "'" .. text:gsub("'", "'\\''") .. "'" or text
end

help([==[
ROCm and what is needed to build with it, in the container that AMD built for LUMI.

Commands, which run inside the container image:
  start-shell
and any other one:
  singularity exec "$SIF" COMMAND

A job script:
  #!/bin/bash
  #SBATCH --job-name=rocm
  #SBATCH --nodes=1
  #SBATCH --ntasks-per-node=1
  #SBATCH --gpus-per-node=8
  #SBATCH --cpus-per-task=56
  #SBATCH --time=00:30:00
  #SBATCH --account=PROJECT
  #SBATCH --partition=PARTITION
  module use ]==] .. word(prefix .. "/modules") .. [==[

  module load rocm/6.0.3-singularity-20241004 || exit
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  srun singularity exec "$SIF" COMMAND

More directories inside:
  export SINGULARITY_BIND=SOURCE:TARGET

Contents: rocm 6.0.3

Image: lumi-rocm-rocm-6.0.3-dockerhash-1ada3e019646.sif
Installed again by: sifmod install rocm-6.0.3-singularity-20241004.yaml --prefix ]==] .. word(prefix) .. [==[

More information:
  https://rocm.docs.amd.com
  https://lumi-supercomputer.github.io/LUMI-EasyBuild-docs/
]==])
whatis("Description: ROCm and what is needed to build with it, in the container that AMD built for LUMI.")
whatis("Keywords: ROCm, HIP")
whatis("Category: devel")
whatis("URL: https://rocm.docs.amd.com")
if convertToCanonical(LmodVersion()) >= convertToCanonical("8.2.8") then
   extensions("rocm/6.0.3")
end
conflict("singularity-AI-bindings")

if mode() == "load" or mode() == "unload" or mode() == "show" then
   local run = loadfile(root .. "/share/module.lua")
   if not run then
      LmodError(myModuleFullName() .. " is not installed here: " .. root .. "/share/module.lua cannot be read; "
         .. "sifmod install " .. "rocm-6.0.3-singularity-20241004.yaml" .. " installs it")
   end
   run() {
      key = "rocm",
      root = root,
      runtime = "singularity",
      reinstall = "sifmod install rocm-6.0.3-singularity-20241004.yaml --prefix " .. word(prefix),
      image = { -- the first that exists
         root .. "/lumi-rocm-rocm-6.0.3-dockerhash-1ada3e019646.sif",
         "/appl/local/containers/easybuild-sif-images/lumi-rocm-rocm-6.0.3-dockerhash-1ada3e019646.sif",
      },
      image_variables = { "SIF", "SIFROCM" },
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
      flags = {},
      path_inside = {
         "/runscripts",
      },
      env_inside = {
         LD_PRELOAD = "",
         PIP_USER = "0",
         PYTHONNOUSERSITE = "1",
         PYTHONPATH = "",
         WITH_CONDA = "true",
      },
      env = {
         RUNSCRIPTS = root .. "/runscripts",
         RUNSCRIPTSROCM = root .. "/runscripts",
         WITH_CONDA = "true",
         CONTAINERROOT = root,
         EBROOTROCM = root,
         EBVERSIONROCM = "6.0.3",
      },
   }
end
