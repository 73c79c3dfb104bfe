"""Serve what `mlx_lm.server` serves, on a Linux CPU with the matrix library that the engine gives MLX too.

MLX's own takes many times as long there to read a prompt or to step a batch, and a comparison would show that alone.
"""

import sys

from mlx_lm.server import main

if sys.platform == "linux":
    from engine.backends.mlx.blas.library import use_fast_blas

    use_fast_blas()
main()
