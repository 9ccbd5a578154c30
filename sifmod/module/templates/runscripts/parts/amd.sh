# What there is of AMD, in kfd, amd_open and amd_closed.
amd() {
  kfd=none
  if [ -r $dev/kfd ] && [ -w $dev/kfd ]; then kfd=open; elif [ -e $dev/kfd ]; then kfd=closed; fi
  set --
  for device in "$dev"/dri/renderD[0-9]*; do
    maker=0x1002
    if [ -r "$sys/class/drm/${device##*/}/device/vendor" ]; then read -r maker <"$sys/class/drm/${device##*/}/device/vendor"; fi
    if [ "$maker" = 0x1002 ]; then set -- "$@" "$device"; fi
  done
  look_at "$@"
  if [ $kfd = none ]; then open=0; fi
  [ $kfd != none ] || [ -r $sys/module/amdgpu/version ] || return 0
  amd_open=$open amd_closed=$closed
  version='the one of the kernel'
  if [ -r $proc/sys/kernel/osrelease ]; then read -r release <$proc/sys/kernel/osrelease && version="$version, $release"; fi
  if [ -r $sys/module/amdgpu/version ]; then read -r version <$sys/module/amdgpu/version; fi
  say 'AMD driver' "amdgpu: $version"
  say 'AMD GPUs' "$amd_open visible$([ "$closed" -eq 0 ] || echo ", $closed that may not be opened")"
  for file in "$sys"/class/kfd/kfd/topology/nodes/*/properties; do
    [ -r "$file" ] || continue
    while read -r key value; do
      if [ "$key" = gfx_target_version ] && [ "$value" -gt 0 ]; then
        say '  on this node' "$(printf 'gfx%d%x%x' $((value / 10000)) $((value / 100 % 100)) $((value % 100)))"
      fi
    done <"$file"
  done
  if [ -r "${ROCM_PATH:-/opt/rocm}/.info/version" ]; then
    read -r version <"${ROCM_PATH:-/opt/rocm}/.info/version"
    say ROCm "$version in the image"
  fi
  if command -v rocm-smi >/dev/null; then rocm-smi; fi
}
