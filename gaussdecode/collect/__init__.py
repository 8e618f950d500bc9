"""Fourth stage: restores commit order and releases whole transactions."""
