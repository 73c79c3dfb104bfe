"""One self-contained page of a result: no script, no network, nothing of a stranger's taken for markup."""
