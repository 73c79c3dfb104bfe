"""The gate's statistics: plain functions of lists of floats, no array library.

The second, independent path (bootstrap-t, SciPy) lives in the tests.
"""
