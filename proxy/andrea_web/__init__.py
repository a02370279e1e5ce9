"""The run page: what the command line says and does, in a browser, for whoever may. Never imports torch."""
