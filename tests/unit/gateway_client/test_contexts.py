"""Which gateway a command calls."""

import fcntl
import json
from base64 import urlsafe_b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from gateway_client.contexts import Context, Contexts, ContextsFile
from gateway_client.errors import BadContext

LAB = Context("lab", "https://lab:8443", "/lab.pem", "admin", "token of lab")
BNG = Context("bng", "https://bng:8443", None, "admin", "token of bng")
KNOWN = Contexts("lab", {"lab": LAB, "bng": BNG})


@pytest.mark.parametrize(
    ("name", "url", "chosen"),
    [
        ("bng", LAB.url, BNG),
        (None, "https://bng:8443/", BNG),
        (None, None, LAB),
        (None, "https://new", Context("new", "https://new")),
    ],
)
def test_a_name_outdoes_the_environment_and_that_the_current_context(
    name: str | None, url: str | None, chosen: Context
) -> None:
    assert KNOWN.choose(name, {"GATEWAY_URL": url} if url else {}) == chosen
    # Without a context, it is the gateway of this machine.
    assert Contexts().choose(None, {}) == Context("localhost:8443", "https://localhost:8443")


def test_of_contexts_that_differ_the_current_one_has_the_token() -> None:
    assert KNOWN.find(BNG.url, None, "lab") == Context("lab", BNG.url)
    second = Context("second", LAB.url, token="another token")
    both = Contexts("second", {"lab": LAB, "second": second})
    assert both.choose(None, {"GATEWAY_URL": LAB.url}) == second
    left = KNOWN.remove("lab")
    assert (left.current, list(left.by_name)) == (None, ["bng"])


@pytest.mark.parametrize("url", ["http://bng", "bng:8443", "https://", "https://admin:word@bng", ""])
def test_a_url_that_could_leak_a_token_is_refused(url: str) -> None:
    with pytest.raises(BadContext):
        Contexts().find(url, None)


def test_while_one_process_edits_the_contexts_another_waits(tmp_path: Path) -> None:
    file = ContextsFile({"XDG_CONFIG_HOME": str(tmp_path)})

    def change(contexts: Contexts) -> Contexts:
        with (file.path.parent / ".lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return KNOWN

    file.edit(change)
    assert file.read() == KNOWN


def test_labels_are_stored_and_an_unlabelled_context_is_stored_as_before(tmp_path: Path) -> None:
    file = ContextsFile({"XDG_CONFIG_HOME": str(tmp_path)})
    file.edit(lambda _: KNOWN.change_labels("lab", add=["west", "edge"]))
    stored = json.loads(file.path.read_text())["contexts"]
    assert stored["lab"]["labels"] == ["edge", "west"]
    assert "labels" not in stored["bng"]
    assert file.read().by_name["lab"] == replace(LAB, labels=("edge", "west"))


@pytest.mark.parametrize("labels", ["west", [7], None])
def test_labels_of_another_type_are_an_error_of_the_file(tmp_path: Path, labels: object) -> None:
    file = ContextsFile({"XDG_CONFIG_HOME": str(tmp_path)})
    file.edit(lambda _: KNOWN)
    document = json.loads(file.path.read_text())
    document["contexts"]["lab"]["labels"] = labels
    file.path.write_text(json.dumps(document))
    with pytest.raises(BadContext, match="labels of lab is not a list of texts"):
        file.read()


def test_a_label_selects_the_contexts_that_have_it() -> None:
    labelled = KNOWN.change_labels("lab", add=["west"]).change_labels("bng", add=["west", "edge"])
    assert [each.name for each in labelled.find_by_label("west")] == ["lab", "bng"]
    assert [each.name for each in labelled.find_by_label("edge")] == ["bng"]
    with pytest.raises(BadContext, match="no context has the label 'east'; known labels: edge, west"):
        labelled.find_by_label("east")
    fewer = labelled.change_labels("bng", add=["new"], remove=["west", "nowhere"])
    assert fewer.by_name["bng"].labels == ("edge", "new")
    with pytest.raises(BadContext, match="there is no context 'other'"):
        labelled.change_labels("other", add=["west"])


def test_a_login_keeps_the_labels_that_the_context_has_by_then() -> None:
    labelled = KNOWN.change_labels("lab", add=["west"])
    assert labelled.add(replace(LAB, token="new")).by_name["lab"].labels == ("west",)
    moved = labelled.find("https://elsewhere", None, "lab")
    assert labelled.add(moved).by_name["lab"] == Context("lab", "https://elsewhere", labels=("west",))


def problem(text: str | None, now: float = 99.0) -> str | None:
    return Context("lab", "https://lab", token=text).describe_token_problem(now)


def token(claims: str) -> str:
    """One with any claims: no library would make some of them."""
    return f"e30.{urlsafe_b64encode(claims.encode()).decode().rstrip('=')}.c2ln"


def test_a_token_is_good_until_it_expires() -> None:
    assert problem(token('{"exp": 100}'), 99.9) is None
    assert str(problem(token('{"exp": 100}'), 100.0)).startswith("the token expired at 1970-01-01 ")
    assert problem(None) == problem("") == "there is no token: nobody is logged in"
    for claims in ("{}", '{"exp": null}'):
        assert problem(token(claims)) == "the token does not say when it expires"
    for exp in ("1" + "0" * 400, "1e999", "NaN", "-1", '"123"', "[]", "999999999999"):
        said = problem(token(f'{{"exp": {exp}}}'))
        assert said == "the token does not expire at a time: its exp is not one", exp


@pytest.mark.parametrize(
    "text",
    [
        *("opaque", "a.b.c", "..", "e30.e30.e30.e30", "a b.c.d", "é.é.é", "x\ny.e30.z"),
        *map(token, ("[" * 100_000, "1" * 5000, "null")),
    ],
    ids=lambda text: ascii(text[:16]),
)
def test_what_is_no_token_is_said(text: str) -> None:
    assert problem(text) == "the token is not a JSON Web Token (RFC 7519)"
