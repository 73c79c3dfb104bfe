"""Who keeps which accelerator busy, seen from outside the workload: NVML for NVIDIA, the I/O registry for Apple."""
