
# What is compiled at run time is kept on the node, where locks work, apart for each user, job and image. It is made
# when it is needed and never removed here: another process may be using it.

# is_local DIRECTORY: whether it can be written, and is on no network's file system.
is_local() (
  case $1 in
    /*) { [ -w "$1" ] && cd -P "$1"; } || exit 1 ;;
    *) exit 1 ;;
  esac
  longest=
  while read -r _ place kind _; do
    case $PWD/ in
      "${place%/}/"*) case $place in "$longest"*) longest=${place%/} type=$kind ;; esac ;;
    esac
  done </proc/self/mounts
  case ${type-} in
    lustre | nfs* | gpfs | beegfs* | ceph | panfs | wekafs | pvfs2 | cifs | smb3 | afs | fuse*) exit 1 ;;
  esac
) 2>/dev/null

# own_directory PLACE: makes this user's, job's and image's directory there; its path in `caches`.
own_directory() {
  while read -r field _ uid _; do
    if [ "$field" = Uid: ]; then break; fi
  done </proc/self/status
  caches=${1%/}/sifmod-$uid-${SLURM_JOB_ID:+$SLURM_JOB_ID-}{{ cache_key }}
  [ -d "$caches" ] || mkdir -m 700 "$caches" 2>/dev/null || :
  # one look at the entry itself: between two, another user could exchange it
  # shellcheck disable=SC2046 # words
  set -- $(ls -ldn "$caches" 2>/dev/null)
  case ${1-}/${3-} in d*/"$uid") ;; *) return 1 ;; esac
}

# cache NAME DIRECTORY: of one library, unless the user has another.
cache() {
  if eval "[ -z \"\${$1+set}\" ]" && { [ -d "$caches/$2" ] || mkdir -p "$caches/$2" 2>/dev/null; }; then
    export "$1=$caches/$2"
  fi
}

{% if cache_directory %}
# The site says where; another place is used only where that one cannot be written.
if { [ -w {{ cache_directory | shell }} ] && own_directory {{ cache_directory | shell }}; } ||
  { is_local "${TMPDIR:-/tmp}" && own_directory "${TMPDIR:-/tmp}"; } ||
{% else %}
if { is_local "${TMPDIR:-/tmp}" && own_directory "${TMPDIR:-/tmp}"; } ||
{% endif %}
  { is_local /tmp && own_directory /tmp; }; then
  {% for name, directory in caches %}
  cache {{ name }} {{ directory }}
  {% endfor %}
fi
