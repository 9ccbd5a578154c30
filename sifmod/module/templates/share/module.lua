-- Loads, unloads and shows a module; the same text in every generation.
--
-- It searches for the image and the sources of binds only at the load, and never runs a program.

local lfs = require("lfs")
local QUIET = { MC_Refresh = true, MC_ComputeHash = true } -- Lmod evaluates a load, and ignores what it does

local function first_file(paths)
   for _, path in ipairs(paths) do
      if lfs.attributes(path, "mode") == "file" then return path end
   end
end

local function exists(bind)
   return lfs.attributes(bind:match("^[^:]*"), "mode") ~= nil
end

-- The bind of the user's own software: of its squashfs, else of its directory, if there is one.
local function user_software(module)
   for number, bind in ipairs(module.user_software or {}) do
      local mode = lfs.attributes(bind:match("^[^:]*"), "mode")
      if mode == (number == 1 and "file" or "directory") then return bind end
   end
end

local function on(name)
   for _, prefix in ipairs({ "SINGULARITY_", "APPTAINER_" }) do
      local value = (os.getenv(prefix .. name) or ""):lower()
      if value ~= "" and value ~= "0" and value ~= "f" and value ~= "false" then return true end
   end
end

-- A path without links; nil for one that does not end.
local function real(path)
   local done, links = "", 0
   while path ~= "" do
      local part, rest = path:match("^/*([^/]*)(.*)$")
      path = rest
      if part == ".." then
         done = done:match("^(.*)/[^/]*$") or ""
      elseif part ~= "" and part ~= "." then
         local target = lfs.symlinkattributes(done .. "/" .. part, "mode") == "link"
            and lfs.symlinkattributes(done .. "/" .. part, "target")
         links = links + (target and 1 or 0)
         if links > 40 then return end
         if not target then done = done .. "/" .. part
         else
            if target:sub(1, 1) == "/" then done = "" end
            path = target .. path
         end
      end
   end
   return done
end

local SYSTEM = { usr = true, etc = true, bin = true, sbin = true, boot = true, dev = true, proc = true, sys = true, run = true }

-- Whether it is a directory of the user's that can be bound.
local function is_users(place)
   local top = place:match("^/([^/]+)")
   return top and not SYSTEM[top] and not top:find("^lib") and not place:find('[,:\\"]')
      and lfs.attributes(place, "mode") == "directory" and lfs.attributes(place, "uid") == lfs.attributes("/proc/self", "uid")
end

-- Whether the runtime makes mount points that an image lacks; the same as in launch.sh.
local function makes_places(module)
   for directory in (os.getenv("PATH") or ""):gmatch("/[^:]*") do
      for _, kind in ipairs({ module.runtime, "singularity" }) do
         local program = real(directory .. "/" .. kind)
         if program and lfs.attributes(program, "mode") == "file" then
            local top, name = program:match("^(.*)/[^/]+/([^/]+)$")
            local file = top and io.open((top == "/usr" and "" or top) .. "/etc/" .. name .. "/" .. name .. ".conf")
            if not file then return true end
            local text = "\n" .. file:read("*a"):gsub("[ \t]+", " ") .. "\n"
            file:close()
            return not (text:find("\n ?enable overlay ?= ?no%s") and text:find("\n ?enable underlay ?= ?no%s"))
         end
      end
   end
   return true
end

