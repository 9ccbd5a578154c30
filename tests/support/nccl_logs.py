"""What NCCL and RCCL log on real clusters: lines of public threads and documents, shortened, with other host names.

They stand for the hardware, which no machine of the tests has.
"""

# NCCL 2.19, InfiniBand, its own transport
IB = """
a1:924:924 [0] NCCL INFO Bootstrap : Using ibp12s0:10.149.0.32<0>
a1:924:924 [0] NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory\
 No plugin found (libnccl-net.so), using internal implementation
a1:924:924 [0] NCCL INFO cudaDriverVersion 12020
NCCL version 2.19.3+cuda12.3
a1:924:1152 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ibp12s0:10.149.0.32<0>
a1:924:1152 [0] NCCL INFO Using non-device net plugin version 0
a1:924:1152 [0] NCCL INFO Using network IB
a1:924:1152 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'
a1:924:1152 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [receive] via NET/IB/0/GDRDMA
a1:924:1152 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
"""
# NVIDIA's PyTorch image: its plugin
IBEXT = """
q1:39629:39686 [0] NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v8 symbol.
q1:39629:39686 [0] NCCL INFO NET/Plugin: Loaded net plugin NCCL RDMA Plugin v6 (v6)
q1:39629:39686 [0] NCCL INFO Plugin Path : /opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so
q1:39629:39686 [0] NCCL INFO P2P plugin IBext
q1:39629:39686 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [RO]; OOB ibp25s0:10.20.0.119<0>
q1:39629:39686 [0] NCCL INFO Using network IBext
"""
# NCCL 2.28, with a time in front
IB_228 = """
[2025-11-18 10:00:01] c1:2620971:2620971 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
[2025-11-18 10:00:01] c1:2620971:2620971 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so
[2025-11-18 10:00:01] c1:2620971:2620971 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:172.25.30.42<0>
[2025-11-18 10:00:01] c1:2620971:2620971 [0] NCCL INFO Initialized NET plugin IB
[2025-11-18 10:00:01] c1:2620971:2620971 [0] NCCL INFO Assigned NET plugin IB to comm
[2025-11-18 10:00:01] c1:2620971:2620971 [0] NCCL INFO Using network IB
"""
ROCE = """
h1:25668:27396 [0] NCCL INFO NCCL version 2.22.3+cuda12.6
h1:25668:27396 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB primaryip:10.10.10.10<0>
h1:25668:27396 [0] NCCL INFO Using network IB
h1:25668:27396 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'
h1:25668:27396 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1'
"""
SOCKET = """
g3:2744870:2744870 [0] NCCL INFO Bootstrap : Using ens7:10.128.0.32<0>
g3:2744870:2744870 [0] NCCL INFO cudaDriverVersion 12000
NCCL version 2.19.3+cuda12.3
g3:2744870:2745046 [0] NCCL INFO NET/IB : No device found.
g3:2744870:2745046 [0] NCCL INFO NET/Socket : Using [0]ens7:10.128.0.32<0>
g3:2744870:2745046 [0] NCCL INFO Using non-device net plugin version 0
g3:2744870:2745046 [0] NCCL INFO Using network Socket
g3:2744870:2745046 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
"""
ASKED = """
gpu01:124172:124172 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to en
gpu01:124172:124172 [0] NCCL INFO NCCL_NET set by environment to Socket.
gpu01:124172:124172 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.
gpu01:124172:124172 [0] NCCL INFO NET/Socket : Using [0]enp225s0f1:10.10.10.2<0>
gpu01:124172:124172 [0] NCCL INFO Using network Socket
"""
EFA = """
algo-1:18564:18638 [2] NCCL INFO NCCL version 2.23.4+cuda12.4
algo-1:18564:18638 [2] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.13.2-aws
algo-1:18564:18638 [2] NCCL INFO NET/OFI Using Libfabric version 1.22
algo-1:18564:18640 [2] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
algo-1:18564:18638 [2] NCCL INFO Using network AWS Libfabric
algo-1:18564:18638 [2] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA
"""
# HPE Slingshot with NCCL 2.28
CXI = """
NCCL INFO NCCL version 2.28.3+cuda12.9
NCCL INFO NET/Plugin: Loaded net plugin AWS Libfabric (v6)
NCCL INFO NET/OFI Using aws-ofi-nccl 1.6.0
NCCL INFO NET/OFI Selected Provider is cxi (found 2 nics)
NCCL INFO Using network AWS Libfabric
NCCL INFO comm 0x79ec210 rank 0 nRanks 16 nNodes 4 localRanks 4 localRank 0 MNNVL 0
NCCL INFO Connected all rings, use ring PXN 0 GDR 1
"""
# the same machine, a plugin that does not fit
NO_PROVIDER = """
NCCL INFO NCCL version 2.28.3+cuda12.9
NCCL INFO NET/Plugin: Loaded net plugin AWS Libfabric (v11)
NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.21.1
NCCL INFO NET/OFI No eligible providers were found
[2026-09-17 04:02:30] x3:3333526:3333526 [0] int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):334 NCCL WARN\
 NET/OFI Unable to find a protocol that worked.  Failing initialization.
[2026-09-17 04:02:30] x3:3333526:3333526 [0] plugin/net.cc:306 NCCL WARN Failed to initialize any NET plugin
"""
NOT_FOUND = """
n5:180142:180163 [0] NCCL INFO NET/Plugin: Could not find: ofi libnccl-net-ofi.so. Using internal network plugin.
n5:179857:179897 [1] net.cc:626 NCCL WARN Error: network AWS Libfabric not found.
"""
OVER_TCP = """
x3:12345:12400 [0] NCCL INFO NET/OFI Using aws-ofi-nccl 1.9.1
x3:12345:12400 [0] NCCL INFO NET/OFI Selected provider is tcp;ofi_rxm, fabric is 10.201.0.0/16 (found 2 nics)
x3:12345:12400 [0] NCCL INFO Using network AWS Libfabric
"""
RCCL_SOCKET = """
z2:58192:58192 [0] NCCL INFO Bootstrap : Using eno2np1:192.168.2.194<0>
z2:58192:58192 [0] NCCL INFO NET/Plugin: No plugin found (librccl-net.so)
z2:58192:58192 [0] NCCL INFO NET/Plugin: Using internal network plugin.
z2:58192:58192 [0] NCCL INFO Kernel version: 5.15.0-163-generic
RCCL version : 2.21.5-HEAD:9a0e6a1
HIP version  : 6.3.42134-a9a80e791
z2:58192:58200 [2] NCCL INFO Failed to open libibverbs.so[.1]
z2:58192:58200 [2] NCCL INFO NET/Socket : Using [0]eno2np1:192.168.2.194<0>
z2:58192:58200 [2] NCCL INFO Using network Socket
"""
RCCL_CXI = """
nid005:927:927 [0] NCCL INFO RCCL version : 2.26.6-HEAD:f224e2c
nid005:927:927 [0] NCCL INFO NET/OFI Using aws-ofi-rccl 1.4.0
nid005:927:927 [0] NCCL INFO NET/OFI Selected Provider is cxi
nid005:927:927 [0] NCCL INFO Using network AWS Libfabric
"""
IPV6 = "e1:7:8 [0] NCCL INFO NET/Socket : Using [0]eth0:fe80::1ff:fe23:4567:890a%eth0<0> [1]eth1:10.0.0.9<0>\n"
