"""Restoration: f_theta makes the evicted rows of a target again from what its drafter reads."""
