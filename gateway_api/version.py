"""What this software calls itself."""

from importlib.metadata import version

PRODUCT = "Subscriber Gateway"
VERSION = version("gateway-api")
