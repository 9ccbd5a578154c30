# tasks_on NODE LIST: how many tasks the node of that number has; LIST is Slurm's, e.g. 2(x3),1.
tasks_on() (
  node=$1
  IFS=,
  for group in $2; do
    nodes=1
    case $group in
      *'(x'*) nodes=${group#*'(x'} ;;
    esac
    nodes=${nodes%')'}
    if [ "$node" -lt "$nodes" ]; then break; fi
    node=$((node - nodes))
  done
  echo "${group%%'('*}"
)

# port JOB STEP: outside the range that the kernel hands out, and another one for each job and step around.
port() (
  if ! read -r low high </proc/sys/net/ipv4/ip_local_port_range; then low=32768 high=60999; fi 2>/dev/null
  first=24577
  if [ "$low" -gt 9214 ]; then
    first=$((low - 8191))
  elif [ "$high" -lt 57344 ]; then
    first=$((high + 1))
  fi
  echo $((first + ($1 * 97 + $2) % 8191)) # 8191 is a prime
)
