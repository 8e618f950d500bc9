"""Print the stream of a slot in the product's own styles."""
