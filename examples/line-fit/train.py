"""Fit a line by gradient descent, keep its weights, and report the loss on the held-out points."""

import argparse
import json
import os
import random
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=20)
options = parser.parse_args()

points = json.loads(Path(__file__).with_name("points.json").read_text())
random.seed(int(os.environ["KAKEYA_SEED"]))
slope, offset = random.gauss(0.0, 1.0), random.gauss(0.0, 1.0)
for _ in range(options.epochs):
    for x, y in random.sample(points["training"], len(points["training"])):
        error = slope * x + offset - y
        slope, offset = slope - options.lr * error * x, offset - options.lr * error

held_out = points["held_out"]
loss = sum((slope * x + offset - y) ** 2 for x, y in held_out) / len(held_out)
Path(os.environ["KAKEYA_OUT"], "weights.json").write_text(json.dumps({"slope": slope, "offset": offset}))
Path(os.environ["KAKEYA_REPORT"]).write_text(json.dumps({"metrics": {"final_loss": loss}}))
