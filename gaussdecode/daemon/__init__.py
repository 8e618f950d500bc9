"""Connect the stages and watch them."""
