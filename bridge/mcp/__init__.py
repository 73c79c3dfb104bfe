"""The commands of `kakeya-mac` as tools of the Model Context Protocol; nothing here goes another way."""
