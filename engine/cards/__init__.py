"""Measure the shipped models and write their cards and prompt sets."""
