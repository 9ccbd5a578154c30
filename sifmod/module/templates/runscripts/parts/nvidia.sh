# What there is of NVIDIA, in driver, nvidia_open, nvidia_closed and libcuda.
nvidia() {
  driver=
  if [ -r $proc/driver/nvidia/version ]; then
    read -r line <$proc/driver/nvidia/version
    # shellcheck disable=SC2086 # words
    first_number $line
    driver=$number
  elif [ -r $sys/module/nvidia/version ]; then
    read -r driver <$sys/module/nvidia/version
  fi
  look_at "$dev"/nvidia[0-9]*
  nvidia_open=$open nvidia_closed=$closed
  [ "$driver$open$closed" != 00 ] || return 0
  say 'NVIDIA driver' "${driver:-not known}${driver:+, which runs CUDA up to $(cuda_of "$driver") in full}"
  say 'NVIDIA GPUs' "$open visible$([ "$closed" -eq 0 ] || echo ", $closed that may not be opened")"
  for file in "$proc"/driver/nvidia/gpus/*/information; do
    [ -r "$file" ] || continue
    while read -r key value; do
      if [ "$key" = Model: ]; then say '  on this node' "$value"; fi
    done <"$file"
  done
  if command -v nvidia-smi >/dev/null; then nvidia-smi -L; fi
  find_libcuda
}

# The driver's library as the loader finds it: bound into the container by --nv; or the image's own that comes first in
# LD_LIBRARY_PATH (forward compatibility), whose version then counts.
find_libcuda() {
  IFS=:
  for directory in ${LD_LIBRARY_PATH-} /.singularity.d/libs /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu \
    /usr/lib64 /usr/lib; do
    if [ -e "$directory/libcuda.so.1" ]; then
      libcuda=$directory/libcuda.so.1
      break
    fi
  done
  unset IFS
  say '  libcuda' "${libcuda:-not found}"
  [ -n "$libcuda" ] || return 0
  for file in "${libcuda%.1}".[0-9]*.[0-9]*; do
    version=${file##*/libcuda.so.}
    if [ -e "$file" ] && [ -n "$driver" ] && older "$driver" "$version"; then
      say '  compatibility' "libcuda $version in front of the driver's own (GPUs of data centres only)"
      driver=$version
    fi
  done
}

# The image's CUDA and what says so, in `cuda` and `says`: PyTorch's counts, then the library, then the variable, which
# a module of the host may have set.
image_cuda() {
  cuda='' says=''
  case ${torch_built-} in
    CUDA*) cuda=${torch_built#CUDA } says='PyTorch is built for it' ;;
  esac
  IFS=:
  for directory in ${LD_LIBRARY_PATH-} "${CONDA_PREFIX:-/opt/conda}/lib" /usr/local/cuda/lib64 \
    /usr/local/cuda/targets/x86_64-linux/lib /usr/local/cuda/targets/sbsa-linux/lib; do
    for file in "$directory"/libcudart.so.[0-9]*.[0-9]*; do
      if [ -z "$cuda" ] && [ -e "$file" ]; then cuda=${file##*/libcudart.so.} says=$file; fi
    done
  done
  unset IFS
  if [ -z "$cuda" ] && [ -n "${CUDA_VERSION-}" ]; then
    first_number "$CUDA_VERSION"
    cuda=$number says=CUDA_VERSION
  fi
  if [ -z "$cuda" ]; then return; fi
  say CUDA "$cuda in the image ($says)"
  minor=${cuda#*.}
  if [ -n "$driver" ] && [ "${driver%%.*}" -lt 611 ] && older "$(cuda_of "$driver")" "${cuda%%.*}.${minor%%.*}" &&
    ! older "$driver" "$(least_driver "$cuda")"; then
    say '  newer' "than the driver's: it runs, but code that is compiled only for this GPU at run time may not"
  fi
}
