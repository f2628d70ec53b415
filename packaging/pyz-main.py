"""Start of `gatewayctl.pyz`: extracts the program at the first run, because Python imports compiled modules
only from files, and runs it.

`packaging/pyz` replaces the words between `@`. Older versions of Python must be able to parse this file: they
print the first message.
"""

import sys

if sys.version_info < (3, 11):
    version = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"gatewayctl.pyz needs Python 3.11 or newer; this is Python {version}")

try:
    import shutil
except ImportError:
    sys.exit("gatewayctl.pyz needs the whole standard library of Python, on Debian: apt-get install python3")

import atexit
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

ARCHIVE = Path(__file__).parent
#: Suffixes of the compiled modules in the archive: one for each version of Python and each machine.
COMPILED_SUFFIXES = ["@SUFFIXES@"]
REQUIREMENT = (
    "gatewayctl.pyz runs on @SUPPORTED@. On another system, install the wheel of the release: "
    "python3 -m pip install gateway_api-@VERSION@-py3-none-any.whl"
)


def fail(message):
    sys.stderr.write(f"gatewayctl: {message}\n")
    sys.exit(2)


def find_folder():
    """Return the folder with the extracted program, which is below XDG_CACHE_HOME or ~/.cache. If that folder
    cannot be written or belongs to another user, return a temporary folder, which is removed at the end of
    this run."""
    # Relative if the variable is not set, or if the user has no home.
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():
        cache = Path(os.path.expanduser("~/.cache"))
    folder = cache / "gatewayctl" / f"@DIGEST@-{os.uname().machine}"
    if cache.is_absolute():
        try:
            if not folder.is_dir():
                create_folder(folder)
            status = folder.stat()
            # Another user could replace the program in a folder of theirs.
            if status.st_uid == os.geteuid() and not status.st_mode & 0o022:
                return folder
        except OSError:
            pass
    return create_temporary_folder()


def create_folder(folder):
    """Extract the program to a new folder. The folder appears at once, and is complete. Raises OSError."""
    from tempfile import TemporaryDirectory

    folder.parent.mkdir(0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as temporary:
        new = Path(temporary, "new")
        extract(new)
        try:
            new.rename(folder)
        except OSError:
            # Another process may have been faster.
            if not folder.is_dir():
                raise


def create_temporary_folder():
    from tempfile import TemporaryDirectory

    try:
        temporary = TemporaryDirectory(prefix="gatewayctl-")
        atexit.register(temporary.cleanup)
        extract(Path(temporary.name))
    except OSError as error:
        fail(f"cannot extract {ARCHIVE}: {error}. Set XDG_CACHE_HOME to a folder with 10 MB of space")
    return Path(temporary.name)


def extract(folder):
    """Write the modules for this machine to a folder. Raises OSError."""
    import zlib
    from zipfile import BadZipFile, ZipFile

    folder.mkdir(0o700, exist_ok=True)
    try:
        with ZipFile(ARCHIVE) as archive:
            for name in archive.namelist():
                top, _, rest = name.partition("/")
                if top in ("lib", os.uname().machine):
                    path = folder / rest
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(name) as source, path.open("wb") as file:
                        shutil.copyfileobj(source, file)
                        file.flush()
                        # Otherwise a power cut could leave empty modules.
                        os.fsync(file.fileno())
    except (BadZipFile, zlib.error) as error:
        fail(f"{ARCHIVE} is damaged, download it again: {error}")


def run():
    if EXTENSION_SUFFIXES[0] not in COMPILED_SUFFIXES:
        fail(f"this Python {sys.version.split()[0]} loads {EXTENSION_SUFFIXES[0]}. {REQUIREMENT}")
    sys.path[0] = str(find_folder())
    # Containers often set PYTHONDONTWRITEBYTECODE. Each run would compile all modules again.
    sys.dont_write_bytecode = False
    try:
        from gatewayctl.__main__ import main

        return main()
    except ImportError as error:
        fail(f"cannot load a module from {sys.path[0]}: {error}. {REQUIREMENT}")


try:
    sys.exit(run())
except KeyboardInterrupt:
    sys.exit(130)
