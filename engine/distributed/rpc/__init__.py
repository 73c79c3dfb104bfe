"""The streams of drafting sessions over gRPC: the only modules that know it."""
