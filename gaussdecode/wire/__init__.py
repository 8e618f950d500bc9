"""The pieces that `_wire` stands on: cursors, values, columns, encodings."""
