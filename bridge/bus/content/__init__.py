"""What a bus carries as git objects: commits, request trees, results, workloads, large files."""
