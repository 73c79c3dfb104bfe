"""Serve what `llama-server` of llama.cpp serves, from the package that brings it: `pip install xllamacpp`."""

import argparse
import signal

import xllamacpp

words = argparse.ArgumentParser()
words.add_argument("--model", required=True)
words.add_argument("--port", type=int, required=True)
words.add_argument("--parallel", type=int, default=8)
words.add_argument("--ctx-size", type=int, default=8192)
options = words.parse_args()

params = xllamacpp.CommonParams()
params.model.path = options.model
params.hostnames, params.port = ["127.0.0.1"], options.port
params.n_parallel, params.n_ctx = options.parallel, options.ctx_size
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
signal.pause()
