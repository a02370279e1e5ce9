"""The text: sources, tokenizer, token shards, the order of windows, shares of pulls and the dealing of them."""
