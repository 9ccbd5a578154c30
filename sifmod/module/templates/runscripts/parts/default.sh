# default NAME VALUE: exports it unless it is set.
default() {
  eval "[ -n \"\${$1+set}\" ]" || export "$1=$2"
}
