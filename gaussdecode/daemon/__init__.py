"""Wires the stages together and watches them."""
