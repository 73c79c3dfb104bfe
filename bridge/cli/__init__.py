"""kakeya-mac and kakeya-runner: the only modules of the bridge that print."""
