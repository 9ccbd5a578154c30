# What PyTorch says, in torch, torch_built, torch_count and torch_error, each empty where it says nothing.
ask_torch() {
  torch='' torch_built='' torch_count='' torch_error=''
  answer=$(
    exec 2>/dev/null
    {{ python | map("shell") | join(" ") }} -W ignore -c '
import sys
try:
    import torch
except Exception as error:
    if getattr(error, "name", "") != "torch":
        print(f"error={error}".splitlines()[0])
    sys.exit()
print(f"version={torch.__version__}")
built = {"CUDA": torch.version.cuda, "ROCm": torch.version.hip}
for name, version in built.items():
    if version:
        print(f"built={name} {version}")
try:
    print("collectives=" + ".".join(map(str, torch.cuda.nccl.version())))
except Exception:
    pass
try:
    if any(built.values()):
        torch.cuda.init()
        for number in range(torch.cuda.device_count()):
            name = torch.cuda.get_device_name(number)
            assert torch.ones(2, device=f"cuda:{number}").sum().item() == 2
            print(f"device={number}: {name}")
        print(f"count={torch.cuda.device_count()}")
except Exception as error:
    print(f"error={error}".splitlines()[0])
'
    exit $? # so that it is not this shell that sees it crash, and says so
  )
  code=$?
  case $code in
    0 | 126 | 127) ;; # 127: no Python
    *) answer="error=Python ended with $code
$answer" ;;
  esac
  collectives=NCCL
  while IFS='=' read -r key value; do
    case $key in
      version) torch=$value && say PyTorch "$value" ;;
      built) torch_built=$value && say '  built for' "$value" ;;
      collectives)
        case $torch_built in ROCm*) collectives=RCCL ;; esac
        say "  $collectives" "$value"
        ;;
      device) say '  computes on' "$value" ;;
      count) torch_count=$value ;;
      error) torch_error=$value ;;
    esac
  done <<ANSWER
$answer
ANSWER
}
