"""The live page and the documentation page, in a browser."""
