"""The operator's `andrea`: one module a verb, imported only when that verb is typed.

Each verb module has `add_arguments(parser)` and `run(args) -> exit code`; its docstring is the verb's help.
"""
