# shellcheck shell=sh disable=SC2016,SC2043,SC2154
# Starts a command in this module's container: a wrapper in bin/ reads this file and calls `launch COMMAND ARGUMENT...`,
# with its own directory in sifmod_bin, from which the generation and the prefix are found.
#
# POSIX sh, without starting another process (except for a home behind a link): `launch` finally execs the runtime,
# so that arguments, exit code and signals are the command's own. A command that cannot be started ends with 127, and standard
# error has the reason. Variables start with sifmod_, so that none of the user's is changed.

sifmod_module={{ plan.module | string | shell }}
sifmod_generation={{ generation | shell }}
sifmod_switch={{ plan.switch | shell }}
set -f # a `*` in a path is just that

# The generation's own path, also if it is reached through the switch, which may change soon.
case $sifmod_bin in
  /*"$sifmod_generation/bin") sifmod_root=${sifmod_bin%/bin} ;;
  /*"$sifmod_switch/bin") sifmod_root=${sifmod_bin%"$sifmod_switch/bin"}$sifmod_generation ;;
  *) sifmod_root=$(CDPATH='' cd -P "$sifmod_bin/.." && pwd) ;;
esac
sifmod_prefix=${sifmod_root%"$sifmod_generation"}

launch() {
  sifmod_container=${APPTAINER_CONTAINER:-${SINGULARITY_CONTAINER-}}
  if [ -d /.singularity.d ] && [ -n "$sifmod_container" ]; then
    if sifmod_is_own; then sifmod_run_here "$@"; fi
    sifmod_refuse_without_runtime "$1"
  fi
  {% if plan.layers %}
  # activated over the module, whose python is used if the environment's own is a dangling link on this host
  case $1${VIRTUAL_ENV+ } in
    'python ' | 'python3 ')
      if [ -t 2 ]; then
        printf '%s: its Python does not see the virtual environment %s; use `sifmod add` to add packages to it\n' \
          "$sifmod_module" "$VIRTUAL_ENV" >&2
      fi
      ;;
  esac
  {% endif %}
  case $sifmod_prefix in
    *[,:]*) sifmod_fail "$sifmod_prefix contains a comma or a colon, which bind paths cannot express" 'move the tree' ;;
  esac
  sifmod_find_image
  sifmod_find_runtime
  sifmod_read_key
  sifmod_forget_modules
  sifmod_set_binds
  sifmod_set_environment
  if [ -z "${{ '{' }}{{ loaded }}-}" ]; then sifmod_set_host; fi
  exec "$sifmod_runtime" -q {{ plan.verb }} "$sifmod_image" "$@"
}

# Whether this runs in a container of this module's image, with its Python. Loads and wrappers record the container that
# they start in SIFMOD_CONTAINER: key of the image, key of the Python, path; if it is of another start, the files are compared.
sifmod_is_own() {
  if [ -n "${SIFMOD_ANY_CONTAINER-}" ]; then return 0; fi
  sifmod_read_key
  case ${sifmod_key:+${SIFMOD_CONTAINER-}} in
    "$sifmod_key:{{ python_key }}:$sifmod_container") return 0 ;;
    *?":$sifmod_container") return 1 ;;
  esac
  for sifmod_image in \
    {{ images | map("here") | join(" \\\n    ") }}; do
    # shellcheck disable=SC3013
    if [ "$sifmod_image" -ef "$sifmod_container" ]; then
      {% if python_path %}
      case :$PATH: in *:{{ python_path | shell }}:*) return 0 ;; esac
      {% else %}
      return 0
      {% endif %}
    fi
  done
  return 1
}

# sifmod_refuse_without_runtime COMMAND: another container may have one, which then starts this module's image.
sifmod_refuse_without_runtime() {
  for sifmod_runtime in {{ plan.runtime.candidates | map("shell") | join(" ") }}; do
    if command -v "$sifmod_runtime" >/dev/null; then return; fi
  done
  sifmod_fail "this is the container of $sifmod_container, and $1 belongs to another image or Python; no runtime is installed in here" \
    "leave the container first; SIFMOD_ANY_CONTAINER=1 runs what is called $1 in this one"
}

# The key of the image, in sifmod_key; empty if it cannot be read.
sifmod_read_key() {
  sifmod_key=
  if [ -r "$sifmod_root/share/image" ]; then read -r sifmod_key <"$sifmod_root/share/image"; fi
}

# In its own container already: the command itself, found without the wrappers.
sifmod_run_here() {
  sifmod_path=
  IFS=:
  for sifmod_directory in $PATH; do
    # For any spelling of the directory; POSIX has -ef since 2024, every sh much longer.
    # shellcheck disable=SC3013
    if [ "$sifmod_directory" -ef "$sifmod_root/bin" ] || [ "$sifmod_directory" -ef "$sifmod_prefix$sifmod_switch/bin" ]; then
      continue
    fi
    sifmod_path=$sifmod_path:$sifmod_directory
  done
  unset IFS
  PATH=${sifmod_path#:}
  exec "$@"
}

# The generation's own link while it exists, else a copy that the site keeps.
sifmod_find_image() {
  sifmod_places=
  for sifmod_image in \
    {{ images | map("here") | join(" \\\n    ") }}; do
    if [ -e "$sifmod_image" ]; then return; fi
    sifmod_places="$sifmod_places, $sifmod_image"
  done
  sifmod_fail "the image is missing; looked for ${sifmod_places#, }" {{ reinstall | here }}
}

# The one that the module was installed with, else one on PATH.
sifmod_find_runtime() {
  for sifmod_runtime in {{ plan.runtime.candidates | map("shell") | join(" ") }}; do
    if command -v "$sifmod_runtime" >/dev/null; then return; fi
  done
  sifmod_fail 'neither apptainer nor singularity is installed here' 'sifmod doctor says what is missing'
}

# Values of loaded modules are not the user's: forget their variables, note their directories.
# Values of a view are for other modules, and stay.
sifmod_forget_modules() {
  sifmod_noted=
  IFS=:
  for sifmod_loaded in ${_SIFMOD_LOADED-}; do
    case $sifmod_loaded in
      *[!A-Za-z0-9_]* | _VIEW_*) ;;
      *) eval "sifmod_forget \"\${_SIFMOD_WANT_$sifmod_loaded-}\"" ;;
    esac
  done
  unset IFS
}

# sifmod_forget RECORD: 1;runtime;binds;directories;NAME=value;NAME=value... as environment.lua writes it, which is in
# this directory too. A variable with another value by now is the user's.
sifmod_forget() {
  case $1 in
    '1;'*';'*';'*';'*) ;;
    *) return ;;
  esac
  sifmod_record=${1#*;*;*;}
  sifmod_noted=$sifmod_noted:${sifmod_record%%;*}
  IFS=';'
  for sifmod_field in ${sifmod_record#*;}; do
    sifmod_name=${sifmod_field%%=*}
    case $sifmod_name in
      *[!A-Za-z0-9_]*) ;;
      SINGULARITY?* | APPTAINER?*)
        eval "sifmod_encode \"\${$sifmod_name-}\""
        if [ "$sifmod_name=$sifmod_encoded" = "$sifmod_field" ]; then unset "$sifmod_name"; fi
        ;;
    esac
  done
}

# sifmod_encode TEXT: its spelling in the records, in sifmod_encoded.
sifmod_encode() {
  sifmod_encoded=
  sifmod_rest=$1
  while :; do
    case $sifmod_rest in
      *[%\;]*) ;;
      *) break ;;
    esac
    sifmod_plain=${sifmod_rest%%[%;]*}
    sifmod_rest=${sifmod_rest#"$sifmod_plain"}
    case $sifmod_rest in
      %*) sifmod_encoded=$sifmod_encoded$sifmod_plain%25 ;;
      *) sifmod_encoded=$sifmod_encoded$sifmod_plain%3B ;;
    esac
    sifmod_rest=${sifmod_rest#?}
  done
  sifmod_encoded=$sifmod_encoded$sifmod_rest
}

# One bind for each target: the user's own, whichever variable they are in, then the module's.
sifmod_set_binds() {
  sifmod_binds=
  sifmod_targets=:
  sifmod_take_binds "${SINGULARITY_BIND-},${APPTAINER_BIND-},${SINGULARITY_BINDPATH-},${APPTAINER_BINDPATH-}"
  {% for bind in binds %}
  {{ "sifmod_bind_if_there" if bind.optional else "sifmod_bind" }} {{ bind.source | here }} {{ bind | string | here }}
  {% endfor %}
  {% if user_software %}
  # the user's additions to the module in their current form: a squashfs, else a directory; a pipe would never open
  {% for bind in user_software %}
  {{ "if [ -f" if loop.first else "elif [ -d" }} {{ bind.source | here }} ]; then
    sifmod_add_bind {{ bind | string | here }}
  {% endfor %}
  fi
  {% endif %}
  {% if plan.layers %}
  sifmod_find_layer
  if [ -f "$sifmod_layer/layer.squashfs" ]; then
    sifmod_add_bind "$sifmod_layer/layer.squashfs:{{ layer_target }}:ro,image-src=/"
  elif [ -n "$sifmod_layer" ]; then
    sifmod_add_bind "$sifmod_layer/tree:{{ layer_target }}:ro"
  fi
  {% endif %}
  sifmod_bind_real "${HOME-}"
  {% for place in plan.scratch %}
  sifmod_bind_place {{ place | scratch }}
  sifmod_bind_real {{ place | scratch }}
  {% endfor %}
  unset SINGULARITY_BIND APPTAINER_BIND
  export SINGULARITY_BINDPATH="${sifmod_binds#,}" APPTAINER_BINDPATH="${sifmod_binds#,}"
}

{% if plan.layers %}
# launch_active COMMAND ARGUMENT...: as `launch`, with the active Python environment; for the commands of layers.
launch_active() { launch{% for word in active %} {{ word | shell }}{% endfor %} "$@"; }

# The layer that `sifmod add` has built for this image, in sifmod_layer: the first one in the search places.
sifmod_find_layer() {
  sifmod_layer=
  sifmod_name=${SIFMOD_LAYER-default}
  if [ -z "$sifmod_name" ] || [ -z "$sifmod_key" ]; then return; fi
  sifmod_other=
  sifmod_own=${HOME-}/.local/share
  case ${XDG_DATA_HOME-} in /*) sifmod_own=$XDG_DATA_HOME ;; esac
  sifmod_own=${EBU_USER_PREFIX:-$sifmod_own}
  case $sifmod_own in \~/*) sifmod_own=${HOME-}${sifmod_own#"~"} ;; esac
  IFS=:
  for sifmod_directory in ${SIFMOD_LAYERS-}; do
    sifmod_check_open "$sifmod_directory" {{ plan.layers | shell }}"/$sifmod_name/$sifmod_key/live/pylock.toml"
  done
  for sifmod_directory in ${SIFMOD_LAYERS-} ${SIFMOD_PREFIX:+"$SIFMOD_PREFIX/layers"} \
    "$sifmod_own/sifmod/layers" "$sifmod_prefix/layers"; do
    sifmod_place=$sifmod_directory/{{ plan.layers | shell }}/$sifmod_name
    case $sifmod_place in
      *,*) ;;
      /*)
        if [ -e "$sifmod_place/$sifmod_key/live/pylock.toml" ]; then
          sifmod_layer=$sifmod_place/$sifmod_key/live
          break
        fi
        if [ -d "$sifmod_place" ]; then sifmod_find_other "$sifmod_place"; fi
        ;;
    esac
  done
  unset IFS
  if [ -z "$sifmod_layer$sifmod_other" ] && [ -n "${SIFMOD_LAYER-}" ]; then
    # module/scripts.py, NO_LAYER
    sifmod_fail "there is no layer $sifmod_name" "\`sifmod layer list\` lists the existing ones" 24
  fi
  if [ -z "$sifmod_layer" ] && [ -n "$sifmod_other" ]; then sifmod_tell_stale; fi
}

# A directory of SIFMOD_LAYERS that is closed to this user would leave out its packages without a word.
sifmod_check_open() {
  case $1 in /*) sifmod_rest=$1/$2 ;; *) return ;; esac
  while [ -n "$sifmod_rest" ] && [ ! -e "$sifmod_rest" ]; do sifmod_rest=${sifmod_rest%/*}; done
  if [ -d "$sifmod_rest" ] && [ ! -x "$sifmod_rest" ]; then
    sifmod_fail "$1, which SIFMOD_LAYERS names, is closed to you" 'ask its owner, or leave it out' 25
  fi
}

# A layer that is requested by name, or for which SIFMOD_STALE_LAYER (else the site) is `refuse`, is an error. Else it is
# reported, unless a load of this generation has done so, and by one process of a run.
sifmod_tell_stale() {
  sifmod_stale=${SIFMOD_STALE_LAYER:-{{ plan.stale_layer }}}
  case $sifmod_stale in
    warn | quiet | refuse) ;;
    *) sifmod_fail "SIFMOD_STALE_LAYER is $sifmod_stale" 'expected warn, quiet or refuse' ;;
  esac
  sifmod_again="sifmod add $sifmod_module --onto $sifmod_module"
  if [ "$sifmod_name" != default ]; then sifmod_again="$sifmod_again --layer $sifmod_name"; fi
  if [ -n "${SIFMOD_LAYER-}" ] || [ "$sifmod_stale" = refuse ]; then
    sifmod_fail "the layer $sifmod_name was made for another image" "\`$sifmod_again\` makes it for this one"
  fi
  if [ "$sifmod_stale" = quiet ] || [ "${{ '{' }}{{ loaded }}-}" = "$sifmod_root" ]; then return; fi
  case ${SLURM_PROCID-}${OMPI_COMM_WORLD_RANK-}${PMI_RANK-}${RANK-} in *[1-9]*) return ;; esac
  printf '%s: the layer %s was made for another image, and is not used; `%s` makes it for this one\n' \
    "$sifmod_module" "$sifmod_name" "$sifmod_again" >&2
}

# sifmod_find_other PLACE: whether there is a layer for another image, in sifmod_other.
sifmod_find_other() {
  set +f
  unset IFS
  for sifmod_live in "$1"/*/live/pylock.toml; do
    if [ -e "$sifmod_live" ]; then sifmod_other=$1; fi
  done
  set -f
}

