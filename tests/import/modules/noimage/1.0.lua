local uri = ""
set_shell_function("x", capture("which singularity") .. " exec " .. uri .. " x")
