"""Passwords and their bcrypt hashes."""

import re

import bcrypt

#: bcrypt reads no further; what it would ignore must not count as right.
MAX_BYTES = 72
#: The binary logarithm of the rounds of a new hash.
COST = 12
_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}", re.ASCII)


def hash_password(password: str) -> str:
    """A hash for `api.users`. Raises ValueError for what bcrypt can't tell apart."""
    if not password:
        raise ValueError("a password must not be empty")
    if not _is_hashable(password):
        raise ValueError(f"a password must have at most {MAX_BYTES} bytes and no NUL")
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(COST)).decode()


def verify(password: str, password_hash: str) -> bool:
    """True when the hash is the password's. Takes a fifth of a second of a whole core, always: a
    password that can't be right costs as much as one that is wrong."""
    hashable = _is_hashable(password)
    try:
        matches = bcrypt.checkpw(password.encode() if hashable else b"-", password_hash.encode())
    except ValueError:
        # The core gave a hash that isn't one; nobody can know its password.
        return False
    return hashable and matches


def cost(password_hash: str) -> int:
    """The binary logarithm of the rounds that a hash takes, 4 to 31; 0 for what is no hash."""
    match = _HASH.fullmatch(password_hash)
    return int(match[1]) if match else 0


def nobodys_hash(cost: int) -> str:
    """Takes as long to check as another of that cost, and is of no password that anybody knows."""
    return f"$2b${cost:02}$" + 53 * "."


def _is_hashable(password: str) -> bool:
    try:
        encoded = password.encode()
    except UnicodeEncodeError:
        return False
    return len(encoded) <= MAX_BYTES and b"\0" not in encoded
