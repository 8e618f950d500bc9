"""Read a slot of GaussDB or openGauss, over our own client."""
