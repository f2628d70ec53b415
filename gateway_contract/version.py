"""The name and version of this software. `VERSION` is read at its first use, because a help text does not
need the version."""

PRODUCT = "Subscriber Gateway"
#: The name of the distribution.
PACKAGE = "gateway-api"
VERSION: str


def __getattr__(name: str) -> str:
    if name != "VERSION":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    from importlib.metadata import version

    globals()[name] = version(PACKAGE)
    return version(PACKAGE)
