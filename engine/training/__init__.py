"""Training of the small models that everything is measured on: corpus, targets, drafters."""
