from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the torch backend is not installed")
torch.set_num_threads(1)