-- The targets of links to the home and scratch directories, and these directories; the same as in launch.sh.
local function places_of_user(module)
   local found, home = {}, os.getenv("HOME") or ""
   local closed = on("NO_HOME") or on("CONTAIN") or on("CONTAINALL")
   local function take(place) if is_users(place) then found[#found + 1] = place end end
   local function take_real(place)
      local where = not closed and place:sub(1, 1) == "/" and real(place)
      if where and where ~= place:gsub("/+", "/"):gsub("(.)/$", "%1") then take(where) end
   end
   take_real(home)
   for _, place in ipairs(module.scratch or {}) do
      local name = (os.getenv("USER") or ""):gsub("%%", "%%%%")
      place = place:gsub("%$USER", name)
      take(place)
      take_real(place)
   end
   return found[1] and makes_places(module) and found or {}
end

-- The binds with existing sources, and the missing sources of required binds.
local function existing(module)
   local there, missing = {}, {}
   for _, bind in ipairs(module.binds) do
      if exists(bind[1]) then there[#there + 1] = bind[1]
      elseif not bind.optional then missing[#missing + 1] = bind[1]:match("^[^:]*") end
   end
   there[#there + 1] = user_software(module)
   for _, place in ipairs(module.image[1] and places_of_user(module) or {}) do there[#there + 1] = place end
   return there, missing
end

local function join(...)
   return table.concat({ ... }, "/")
end

-- The places to search for layers, in order; the same as in launch.sh.
local function layer_directories(module)
   local found = {}
   for directory in (os.getenv("SIFMOD_LAYERS") or ""):gmatch("[^:]+") do found[#found + 1] = directory end
   local prefix, data = os.getenv("SIFMOD_PREFIX") or "", os.getenv("XDG_DATA_HOME") or ""
   local home = os.getenv("HOME") or ""
   local own = (os.getenv("EBU_USER_PREFIX") or ""):gsub("^~/", home:gsub("%%", "%%%%") .. "/")
   if prefix ~= "" then found[#found + 1] = prefix .. "/layers" end
   if own == "" then own = data:sub(1, 1) == "/" and data or home .. "/.local/share" end
   found[#found + 1] = own .. "/sifmod/layers"
   found[#found + 1] = module.root:gsub("/software/[^/]+/%.generations/[^/]+/[^/]+$", "") .. "/layers"
   return found
end

-- A directory of SIFMOD_LAYERS that is closed to this user would leave out its packages without a word.
local function check_open(place)
   for directory in (os.getenv("SIFMOD_LAYERS") or ""):gmatch("/[^:]+") do
      local _, why = lfs.attributes(join(directory, place), "mode")
      if why and why:find("Permission denied", 1, true) then
         LmodError(("%s: %s, which SIFMOD_LAYERS names, is closed to you; nothing was changed; ask its owner, or leave it out")
            :format(myModuleFullName(), directory))
      end
   end
end

-- The layer that `sifmod add` has built for this image, else whether there is one for another image.
local function find_layer(module)
   local name = os.getenv("SIFMOD_LAYER") or "default"
   local file = module.layers and name ~= "" and io.open(module.root .. "/share/image")
   if not file then return nil, false end
   local key, other = file:read("*l"), false
   file:close()
   if mode() == "load" then check_open(join(module.layers, name, key or "", "live/pylock.toml")) end
   for _, directory in ipairs(layer_directories(module)) do
      local place = join(directory, module.layers, name)
      local live = join(place, key or "", "live")
      local usable = place:find("^/[^,]*$") -- as launch.sh has it
      if usable and lfs.attributes(live .. "/pylock.toml", "mode") then return live, false end
      local readable, images, state = pcall(lfs.dir, place) -- which fails where there is no such directory
      while usable and readable do
         local image = images(state)
         if not image then break end
         other = other or lfs.attributes(join(place, image, "live/pylock.toml"), "mode") ~= nil
      end
   end
   return nil, other
end

-- The same module with its layer, if there is one.
local function with_layer(module)
   local live, other = find_layer(module)
   local stale = os.getenv("SIFMOD_STALE_LAYER") or ""
   if stale == "" then stale = module.stale_layer or "warn" end
   if other and mode() == "load" and (stale ~= "quiet" or os.getenv("SIFMOD_LAYER")) then
      local name, full = os.getenv("SIFMOD_LAYER"), myModuleFullName()
      local again = ("`sifmod add %s --onto %s%s` makes it for this one"):format(
         full, full, name and name ~= "default" and " --layer " .. name or "")
      local problem = ("%s: the layer %s was made for another image"):format(full, name or "default")
      if stale ~= "warn" and stale ~= "quiet" and stale ~= "refuse" then
         LmodError(("SIFMOD_STALE_LAYER is %s: expected warn, quiet or refuse; nothing was changed"):format(stale))
      end
      if name or stale == "refuse" then LmodError(problem .. "; nothing was changed; " .. again) end
      LmodMessage(problem .. ", and is not used; " .. again)
   end
   if not live then return module end
   local made = { layer = live, binds = {}, path_inside = { module.layer_target .. "/bin" }, env_inside = {}, env = {} }
   for _, bind in ipairs(module.binds) do made.binds[#made.binds + 1] = bind end
   for _, directory in ipairs(module.path_inside) do made.path_inside[#made.path_inside + 1] = directory end
   for _, part in ipairs({ "env_inside", "env" }) do
      for name, text in pairs(module[part]) do made[part][name] = text end
   end
   local packed = lfs.attributes(live .. "/layer.squashfs", "mode") == "file"
   local bind = packed and "/layer.squashfs:" .. module.layer_target .. ":ro,image-src=/"
      or "/tree:" .. module.layer_target .. ":ro"
   made.binds[#made.binds + 1] = { live .. bind }
   local python = made.env_inside.PYTHONPATH or ""
   made.env_inside.PYTHONPATH = module.layer_target .. "/start" .. (python ~= "" and ":" .. python or "")
   made.env["_SIFMOD_LAYER_" .. module.key] = live
   return setmetatable(made, { __index = module })
end

local function on_terminal()
   local device = lfs.symlinkattributes("/proc/self/fd/2", "target") or ""
   return device:find("^/dev/pts/") or device:find("^/dev/tty") or device == "/dev/console"
end

-- Without characters that control a terminal: control characters, those of ISO 6429 (C1) and of writing directions.
local function plain(text)
   text = text:gsub("%c", " "):gsub("\194[\128-\159]", " "):gsub("\216\156", " ")
   return (text:gsub("\226\128[\142\143\170-\174]", " "):gsub("\226\129[\166-\169]", " "))
end

-- The notices of `sifmod deprecate` and `retire` are read at each load: one per line, the last one whose time has come.
local function heed_notice(module)
   local prefix, name, version = module.root:match("^(.*)/software/([^/]+)/%.generations/([^/]+)/[^/]+$")
   local file = prefix and io.open(join(prefix, "life", name, version))
   if not file then return end
   local done, text = "", ""
   for line in file:lines() do
      local from, what, said = line:match("^(%d+) (%a+) (.*)$")
      if from and tonumber(from) <= os.time() then done, text = what, plain(said) end
   end
   file:close()
   if done == "refuse" then LmodError(text .. "; nothing was changed") end
   if done == "say" and on_terminal() then LmodMessage(text) end
end

local function prefixes(module)
   return module.runtime == "apptainer" and { "SINGULARITY", "APPTAINER" } or { "SINGULARITY" }
end

-- The key by which wrappers recognise a container, as in launch.sh; the runtime evaluates some characters, so no path has them.
local function container(module, image)
   local file, key = io.open(module.root .. "/share/image"), nil
   if file then
      key = file:read("*l")
      file:close()
   end
   return ("%s:%s:%s"):format(key or "", module.python_key, image:find('[`$"\\]') and "" or image)
end

-- Every variable of the module that is not a list, name → text.
local function variables(module, image)
   local values = {}
   for name, text in pairs(module.env) do values[name] = text end
   for _, prefix in ipairs(prefixes(module)) do
      for _, flag in ipairs(module.flags) do values[prefix .. "_" .. flag] = "1" end
      for name, text in pairs(module.env_inside) do values[prefix .. "ENV_" .. name] = text end
   end
   for _, name in ipairs(module.image_variables) do values[name] = image end
   return values
end

local function environment(module)
   return assert(loadfile(module.root .. "/share/environment.lua"))()
end

local function load(module)
   if module.root:find("[,:]") then
      LmodError(("%s contains a comma or a colon, which bind paths cannot express; nothing was changed; move the tree"):format(
         module.root))
   end
   heed_notice(module)
   module = with_layer(module)
   local image = first_file(module.image)
   if not image and module.image[1] then -- a view has none
      LmodError(("the image of %s is missing; looked for %s; nothing was changed; `%s` brings it back"):format(
         myModuleFullName(), table.concat(module.image, ", "), module.reinstall))
   end
   local binds, missing = existing(module)
   if #missing > 0 then
      LmodError(("%s needs %s, which this machine does not have; nothing was changed"):format(
         myModuleFullName(), table.concat(missing, ", ")))
   end
   lfs.touch(join(module.root, "share/mark")) -- where there is one: see sifmod/tree/mark.py
   local set = variables(module, image)
   for _, prefix in ipairs(image and prefixes(module) or {}) do
      set[prefix .. "ENV_SIFMOD_CONTAINER"] = container(module, image)
   end
   environment(module).load(module.key, { runtime = module.runtime, binds = binds, path_inside = module.path_inside,
                                          set = set, default = module.default_env,
                                          generation = module.root })
   if module.layer then prepend_path("PATH", module.layer .. "/bin") end
   if module.warn_without_version and myModuleUsrName() ~= myModuleFullName() and on_terminal() then
      LmodMessage(("loaded %s, the default; name the version in job scripts"):format(myModuleFullName()))
   end
   if module.driver and lfs.attributes(module.driver[1], "mode") then
      LmodMessage(("%s has %s: expect it to fail on a GPU"):format(myModuleFullName(), module.driver[2]))
   end
   if image then prepend_path("PATH", module.root .. "/bin") end
end

local function unload(module)
   local generation = os.getenv("_SIFMOD_GENERATION_" .. module.key) or module.root
   local layer = os.getenv("_SIFMOD_LAYER_" .. module.key)
   environment(module).unload(module.key)
   if layer then prepend_path("PATH", layer .. "/bin") end
   if module.image[1] then prepend_path("PATH", generation .. "/bin") end
end

-- The effects of a load, in Lmod's own functions.
local function show(module)
   module = with_layer(module)
   local values, names = variables(module, first_file(module.image) or module.image[1]), {}
   local users = user_software(module)
   for name, text in pairs(module.default_env or {}) do
      if (os.getenv(name) or text) == text then values[name] = values[name] or text end
   end
   for name in pairs(values) do names[#names + 1] = name end
   table.sort(names)
   for _, name in ipairs(names) do setenv(name, values[name]) end
   for _, prefix in ipairs(prefixes(module)) do
      for _, bind in ipairs(module.binds) do append_path(prefix .. "_BINDPATH", bind[1], ",") end
      if users then append_path(prefix .. "_BINDPATH", users, ",") end
      for _, directory in ipairs(module.path_inside) do append_path(prefix .. "ENV_PREPEND_PATH", directory) end
   end
   if module.layer then prepend_path("PATH", module.layer .. "/bin") end
   if module.image[1] then prepend_path("PATH", module.root .. "/bin") end
end

return function(module)
   local current = mode()
   if current == "load" and not QUIET[mcp.my_name] then
      load(module)
   elseif current == "unload" then
      unload(module)
   elseif current == "show" then
      show(module)
   end
end
