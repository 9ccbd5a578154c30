-- Computes the environment when modules are loaded and unloaded; the same text in every generation.
--
-- Lmod's own setenv and prepend_path forget the user's values, and cannot be undone in any order. So nothing is undone
-- here: at each load and unload every variable is computed again, from the user's own value and from the values that each
-- loaded module wants. That is kept in the environment itself, `%` and two digits standing for any `%`, `;`, `~` (which
-- Environment Modules lets the shell expand) or control character:
--   _SIFMOD_LOADED             the keys of the loaded modules, in the order of their loads
--   _SIFMOD_GENERATION_<key>   the directory of the generation that was loaded
--   _SIFMOD_WANT_<key>         format;runtime;binds;directories in front of PATH inside;NAME=value;NAME=value…
--   _SIFMOD_BASE               format;NAME=value;NAME…: what the user had (or had not) in each variable changed here
--   _SIFMOD_BINDS              the entries of BINDPATH that are modules', for the wrappers
-- The key of a view starts with _VIEW_. It is for other modules: their wrappers treat its values as the user's.
-- A value that was changed by hand since belongs to the user from then on.

local getenv = os.getenv
local FORMAT = "1"

-------------------------------------------------------------------------------------------------------------- text

local function encode(text)
   return (text:gsub("[%%;~%c]", function(sign) return ("%%%02X"):format(sign:byte()) end))
end

