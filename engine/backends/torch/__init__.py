"""The torch backend: CPU and CUDA, over transformers' own modules."""
