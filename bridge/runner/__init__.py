"""The host side: policy, journal, claims and leases, recovery, one run or many. Decides nothing about evidence."""
