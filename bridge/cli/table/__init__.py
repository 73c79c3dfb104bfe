"""Every command of `kakeya-mac` as data, and what is made from it: parser, help, completion, documents."""
