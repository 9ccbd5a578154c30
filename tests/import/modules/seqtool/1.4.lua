-- A modulefile that sets up functions which start a container.
--[==[ a comment
  of several lines ]==]
help([==[

Description
===========
Looks at sequences.

More information
================
 - Manual: 	https://example.org/manual
]==])
whatis("Name: seqtool")
whatis("Version: 1.4")
whatis("URL: https://example.org/seqtool")
whatis('Category: biology')

if not (os.getenv("SITE_RUNTIME") == "none") then
   local runtime = os.getenv("SITE_RUNTIME") or "Singularity"
   if not (isloaded(runtime)) then load(runtime) end
end
conflict(myModuleName(), "othertool")
family("sequences")
local image = "seqtool.sif"
local uri = "docker://registry.example/bio/seqtool:1.4"
local programs = {"seqtool", 'seq-view', "ls"}
local entrypoint = ""
local singularity = capture("which singularity | head -c -1")
if (os.getenv("IMAGE_DIR") and mode() == "load") then
   image = pathJoin(os.getenv("IMAGE_DIR"), image)
else
   image = uri
end
local run_args = {}
if (capture("nvidia-smi -L 2>/dev/null") ~= "") then
   LmodMessage("GPUs")
   table.insert(run_args, "--nv")
end
table.insert(run_args, "-B $HOME/.seq:/data,/opt/data:/opt/data")
local launch = singularity .. " run " .. table.concat(run_args, " ") .. " " .. image .. " " .. entrypoint
for i,program in pairs(programs) do
   set_shell_function(program, launch .. " " .. program .. " \"$@\"", launch .. " " .. program .. " $*")
end
set_shell_function("seq-sort", launch .. " seqtool sort --fast \"$@\"", launch .. " seqtool sort --fast $*")
set_alias("seq-copy", launch .. " cp -r /opt/x $1 && echo done")
setenv("LAUNCH_AGENT", launch .. " orted")
setenv("SEQ_LEVEL", 2)
pushenv("SINGULARITYENV_SEQ_DB", "/opt/data/db")
prepend_path{"APPTAINERENV_PREPEND_PATH", "/opt/seq/bin"}
append_path("SINGULARITY_BIND", "/scratch/db", ',')
prepend_path("PATH", "/opt/site/bin")
local function unused(a) return a .. "x" end
while false do print("never") end
