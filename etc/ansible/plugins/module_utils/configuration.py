"""Partial configurations: the operations that make a configuration contain a partial one.

A partial configuration is a JSON merge patch (RFC 7396) of the document of GET /system/config. In place of a
list whose items have a key, such as the neighbours of BGP, an object names items by their keys.
"""

from __future__ import annotations

import json
import re

#: The fields that identify the items of lists.
KEY_FIELDS = ("address", "name", "url", "username")
#: The fields that must be present, and may be null.
NULL_FIELDS = ("outer_vlan_range",)
#: The API shows it in place of a secret.
MASK = "********"

#: A member whose name ends so is a secret.
_SECRET_WORDS = ("secret", "password", "password_hash", "token", "key")
_NAME_PATTERN = re.compile("[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


def plan_operations(present, patch, path=""):
    """Return the operations for POST /system/config/edit that change the value `present` to contain `patch`;
    none if it contains the patch already. `path` is the path of the value. Raises ValueError with a path and
    the rule if the patch is invalid."""
    if isinstance(patch, dict):
        operations = []
        for name, value in patch.items():
            inner = _join(path, name)
            former = _find(present, name)
            if isinstance(present, list) and former is None and isinstance(value, dict):
                _refuse_mask(value, inner)
                item = {key: each for key, each in value.items() if each is not None or key in NULL_FIELDS}
                operations.append({"op": "set", "path": inner, "value": item})
            elif value is None and former is not None and name in NULL_FIELDS:
                operations.append({"op": "set", "path": inner, "value": None})
            else:
                operations += plan_operations(former, value, inner)
        return operations
    if patch is None:
        return [] if present is None else [{"op": "delete", "path": path}]
    _refuse_mask(patch, path)
    return [] if _is_equal(present, patch) else [{"op": "set", "path": path, "value": patch}]


def merge(patch, secrets, path=""):
    """Return a partial configuration that contains a partial configuration and its secrets. Raises ValueError
    with the path and the rule if there are secrets of an item that a whole list in `patch` does not have."""
    if isinstance(patch, list) and isinstance(secrets, dict):
        for name in secrets:
            if _find(patch, name) is None:
                raise ValueError(f"{_join(path, name)}: the list in config has no such item")
        names = [next((name for name in secrets if _find([item], name)), None) for item in patch]
        return [
            item if name is None else merge(item, secrets[name], _join(path, name))
            for item, name in zip(patch, names, strict=True)
        ]
    if isinstance(patch, dict) and isinstance(secrets, dict):
        inner = {
            name: merge(patch[name], value, _join(path, name)) if name in patch else value
            for name, value in secrets.items()
        }
        return {**patch, **inner}
    return secrets


def list_secrets(patch, path=""):
    """Return the paths of the values in a partial configuration whose name is a word for a secret."""
    if isinstance(patch, list):
        return [each for item in patch for each in list_secrets(item, path)]
    if not isinstance(patch, dict):
        return []
    paths = []
    for name, value in patch.items():
        inner = _join(path, name)
        is_secret = str(name).lower().endswith(_SECRET_WORDS) and isinstance(value, str)
        paths += [inner] if is_secret else list_secrets(value, inner)
    return paths


def _find(present, name):
    """Return the member of an object, or the item of a list with the key `name`; None if there is none."""
    if isinstance(present, dict):
        return present.get(name)
    if isinstance(present, list):
        items = (item for item in present if isinstance(item, dict))
        return next((item for item in items if name in (item.get(key) for key in KEY_FIELDS)), None)
    return None


def _join(path, name):
    """Return the path of a member or item. Raises ValueError if the name cannot be in a path."""
    if '"' in name:
        raise ValueError(f"{path}: {name!r} must not have a quotation mark")
    segment = name if _NAME_PATTERN.fullmatch(name) else f'"{name}"'
    return f"{path}.{segment}" if path else segment


def _refuse_mask(value, path):
    """Raise ValueError if a value has the mask of a secret in it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        _refuse_mask(each, path)
    if value == MASK:
        raise ValueError(f"{path}: must not be {MASK}, which stands for a secret")


def _is_equal(one, two):
    """Return True if two values are the same JSON: in Python, 1 equals True."""
    return json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)
