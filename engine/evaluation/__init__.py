"""What is measured: workloads, studies and the probe."""
