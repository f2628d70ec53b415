"""The token of the live page, in a cookie: which requests it authorizes, and what ends it."""

import pytest
import requests

from tests.support.stack import Api

PAGE = {"X-Gateway-Page": "1"}
NOBODY = {"detail": "Could not validate credentials"}


def log_in(api: Api, role: str = "operator", headers: dict[str, str] = PAGE) -> requests.Response:
    names = api.environment
    body = {"username": names[f"{role.upper()}_USER"], "password": names[f"{role.upper()}_PASSWORD"]}
    answer = api.send("POST", "/auth/login", None, json=body, headers=headers)
    assert answer.ok, answer.text
    # requests would send it with each later request of the test run.
    api.session.cookies.clear()
    return answer


def name_of(api: Api) -> str:
    return f"__Host-gateway-{api.url.rpartition(':')[2]}"


def with_cookie(api: Api, token: str, headers: dict[str, str], method: str = "GET") -> requests.Response:
    path = "/subscribers/summary" if method == "GET" else "/auth/logout"
    return api.send(method, path, None, headers={"Cookie": f"{name_of(api)}={token}", **headers})


@pytest.fixture
def token(api: Api) -> str:
    found: str = log_in(api).json()["access_token"]
    return found


def test_a_login_of_the_page_sets_a_cookie_that_no_script_and_no_other_site_has(api: Api) -> None:
    answer = log_in(api)
    cookie, *attributes = answer.headers["Set-Cookie"].split("; ")
    assert cookie == f"{name_of(api)}={answer.json()['access_token']}"
    assert set(attributes) == {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"}


@pytest.mark.parametrize("headers", [{}, {"X-Gateway-Page": "0"}])
def test_any_other_login_sets_none(api: Api, headers: dict[str, str]) -> None:
    assert "Set-Cookie" not in log_in(api, headers=headers).headers


def test_the_cookie_authorizes_requests_of_the_page_and_no_others(api: Api, token: str) -> None:
    assert with_cookie(api, token, PAGE).status_code == 200
    for headers in ({}, {"X-Gateway-Page": ""}, {"Origin": "https://evil.example"}):
        for method in ("GET", "POST"):
            answer = with_cookie(api, token, headers, method)
            assert (answer.status_code, answer.json()) == (401, NOBODY)


def test_no_other_origin_may_send_the_page_s_header(api: Api) -> None:
    preflight = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-gateway-page",
    }
    answer = api.send("OPTIONS", "/auth/logout", None, headers=preflight)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize("header", ["Bearer wrong", "Basic YTpi", ""])
def test_the_cookie_does_not_stand_in_for_a_wrong_header(api: Api, token: str, header: str) -> None:
    answer = with_cookie(api, token, {**PAGE, "Authorization": header})
    assert (answer.status_code, answer.json()) == (401, NOBODY)


def test_a_bearer_token_counts_whatever_the_cookie_is(api: Api) -> None:
    headers = {**PAGE, "Authorization": f"Bearer {api.token('operator')}"}
    assert with_cookie(api, "wrong", headers).status_code == 200


@pytest.mark.parametrize("path", ["/auth/logout", "/auth/logout-everywhere"])
def test_a_logout_ends_the_token_and_removes_the_cookie(api: Api, token: str, path: str) -> None:
    cookie = {"Cookie": f"{name_of(api)}={token}", **PAGE}
    answer = api.send("POST", path, None, headers=cookie)
    assert answer.ok
    assert f"{name_of(api)}=; " in answer.headers["Set-Cookie"]
    assert "Max-Age=0" in answer.headers["Set-Cookie"]
    assert with_cookie(api, token, PAGE).status_code == 401
    api.forget_tokens()


def test_the_user_of_a_token_is_told_and_none_without_a_valid_one(api: Api, token: str) -> None:
    def user(headers: dict[str, str]) -> object:
        answer = api.send("GET", "/auth/token", None, headers=headers)
        assert answer.status_code == 200
        return answer.json()["data"]["user"]

    cookie = {"Cookie": f"{name_of(api)}={token}"}
    found = user({**cookie, **PAGE})
    assert isinstance(found, dict)
    assert (found["username"], found["role"]) == ("operator", "operator")
    assert user({"Authorization": f"Bearer {token}"}) == found
    assert user(cookie) is user({}) is user({"Authorization": "Bearer wrong"}) is None