{% endif %}
# sifmod_take_binds LIST: the user's part of a list, without entries of loaded modules.
sifmod_take_binds() {
  sifmod_entry=
  IFS=,
  for sifmod_word in $1 ''; do
    case $sifmod_word in
      ro | rw | image-src=* | id=*) sifmod_entry=$sifmod_entry,$sifmod_word ;; # an option of this bind
      *)
        case ,,${_SIFMOD_BINDS-}, in
          *",$sifmod_entry,"*) ;;
          *) sifmod_add_bind "$sifmod_entry" ;;
        esac
        sifmod_entry=$sifmod_word
        ;;
    esac
  done
  unset IFS
}

# sifmod_bind_real PLACE: the target of a home or scratch directory that is a link: commands that follow it, and
# Slurm, use that path, but the runtime mounts the other. The same in module.lua and module.tcl.
sifmod_bind_real() {
  case $1 in
    /*) sifmod_rest=$1 ;;
    *) return ;;
  esac
  while [ -n "$sifmod_rest" ] && [ ! -L "$sifmod_rest" ]; do sifmod_rest=${sifmod_rest%/*}; done
  if [ -z "$sifmod_rest" ]; then return; fi
  for sifmod_told in "${SINGULARITY_NO_HOME-}" "${APPTAINER_NO_HOME-}" "${SINGULARITY_CONTAIN-}" "${APPTAINER_CONTAIN-}" \
    "${SINGULARITY_CONTAINALL-}" "${APPTAINER_CONTAINALL-}"; do
    case $sifmod_told in
      '' | 0 | [fF] | false | False | FALSE) ;;
      *) return ;;
    esac
  done
  sifmod_real=$(CDPATH='' cd -P "$1" 2>/dev/null && pwd -P)
  sifmod_bind_place "$sifmod_real"
}

# sifmod_bind_place PLACE: a directory of the user's, if the runtime can make a mount point for it.
sifmod_bind_place() {
  if sifmod_is_users "$1" && sifmod_makes_places; then sifmod_add_bind "$1"; fi
}

# Whether the runtime makes missing mount points: if its configuration forbids both ways, a bind of a home would
# end each command. The configuration is searched beside the program. The same in module.lua and module.tcl.
sifmod_makes_places() {
  sifmod_program=$(command -v "$sifmod_runtime")
  if [ -L "$sifmod_program" ]; then sifmod_program=$(readlink -f "$sifmod_program"); fi
  sifmod_kind=${sifmod_program##*/}
  sifmod_top=${sifmod_program%/*/*}
  if [ "$sifmod_top" = /usr ]; then sifmod_top=; fi
  sifmod_file=$sifmod_top/etc/$sifmod_kind/$sifmod_kind.conf
  sifmod_forbidden=
  if [ ! -f "$sifmod_file" ] || [ ! -r "$sifmod_file" ]; then return 0; fi
  while IFS=' =' read -r sifmod_verb sifmod_noun sifmod_value sifmod_rest; do
    case "$sifmod_verb $sifmod_noun $sifmod_value" in
      'enable overlay no' | 'enable underlay no') sifmod_forbidden=$sifmod_forbidden$sifmod_noun ;;
    esac
  done <"$sifmod_file"
  case $sifmod_forbidden in
    overlayunderlay | underlayoverlay) return 1 ;;
  esac
}

# sifmod_is_users PLACE: whether it is a directory of the user that can be bound.
sifmod_is_users() {
  case $1/ in
    *[,:\\\"]* | /usr/* | /etc/* | /bin/* | /sbin/* | /lib*/* | /boot/* | /dev/* | /proc/* | /sys/* | /run/*) return 1 ;;
    //*) return 1 ;;
    /*) [ -d "$1" ] && [ -O "$1" ] ;;
    *) return 1 ;;
  esac
}

# sifmod_bind SOURCE BIND: a bind of the module, `source[:target[:options]]`.
sifmod_bind() {
  if sifmod_add_bind "$2" && [ ! -e "$1" ]; then
    sifmod_fail "the bind source $1 is missing on this machine" 'the module needs it; run this where it exists'
  fi
}

sifmod_bind_if_there() {
  if [ -e "$1" ]; then sifmod_add_bind "$2"; fi
}

# sifmod_add_bind BIND: fails if the target is taken.
sifmod_add_bind() {
  sifmod_target=${1#*:}
  sifmod_target=${sifmod_target%%:*}
  case $sifmod_targets in
    *":${sifmod_target%/}:"*) return 1 ;;
  esac
  sifmod_targets=$sifmod_targets${sifmod_target%/}:
  sifmod_binds=$sifmod_binds,$1
}

# The environment of the command.
sifmod_set_environment() {
  unset {{ kept_out | join(" ") }}
  {% if plan.verb == "run" %}
  # otherwise the runscript of an OCI image would evaluate the arguments
  sifmod_as_is=yes
  {% else %}
  sifmod_as_is=
  for sifmod_told in "${SINGULARITY_NO_EVAL-}" "${APPTAINER_NO_EVAL-}"; do
    case $sifmod_told in
      '' | 0 | [fF] | false | False | FALSE) ;;
      *) sifmod_as_is=yes ;;
    esac
  done
  {% endif %}
  # both spellings and a value that every runtime reads as yes, since a runtime that evaluates values would run plain ones
  if [ -n "$sifmod_as_is" ]; then export SINGULARITY_NO_EVAL=1 APPTAINER_NO_EVAL=1; fi
  {% set layered = '"${sifmod_layer:+' ~ layer_target ~ '/bin:}"' if plan.layers else "" %}
  {% if path %}
  sifmod_set_path {{ layered }}{{ path | shell }}{{ " " ~ layered ~ plain_path | shell if plain_path != path }}
  {% elif plan.layers %}
  if [ -n "$sifmod_layer" ]; then sifmod_set_path {{ layer_target }}/bin; fi
  {% endif %}
  {% for name, value, plain in env %}
  sifmod_set ENV_{{ name }} {{ value | shell }}{{ " " ~ plain | shell if plain != value }}
  {% endfor %}
  {% if plan.layers %}
  if [ -n "$sifmod_layer" ]; then
    sifmod_value=${APPTAINERENV_PYTHONPATH-${SINGULARITYENV_PYTHONPATH-}}
    sifmod_value={{ layer_target }}/start${sifmod_value:+:$sifmod_value}
    export SINGULARITYENV_PYTHONPATH="$sifmod_value" APPTAINERENV_PYTHONPATH="$sifmod_value"
  fi
  {% endif %}
  # a runtime with a GPU option warns if there is no GPU
  if [ ! -e /dev/nvidiactl ]; then unset SINGULARITY_NV APPTAINER_NV SINGULARITY_NVCCLI APPTAINER_NVCCLI; fi
  if [ ! -e /dev/kfd ]; then unset SINGULARITY_ROCM APPTAINER_ROCM; fi
  case $sifmod_image in
    *[\`\$\"\\]*) sifmod_value= ;; # the runtime would evaluate it
    *) sifmod_value=$sifmod_image ;;
  esac
  sifmod_value=$sifmod_key:{{ python_key }}:$sifmod_value
  export SINGULARITYENV_SIFMOD_CONTAINER="$sifmod_value" APPTAINERENV_SIFMOD_CONTAINER="$sifmod_value"
  {% for flag, device in gpus %}
  if [ -e {{ device }} ]; then sifmod_set _{{ flag }} 1; fi
  {% endfor %}
}

# The host variables of a load, if the module is not loaded: its own, and defaults that the user has not set.
sifmod_set_host() {
  {% for name in image_variables %}
  export {{ name }}="$sifmod_image"
  {% endfor %}
  {% for name, value in own.items() %}
  export {{ name }}={{ value | here }}
  {% endfor %}
  {% for name, value in others %}
  if [ -z "${{ '{' }}{{ name }}+set}" ]; then export {{ name }}={{ value | here }}; fi
  {% endfor %}
}

# sifmod_set SUFFIX VALUE [PLAIN]: SINGULARITY<SUFFIX> and APPTAINER<SUFFIX>, unless the user has set either.
# The runtime evaluates values, and VALUE is quoted for that; PLAIN is for a runtime that does not (sifmod_as_is).
sifmod_set() {
  sifmod_value=$2
  if [ -n "$sifmod_as_is" ]; then sifmod_value=${3-$2}; fi
  eval "sifmod_value=\${APPTAINER$1-\${SINGULARITY$1-\$sifmod_value}}"
  export "SINGULARITY$1=$sifmod_value" "APPTAINER$1=$sifmod_value"
}

# sifmod_set_path DIRECTORIES [PLAIN]: prepends the module's to PATH, and the user's own before them.
sifmod_set_path() {
  if [ -n "$sifmod_as_is" ]; then set -- "${2-$1}"; fi
  sifmod_path=
  sifmod_users=${SINGULARITYENV_PREPEND_PATH-}:${APPTAINERENV_PREPEND_PATH-}
  IFS=:
  for sifmod_directory in $sifmod_users; do
    case ::$1:$sifmod_noted:$sifmod_path in
      *":$sifmod_directory:"*) ;;
      *) sifmod_path=$sifmod_path$sifmod_directory: ;;
    esac
  done
  unset IFS
  export SINGULARITYENV_PREPEND_PATH="$sifmod_path$1" APPTAINERENV_PREPEND_PATH="$sifmod_path$1"
}

# sifmod_fail MESSAGE HINT [CODE]: as fields where a program of sifmod reads it (script_output.py).
sifmod_fail() {
  if [ -n "${_SIFMOD_FIELDS-}" ]; then
    printf '\036%s: %s\037%s\036\n' "$sifmod_module" "$1" "$2" >&2
  else
    printf '%s: %s\n\nhint: %s\n' "$sifmod_module" "$1" "$2" >&2
  fi
  exit "${3:-127}"
}
