"""Fourth stage: restore the commit order and release whole transactions."""
