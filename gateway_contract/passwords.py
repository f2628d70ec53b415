"""Passwords and their bcrypt hashes."""

import re

import bcrypt

#: bcrypt ignores further bytes, so a longer password is rejected.
MAX_BYTES = 72
#: The binary logarithm of the rounds of a new hash.
COST = 12
_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}", re.ASCII)


def hash_password(password: str) -> str:
    """Return a bcrypt hash of a password for `api.users`. Raises ValueError if the password is empty, or if
    bcrypt would ignore a part of the password."""
    if not password:
        raise ValueError("a password must not be empty")
    if not _is_hashable(password):
        raise ValueError(f"a password must have at most {MAX_BYTES} bytes and no NUL")
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(COST)).decode()


def verify(password: str, password_hash: str) -> bool:
    """Return True if `password_hash` is a hash of the password. The check takes a fifth of a second of a
    processor core, even for a password that bcrypt cannot read."""
    hashable = _is_hashable(password)
    try:
        matches = bcrypt.checkpw(password.encode() if hashable else b"-", password_hash.encode())
    except ValueError:
        # The text from the core is not a hash.
        return False
    return hashable and matches


def read_cost(password_hash: str) -> int:
    """Return the cost of a bcrypt hash (log2 of its rounds), 4 to 31. Return 0 if the text is not a bcrypt
    hash."""
    match = _HASH.fullmatch(password_hash)
    return int(match[1]) if match else 0


def make_decoy_hash(cost: int) -> str:
    """Return a hash that no known password has. A check against this hash takes as long as a check against
    any other hash of this cost."""
    return f"$2b${cost:02}$" + 53 * "."


def _is_hashable(password: str) -> bool:
    try:
        encoded = password.encode()
    except UnicodeEncodeError:
        return False
    return len(encoded) <= MAX_BYTES and b"\0" not in encoded
