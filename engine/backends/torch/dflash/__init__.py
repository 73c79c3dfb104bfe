"""The DFlash drafter: layers, selector and convolution."""
