"""The curriculum: turns what the trainer recorded into what it trains on next. Never imports torch."""
