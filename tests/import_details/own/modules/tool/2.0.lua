-- What test_import_details.py adds to tests/import: names that cannot be wrappers, two kinds of GPUs, both verbs.
help([==[
Description
===========
Counts things.

More information
================
 - Home: https://example.org/tool
 * Manual: 	https://example.org/tool/manual
 - without a link
]==])
whatis("Description: not this one, since there is help")
whatis("Home page: https://example.org/tool")
whatis("Keywords:  counting,   things")
whatis("a line without a colon, and the next one without a text")
whatis("Empty:")
conflict("tool", "other/1.0", "no module")
conflict("other/1.0")
local start = "apptainer exec --nv --rocm -B /data:/data:ro,/data2 oras://registry.example/bio/tool:2.0 "
local entry = "apptainer run oras://registry.example/bio/tool:2.0 "
set_shell_function("count", start .. "count \"$@\"", start .. "count $*")
set_shell_function("count things", start .. "count \"$@\"", start .. "count $*")
set_shell_function("../count", start .. "count \"$@\"", start .. "count $*")
set_alias("count-all", entry .. "count --all")
set_alias("ll", "ls -l")
set_alias("pipe", start .. "count | sort")
if os.getenv("SITE") == "a" then
   setenv("COUNT_SITE", "a")
   pushenv("SINGULARITYENV_COUNT", "$HOME/count")
end
setenv("SINGULARITYENV_COUNT_LEVEL", "3")
setenv("APPTAINER_BIND", "/scratch:/scratch:ro")
setenv("SINGULARITYENV_PREPEND_PATH", "/opt/tool/bin:/opt/more/bin")
if capture("which count") ~= "" then
   append_path("PATH", "/opt/site/bin")
   setenv("COUNT_KNOWN", "1")
end
