"""Load the weights that a repeat kept, and evaluate the held-out points again."""

import json
import os
from pathlib import Path

weights = json.loads(Path(os.environ["KAKEYA_OUT"], "weights.json").read_text())
held_out = json.loads(Path(__file__).with_name("points.json").read_text())["held_out"]
errors = [weights["slope"] * x + weights["offset"] - y for x, y in held_out]
print(json.dumps({"final_loss": sum(error**2 for error in errors) / len(errors)}))
