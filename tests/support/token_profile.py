"""Schemas of what the alternative profile responds with."""

from marshmallow import validate

from gateway_api.base.fields import Flag, Text, Whole
from gateway_api.web.schemas.records import ADDRESS, Record
from gateway_api.web.schemas.sessions import SessionDetail
from gateway_api.web.schemas.system import Health

_SPEED = validate.Regexp(r"[0-9]+(\.[0-9]*[1-9])? [kMG]?bit/s\Z")
_UPTIME = validate.Regexp(r"([1-9][0-9]*d )?[012][0-9]:[0-5][0-9]:[0-5][0-9]\Z")


class Subscriber(Record):
    """An item of the list."""

    id = Whole()
    username = Text()
    ip_address = Text(validate=ADDRESS)
    interface = Text()
    speed_down = Text(validate=_SPEED)
    speed_up = Text(validate=_SPEED)
    uptime = Text(validate=_UPTIME)


class SubscriberDetail(SessionDetail):
    speed_down = Text(validate=_SPEED)
    speed_up = Text(validate=_SPEED)
    uptime = Text(validate=_UPTIME)


class Status(Health):
    uptime = Text(validate=_UPTIME)
    core_reachable = Flag()
