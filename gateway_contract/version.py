"""The name and version of this software. setup.cfg takes the version of the packages from here."""

PRODUCT = "Subscriber Gateway"
VERSION = "1.0.0"
