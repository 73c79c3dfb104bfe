"""The evidence gate: reports, RunRecord and JobSpec in, a Verdict out.

A number may be quoted only if the verdict says `evidence`. Pure: knows no file, process, clock or network; the same
code judges on the host, at the requester and in CI.
"""
