"""The stream of a slot, printed in the product's own styles."""