local function decode(text)
   return (text:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

local function split(text, separator)
   local parts = {}
   for part in (text .. separator):gmatch("(.-)" .. separator) do parts[#parts + 1] = part end
   return parts
end

-- Two spellings of one path, or of one entry, are the same: Lmod and users write slashes differently.
local function normal(entry)
   return ((entry .. ":"):gsub("/+", "/"):gsub("([^:,])/([:,])", "%1%2"))
end

------------------------------------------------------------------------------------------------------------- lists

-- Entries of BINDPATH. A comma also separates the options of one bind, which stay with it; `\,` is part of a path.
local function bind_entries(text)
   local entries = {}
   for _, part in ipairs(split(text, ",")) do
      local last = entries[#entries]
      local continues = last and (part == "ro" or part == "rw" or part:find("^image%-src=") or part:find("^id="))
      if continues or (last and last:sub(-1) == "\\") then
         entries[#entries] = last .. "," .. part
      elseif part ~= "" then
         entries[#entries + 1] = part
      end
   end
   return entries
end

local function bind_target(entry)
   local source, target = entry:gsub("\\:", "\\;"):match("^([^:]*):?([^:]*)")
   return normal(target ~= "" and target or source)
end

local function path_entries(text)
   local entries = {}
   for _, part in ipairs(split(text, ":")) do
      if part ~= "" then entries[#entries + 1] = part end
   end
   return entries
end

local LISTS = {
   { names = { "SINGULARITY_BINDPATH", "APPTAINER_BINDPATH" }, wants = "binds",
     separator = ",", entries = bind_entries, key = bind_target },
   { names = { "SINGULARITYENV_PREPEND_PATH", "APPTAINERENV_PREPEND_PATH" }, wants = "path_inside",
     separator = ":", entries = path_entries, key = normal },
}

-- The entries of several lists, one for each key: the first.
local function unique(key, ...)
   local seen, all = {}, {}
   for _, entries in ipairs({ ... }) do
      for _, entry in ipairs(entries) do
         if not seen[key(entry)] then
            seen[key(entry)] = true
            all[#all + 1] = entry
         end
      end
   end
   return all
end

-- `entries` without one occurrence of each of `others`.
local function without(entries, others)
   local count, rest = {}, {}
   for _, entry in ipairs(others) do count[normal(entry)] = (count[normal(entry)] or 0) + 1 end
   for _, entry in ipairs(entries) do
      local left = count[normal(entry)] or 0
      if left > 0 then count[normal(entry)] = left - 1 else rest[#rest + 1] = entry end
   end
   return rest
end

------------------------------------------------------------------------------------------------------------- state

local function read_pairs(fields, first)
   local values = {}
   for i = first, #fields do
      local name, sign, value = fields[i]:match("^([^=]*)(=?)(.*)$")
      values[name] = sign == "=" and decode(value) -- false: the user had no such variable
   end
   return values
end

local function write_pairs(fields, values)
   local names = {}
   for name in pairs(values) do names[#names + 1] = name end
   table.sort(names)
   for _, name in ipairs(names) do
      fields[#fields + 1] = values[name] and (name .. "=" .. encode(values[name])) or name
   end
   return table.concat(fields, ";")
end

local function read_want(key)
   local fields = split(getenv("_SIFMOD_WANT_" .. key) or "", ";")
   if fields[1] ~= FORMAT then return nil end
   return { runtime = fields[2], binds = bind_entries(decode(fields[3])), path_inside = path_entries(decode(fields[4])),
            set = read_pairs(fields, 5), generation = getenv("_SIFMOD_GENERATION_" .. key) or "" }
end

local function write_want(want)
   local binds, path = table.concat(want.binds, ","), table.concat(want.path_inside, ":")
   return write_pairs({ FORMAT, want.runtime, encode(binds), encode(path) }, want.set)
end

-- The loaded modules: state.keys in order, state.wants of each, and state.base, the user's value of each variable.
local function read_state()
   local state = { keys = {}, wants = {}, base = read_pairs(split(getenv("_SIFMOD_BASE") or FORMAT, ";"), 2) }
   for _, key in ipairs(path_entries(getenv("_SIFMOD_LOADED") or "")) do
      state.wants[key] = read_want(key)
      if state.wants[key] then state.keys[#state.keys + 1] = key else state.unknown = key end
   end
   return state
end

-- The new value of a list variable and its twin: the user's entries of both, then each module's, the latest first.
local function list_values(list, state, values, added)
   local wanted, apptainer = {}, false
   for i = #state.keys, 1, -1 do
      local want = state.wants[state.keys[i]]
      wanted = unique(list.key, wanted, want[list.wants])
      apptainer = apptainer or want.runtime == "apptainer"
   end
   local own = {}
   for i, name in ipairs(list.names) do own[i] = unique(list.key, list.entries(state.base[name] or "")) end
   local all = unique(list.key, own[1], own[2], wanted)
   for i, name in ipairs(list.names) do
      if i == 1 or apptainer then -- SingularityCE reads its own spelling only
         values[name], added[name] = table.concat(all, list.separator), without(all, own[i])
      end
   end
   local users = unique(list.key, own[1], own[2])
   for _, key in ipairs(state.keys) do
      if key:find("^_VIEW_") then users = unique(normal, users, state.wants[key][list.wants]) end
   end
   return without(all, users)
end

local function list_is_wanted(list, state)
   for _, want in pairs(state.wants) do
      if #want[list.wants] > 0 then return true end
   end
   return false
end

-- The new value of every variable, name → text or false; and the entries of each list that are not the user's.
local function compute(state)
   local values, added = {}, {}
   for name, text in pairs(state.base) do values[name] = text end
   for _, key in ipairs(state.keys) do
      local want = state.wants[key]
      for name, text in pairs(want.set) do values[name] = text end
      values["_SIFMOD_GENERATION_" .. key] = want.generation
      values["_SIFMOD_WANT_" .. key] = write_want(want)
   end
   local binds = {}
   for _, list in ipairs(LISTS) do
      if list_is_wanted(list, state) then
         local of_modules = list_values(list, state, values, added)
         if list.wants == "binds" then binds = of_modules end
      end
   end
   local any = #state.keys > 0
   values._SIFMOD_LOADED = any and table.concat(state.keys, ":")
   values._SIFMOD_BINDS = any and table.concat(binds, ",")
   values._SIFMOD_BASE = any and write_pairs({ FORMAT }, state.base)
   return values, added
end

-- Values changed by hand since the last load or unload are the user's: a scalar then belongs to no module, and of
-- a list all entries that were not added here.
local function respect_changes(state)
   if not next(state.base) then return end
   local values, added = compute(state)
   for _, list in ipairs(LISTS) do
      for _, name in ipairs(list.names) do
         local text, base = getenv(name) or false, state.base[name]
         if base ~= nil and text ~= values[name] then
            local rest = without(list.entries(text or ""), added[name] or {})
            local before = unique(list.key, list.entries(base or ""))
            if not text or text == "" or not added[name] then
               state.base[name] = text
            elseif #rest ~= #before or #without(rest, before) > 0 then
               state.base[name] = table.concat(rest, list.separator)
            end
         end
         values[name] = nil
      end
   end
   for name, text in pairs(values) do
      if state.base[name] ~= nil and (getenv(name) or false) ~= text then
         state.base[name] = nil
         for _, want in pairs(state.wants) do want.set[name] = nil end
      end
   end
end

------------------------------------------------------------------------------------------------------------ changes

local function set(name, value)
   if (getenv(name) or false) == value then return end
   local saved, positive = mcp, rawget(_G, "MCP")
   if mode() == "unload" and positive then mcp = positive end -- where setenv would unset, let it set
   if value then setenv(name, (value:gsub("\n", " "))) else unsetenv(name) end
   mcp = saved
end

-- Forget the variables that no module needs any more, and set the new environment.
local function apply(state, values)
   local wanted = {}
   for _, want in pairs(state.wants) do
      for name in pairs(want.set) do wanted[name] = true end
   end
   for _, list in ipairs(LISTS) do
      if list_is_wanted(list, state) then wanted[list.names[1]], wanted[list.names[2]] = true, true end
   end
   for name in pairs(wanted) do
      if state.base[name] == nil then
         state.base[name] = getenv(name) or false
         -- Lmod before 8.7.37 and Environment Modules let the shell run what follows a line break in a value
         if (getenv(name) or ""):find("\n") then
            LmodError(name .. " contains a line break, which no module can restore; unset it; nothing was changed")
         end
      end
   end
   for name, text in pairs(state.base) do
      if not wanted[name] then values[name], state.base[name] = text, nil end
   end
   for name, text in pairs((compute(state))) do values[name] = text end
   for name, text in pairs(values) do set(name, text) end
end

local function remove(state, key)
   for i = #state.keys, 1, -1 do
      if state.keys[i] == key then table.remove(state.keys, i) end
   end
   state.wants[key] = nil
end

local environment = {}

-- Add to a module's variables its defaults for those that neither the user, another module nor itself sets.
local function set_defaults(state, want)
   for name, text in pairs(want.default or {}) do
      local value = state.base[name]
      if value == nil then value = getenv(name) end
      for _, other in pairs(state.wants) do value = value or other.set[name] end
      want.set[name] = want.set[name] or (not value and text or nil)
   end
end

-- Load what a module wants: { runtime, binds, path_inside, set = { NAME = value… }, default, generation }.
function environment.load(key, want)
   local state = read_state()
   if state.unknown then
      LmodError(state.unknown .. " was loaded by another version of sifmod; unload it first; nothing was changed")
   end
   respect_changes(state)
   remove(state, key)
   set_defaults(state, want)
   state.keys[#state.keys + 1], state.wants[key] = key, want
   apply(state, {})
end

function environment.unload(key)
   local state = read_state()
   respect_changes(state)
   remove(state, key)
   apply(state, { ["_SIFMOD_GENERATION_" .. key] = false, ["_SIFMOD_WANT_" .. key] = false })
end

return environment
