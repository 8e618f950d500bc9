"""What commands share towards a terminal: arguments, tables, progress, signals."""
