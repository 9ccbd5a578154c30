-- sifmod itself, for a clone whose .venv holds it (scripts/demo makes one):
--   module use CLONE/modulefiles ; module load sifmod
help([==[
sifmod installs container images as environment modules, from one YAML file each.

  sifmod doctor
  sifmod search PATTERN
  sifmod install NAME
]==])
whatis("Description: installs container images as environment modules, from one YAML file each")
whatis("Keywords: containers, Apptainer, Singularity, modules")

local clone = myFileName():match("^(.*)/modulefiles/sifmod/")
prepend_path("PATH", pathJoin(clone, ".venv", "bin"))
append_path("MANPATH", "") -- what man finds without it
prepend_path("MANPATH", pathJoin(clone, ".venv", "share", "man"))
