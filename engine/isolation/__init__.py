"""Keep measured code apart: child processes of checkouts, and peers behind pipes."""
