"""Access marks of views."""

from pathlib import Path

import pytest
from flask import Blueprint

from gateway_api.base.settings import TOKEN, USERS, Profile, Settings
from gateway_api.web import app as application
from gateway_api.web.access import NoAccessMark, access_of
from gateway_api.web.services import Parts, Services

both = pytest.mark.parametrize("profile", [USERS, TOKEN], ids=lambda profile: profile.name)


def parts(folder: Path, profile: Profile) -> Parts:
    settings = Settings(folder / "none", folder, b"-" * 32, folder, audit=folder, profile=profile)
    return (Services if profile is USERS else Parts).from_settings(settings)


unmarked = Blueprint("unmarked", __name__)


@unmarked.get("/unmarked")
def view() -> str:
    return ""


@both
def test_a_view_without_a_mark_keeps_the_application_from_starting(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(application.ROUTES, profile, (*application.ROUTES[profile], unmarked))
    with pytest.raises(NoAccessMark, match=r"unmarked\.view"):
        application.create_app(parts(tmp_path, profile))


@both
def test_every_view_has_a_mark(profile: Profile, tmp_path: Path) -> None:
    app = application.create_app(parts(tmp_path, profile))
    assert [name for name, view in app.view_functions.items() if access_of(view) is None] == []
