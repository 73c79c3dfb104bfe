"""What a checkpoint's config says about the layers of its decoder, for every backend alike."""
