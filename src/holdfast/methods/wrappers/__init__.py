"""Wrappers around a method with a memory, one in a file; `er+mkd` is `er` with `mkd` around it."""
