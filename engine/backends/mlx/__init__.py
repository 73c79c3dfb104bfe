"""The MLX backend: Metal on a Mac, plain CPU on Linux."""
