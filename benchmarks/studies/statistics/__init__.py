"""The statistics of launches on simulated machines: how often a claim is wrong, and how often an effect is seen.

The rule is the product's (`bridge.launches.stopping`), vectorised; a test holds both equal.
"""
