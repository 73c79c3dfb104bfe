"""Clusters that place runs on nodes: what one has to do, and the executor that follows runs through their folders."""
