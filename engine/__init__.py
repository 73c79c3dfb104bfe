"""Prompt -> prefill -> (draft -> verify -> accept -> crop)* -> tokens, on MLX or torch."""
