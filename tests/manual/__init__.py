"""Tests that run the manual: each page of docs/ with `console` blocks, from its first command to its last.

`page.py` reads a page, `shell.py` runs its commands in a folder of their own, `test_pages.py` has one test for each page.
"""
