"""The nouns that pass between the stages; imports nothing of ours."""
