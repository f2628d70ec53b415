"""The name and version of this software."""

from importlib.metadata import version

PRODUCT = "Subscriber Gateway"
VERSION = version("gateway-api")
