"""The page in a real browser, before a real `jobplane up`: fixtures are in `conftest`, words for pages in `viewer`."""
