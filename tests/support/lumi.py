"""The 65 recipes of LUMI outside ccpe: module and SIF, by what their modules set (tests/system/test_lumi_modules.py).

A module is called like its recipe's file, to which four recipes themselves do not keep.
"""

LUMI = {
    "before": """
        AlphaFold/69afc4d-rocm-5.5.1-python-3.9-singularity-20231108
            lumi-alphafold-rocm-5.5.3-python-3.9-alphafold-69afc4d-dockerhash-b52a3dc67cad.sif
        AlphaFold/69afc4d-rocm-5.5.1-python-3.9-singularity-20240207
            lumi-alphafold-rocm-5.5.3-python-3.9-alphafold-69afc4d-dockerhash-ef2047abfaaa.sif
        TensorFlow/2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20231110
            lumi-tensorflow-rocm-5.5.1-python-3.10-tensorflow-2.11.1-horovod-0.28.1-dockerhash-9c9351c30d4c.sif
        TensorFlow/2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20240207
            lumi-tensorflow-rocm-5.5.1-python-3.10-tensorflow-2.11.1-horovod-0.28.1-dockerhash-1e64dc0670d8.sif
        TensorFlow/2.11.1-rocm-5.5.1-python-3.10-horovod-0.28.1-singularity-20240617
            lumi-tensorflow-rocm-5.5.1-python-3.10-tensorflow-2.11.1-horovod-0.28.1-dockerhash-40e06197e97b.sif
        jax/0.4.13-rocm-5.6.1-python-3.10-singularity-20231215
            lumi-jax-rocm-5.6.1-python-3.10-jax-0.4.13-dockerhash-1e625e0cfb23.sif
        jax/0.4.13-rocm-5.6.1-python-3.10-singularity-20240207
            lumi-jax-rocm-5.6.1-python-3.10-jax-0.4.13-dockerhash-825cf0044cce.sif
        mpi4py/3.1.4-rocm-5.4.5-python-3.10-singularity-20231110
            lumi-mpi4py-rocm-5.4.5-python-3.10-mpi4py-3.1.4-dockerhash-7fd741532a9f.sif
        mpi4py/3.1.4-rocm-5.4.5-python-3.10-singularity-20240207
            lumi-mpi4py-rocm-5.4.5-python-3.10-mpi4py-3.1.4-dockerhash-6f5094cb4f33.sif
    """,
    "generation 1": """
        PyTorch/2.0.1-rocm-5.5.1-python-3.10-debugsymbols-singularity-20231110
            lumi-pytorch-rocm-5.5.1-python-3.10-pytorch-v2.0.1-debugsymbols-dockerhash-618294b36724.sif
        PyTorch/2.0.1-rocm-5.5.1-python-3.10-debugsymbols-singularity-20240207
            lumi-pytorch-rocm-5.5.1-python-3.10-pytorch-v2.0.1-debugsymbols-dockerhash-59de60bc9b67.sif
        PyTorch/2.0.1-rocm-5.5.1-python-3.10-singularity-20231110
            lumi-pytorch-rocm-5.5.1-python-3.10-pytorch-v2.0.1-dockerhash-765f7f6ebd2f.sif
        PyTorch/2.0.1-rocm-5.5.1-python-3.10-singularity-20240207
            lumi-pytorch-rocm-5.5.1-python-3.10-pytorch-v2.0.1-dockerhash-5313d0148234.sif
        PyTorch/2.1.0-rocm-5.6.1-python-3.10-singularity-20231123
            lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.1.0-dockerhash-10b8c0aaec73.sif
        PyTorch/2.1.0-rocm-5.6.1-python-3.10-singularity-20240207
            lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.1.0-dockerhash-6fc1f434ed4c.sif
        PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-20240208
            lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.0-dockerhash-f421797bd407.sif
        PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-20240209
            lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.0-dockerhash-f72ddd8ef883.sif
    """,
    "generation 2": """
        PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-20240315
            lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.0-dockerhash-7392c9d4dcf7.sif
        PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-exampleVenv-20240315
            lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.0-dockerhash-7392c9d4dcf7.sif
        PyTorch/2.2.2-rocm-5.6.1-python-3.10-singularity-20240404
            lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.2-dockerhash-de61e1058846.sif
        PyTorch/2.2.2-rocm-5.7.3-python-3.12-singularity-20240923
            lumi-pytorch-rocm-5.7.3-python-3.12-pytorch-v2.2.2-dockerhash-b0bb3b4ea779.sif
        PyTorch/2.3.0-rocm-6.2.0-python-3.10-singularity-20241007
            lumi-pytorch-rocm-6.2.0-python-3.10-pytorch-v2.3.0-dockerhash-187f41102477.sif
        PyTorch/2.3.1-rocm-6.0.3-python-3.12-singularity-20240923
            lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.3.1-dockerhash-2c1c14cafd28.sif
        PyTorch/2.4.1-rocm-6.1.3-python-3.12-singularity-20241007
            lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1-dockerhash-04f2083a6cb0.sif
        PyTorch/2.4.1-rocm-6.1.3-python-3.12-singularity-20241125
            lumi-pytorch-rocm-6.1.3-python-3.12-pytorch-v2.4.1-dockerhash-64804c7ab71a.sif
        PyTorch/2.5.1-rocm-6.2.3-python-3.12-singularity-20241125
            lumi-pytorch-rocm-6.2.3-python-3.12-pytorch-v2.5.1-dockerhash-4d68a29c872e.sif
        PyTorch/20240801-rocm-6.2.0-python-3.12-vllm-c7a3a47-singularity-20241007
            lumi-pytorch-rocm-6.2.0-python-3.12-pytorch-20240801-vllm-c7a3a47-dockerhash-cc0735b521cd.sif
        PyTorch/20240918-rocm-6.2.1-python-3.12-vllm-4075b35-singularity-20241007
            lumi-pytorch-rocm-6.2.1-python-3.12-pytorch-20240918-vllm-4075b35-dockerhash-3cad1babc4b8.sif
    """,
    "generation 2, preload": """
        PyTorch/2.2.2-rocm-5.6.1-python-3.10-singularity-20240617
            lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.2-dockerhash-f9351aba9a48.sif
        PyTorch/2.2.2-rocm-5.6.1-python-3.10-vllm-0.4.0.post1-singularity-20240404
            lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.2-vllm-v0.4.0.post1-dockerhash-7dbd042516ed.sif
        PyTorch/2.2.2-rocm-5.6.1-python-3.10-vllm-0.4.0.post1-singularity-20240617
            lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.2-vllm-v0.4.0.post1-dockerhash-40553937ac65.sif
    """,
    "rocm": """
        rocm/5.4.5-singularity-20231110
            lumi-rocm-rocm-5.4.5-dockerhash-5527efec2cde.sif
        rocm/5.4.5-singularity-20240124
            lumi-rocm-rocm-5.4.5-dockerhash-2e8f09a179ec.sif
        rocm/5.4.5-singularity-20240207
            lumi-rocm-rocm-5.4.5-dockerhash-17850fec99a9.sif
        rocm/5.4.6-singularity-20231110
            lumi-rocm-rocm-5.4.6-dockerhash-ee04f2306dd1.sif
        rocm/5.4.6-singularity-20240124
            lumi-rocm-rocm-5.4.6-dockerhash-087126ecfe42.sif
        rocm/5.4.6-singularity-20240207
            lumi-rocm-rocm-5.4.6-dockerhash-1503a3ddab44.sif
        rocm/5.5.1-singularity-20231110
            lumi-rocm-rocm-5.5.1-dockerhash-c148c989cc31.sif
        rocm/5.5.1-singularity-20240124
            lumi-rocm-rocm-5.5.1-dockerhash-a50bdb9b0bf8.sif
        rocm/5.5.1-singularity-20240207
            lumi-rocm-rocm-5.5.1-dockerhash-eede462411b7.sif
        rocm/5.5.3-singularity-20231108
            lumi-rocm-rocm-5.5.3-dockerhash-14617e708733.sif
        rocm/5.5.3-singularity-20240124
            lumi-rocm-rocm-5.5.3-dockerhash-e6d86d57bc53.sif
        rocm/5.5.3-singularity-20240207
            lumi-rocm-rocm-5.5.3-dockerhash-b152a56c3a8f.sif
    """,
    "rocm, no jansson": """
        rocm/5.6.0-singularity-20240315
            lumi-rocm-rocm-5.6.0-dockerhash-2fc2f9a6a17d.sif
        rocm/5.6.1-singularity-20231108
            lumi-rocm-rocm-5.6.1-dockerhash-5a18a3a56890.sif
        rocm/5.6.1-singularity-20240124
            lumi-rocm-rocm-5.6.1-dockerhash-62dbd19f0f95.sif
        rocm/5.6.1-singularity-20240207
            lumi-rocm-rocm-5.6.1-dockerhash-44ecb24471c4.sif
        rocm/5.7.1-singularity-20240124
            lumi-rocm-rocm-5.7.1-dockerhash-0494f66d4228.sif
        rocm/5.7.1-singularity-20240207
            lumi-rocm-rocm-5.7.1-dockerhash-280b15f62fe1.sif
        rocm/5.7.3-singularity-20241004
            lumi-rocm-rocm-5.7.3-dockerhash-2e7a2382d77e.sif
        rocm/6.0.3-singularity-20241004
            lumi-rocm-rocm-6.0.3-dockerhash-1ada3e019646.sif
        rocm/6.1.3-singularity-20241004
            lumi-rocm-rocm-6.1.3-dockerhash-4a063f050ed7.sif
        rocm/6.2.2-singularity-20241007
            lumi-rocm-rocm-6.2.2-dockerhash-1cc098de6a0f.sif
    """,
    "before, no jansson": """
        TensorFlow/2.16.1-rocm-6.2.0-python-3.10-horovod-0.28.1-singularity-20241007
            lumi-tensorflow-rocm-6.2.0-python-3.10-tensorflow-2.16.1-horovod-0.28.1-dockerhash-8c75f24cfffc.sif
        jax/0.4.28-rocm-6.2.0-python-3.12-singularity-20241007
            lumi-jax-rocm-6.2.0-python-3.12-jax-0.4.28-dockerhash-a886651bba73.sif
        mpi4py/3.1.6-rocm-6.2.0-python-3.12-singularity-20241007
            lumi-mpi4py-rocm-6.2.0-python-3.12-mpi4py-3.1.6-dockerhash-f049c8bd4669.sif
    """,
    "jax of 2025": """
        jax/0.4.28-rocm-6.2.0-python-3.12-singularity-20250404
            lumi-jax-rocm-6.2.0-python-3.12-jax-0.4.28-dockerhash-1441a4bce06f.sif
        jax/0.4.35-rocm-6.2.4-python-3.12-singularity-20250404
            lumi-jax-rocm-6.2.4-python-3.12-jax-0.4.35-dockerhash-a5ec205941a2.sif
        jax/community-0.5.0-rocm-6.2.4-python-3.12-singularity-20250404
            lumi-jax-rocm-6.2.4-python-3.12-jax-community-0.5.0-dockerhash-67b47a3e813c.sif
    """,
    "generation 2, no jansson": """
        PyTorch/2.3.1-rocm-6.0.3-python-3.12-singularity-exampleVenv-20240923
            lumi-pytorch-rocm-6.0.3-python-3.12-pytorch-v2.3.1-dockerhash-2c1c14cafd28.sif
    """,
    "generation 3": """
        PyTorch/2.6.0-rocm-6.2.4-python-3.12-singularity-20250326
            lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.6.0-dockerhash-33fb441e91f5.sif
        PyTorch/2.6.0-rocm-6.2.4-python-3.12-singularity-20250404
            lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.6.0-dockerhash-36e16fb5b67b.sif
        PyTorch/2.6.0-rocm-6.2.4-python-3.12-singularity-20250410
            lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.6.0-dockerhash-ef203c810cc9.sif
        PyTorch/2.7.0-rocm-6.2.4-python-3.12-singularity-20250527
            lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.0-dockerhash-2a550b31226f.sif
        PyTorch/2.7.1-rocm-6.2.4-python-3.12-singularity-20250827
            lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.7.1-dockerhash-0d479e852886.sif
    """,
}
SIFS = {
    module: sif for rows in LUMI.values() for module, sif in zip(rows.split()[::2], rows.split()[1::2], strict=True)
}
KINDS = {module: kind for kind, rows in LUMI.items() for module in rows.split()[::2]}
# the only one that is a variant, and whose file is not called like LUMI's recipe
AS_VARIANT = "PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-20240209"
