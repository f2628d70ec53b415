"""The interface files, which come from the contracts."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from varlink import scanner

import gateway_contract
from gateway_api.hub import interface
from gateway_api.hub.interface import HUB
from gateway_contract.contract import (
    Contract,
    Method,
    Nothing,
    Record,
    bind_handlers,
    format_interface,
    record_of,
)
from gateway_contract.core.interface import CORE

FOLDERS = {CORE: Path(gateway_contract.__file__).parent, HUB: Path(interface.__file__).parent}
CONTRACTS = [*FOLDERS]


class Things(Record, frozen=True):
    """Things."""

    things: tuple[str, ...]


class ListAllThings(Method[Things], frozen=True):
    """Lists things."""


class CountThings(Method[Things], frozen=True):
    """Lists them again."""


class Drop(Method[Nothing], frozen=True):
    """Drops all."""


EXAMPLE = Contract("org.example.things", "Things.", (ListAllThings, CountThings, Drop), ())


class Service:
    def list_all_things(self, call: ListAllThings) -> Things:
        return Things(())

    def count_things(self, call: CountThings, peer: Any) -> Things:
        return Things(())

    def drop(self, call: Drop) -> Nothing:
        return Nothing()


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)
def test_the_interface_file_is_the_contract(contract: Contract) -> None:
    text = (FOLDERS[contract] / f"{contract.name}.varlink").read_text()
    assert text == format_interface(contract), "make interface writes it"
    members = list(scanner.Interface(text).members)
    assert members[-1] == "InternalError"
    assert {method.__name__ for method in contract.methods} < set(members)


def test_an_unknown_parameter_is_an_error_in_every_call() -> None:
    for method in (method for contract in CONTRACTS for method in contract.methods):
        with pytest.raises(msgspec.ValidationError, match="unknown field `misspelt`"):
            msgspec.json.decode(b'{"misspelt": null}', type=method)


def test_each_method_has_the_handler_of_its_name_or_is_refused_at_the_start() -> None:
    service = Service()
    methods = bind_handlers(EXAMPLE, object(), service).methods
    assert {name: method.handler for name, method in methods.items()} == {
        "ListAllThings": service.list_all_things,
        "CountThings": service.count_things,
        "Drop": service.drop,
    }
    assert [name for name, method in methods.items() if method.knows_peer] == ["CountThings"]
    assert methods["CountThings"].parameters is CountThings
    with pytest.raises(NotImplementedError, match="ListAllThings"):
        bind_handlers(EXAMPLE, object())


# Copies


class _Shape(Record, frozen=True):
    name: str
    kind: str
    sides: int = 0


class _Placed(_Shape, frozen=True, kw_only=True):
    at: str


class _Drawn(Record, frozen=True):
    kind: str
    sides: int
    pen: str

    @property
    def name(self) -> str:
        return f"drawn {self.kind}"


class _Box(Record, frozen=True):
    kind: str


def test_a_record_has_the_values_then_the_fields_of_its_sources_then_defaults() -> None:
    drawn = _Drawn("square", 4, "red")
    assert record_of(_Shape, drawn) == _Shape("drawn square", "square", 4)
    assert record_of(_Shape, _Box("cube"), drawn) == _Shape("drawn square", "cube", 4)
    assert record_of(_Shape, drawn, _Box("cube"), kind="circle", sides=0) == _Shape(
        "drawn square", "circle", 0
    )
    assert record_of(_Shape, _Box("cube"), name="box") == _Shape("box", "cube", 0)
    assert record_of(_Placed, drawn, at="here") == _Placed("drawn square", "square", 4, at="here")
    with pytest.raises(TypeError, match="name"):
        record_of(_Shape, _Box("cube"))
    with pytest.raises(TypeError, match="colour"):
        record_of(_Shape, _Drawn("square", 4, "red"), colour="red")
