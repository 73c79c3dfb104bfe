"""Which matrix library MLX calls on a CPU, and giving it a fast one."""
