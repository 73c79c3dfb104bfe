"""Which bus this is: its record, found and compared with the pinned one."""
