"""Templates of the files and rulesets that the core renders (jinja2)."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def make_environment(package: str) -> Environment:
    """Return the environment of the templates in the folder of a package. A missing value is an error."""
    return Environment(
        loader=PackageLoader(package, "."),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - these are no web pages
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
