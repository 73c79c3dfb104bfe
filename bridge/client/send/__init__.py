"""From words to a request on the bus: parameters, workload, signature, push, cancel."""
