"""Records of the responses of the alternative profile."""

from typing import Annotated

from msgspec import Meta, Struct

from gateway_api.wire.contract import ListReply, PagedMethod
from gateway_api.wire.core.sessions import AssignedAddress, Health, SessionDetail

Speed = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]*[1-9])? [kMG]?bit/s\Z")]
Uptime = Annotated[str, Meta(pattern=r"^([1-9][0-9]*d )?[012][0-9]:[0-5][0-9]:[0-5][0-9]\Z")]


class Subscriber(Struct):
    """An item of the list."""

    id: int
    username: str
    ip_address: AssignedAddress
    interface: str
    speed_down: Speed
    speed_up: Speed
    uptime: Uptime


class SubscribersReply(ListReply, frozen=True):
    """A page of the list."""

    subscribers: tuple[Subscriber, ...]


class ListSubscribers(PagedMethod[SubscribersReply], frozen=True):
    """The list."""


class SubscriberDetail(SessionDetail, frozen=True, kw_only=True):
    speed_down: Speed
    speed_up: Speed
    uptime: Uptime


class Status(Health, frozen=True):
    uptime: Uptime
    core_reachable: bool
