"""Sessions of subscribers: their selection by filters, and jobs that change all selected sessions."""

from __future__ import annotations

import time

from ansible_collections.subscriber_gateway.api.plugins.module_utils.gateway import GatewayError

FILTERS = ("type", "username", "ip_address", "mac_address", "interface", "search")
FILTER_OPTIONS = {
    "type": {"type": "str", "choices": ["pppoe", "dhcp"]},
    "username": {"type": "str"},
    "ip_address": {"type": "str"},
    "mac_address": {"type": "str"},
    "interface": {"type": "str"},
    "search": {"type": "str"},
    "per_second": {"type": "int", "default": 100},
}

_POLL_SECONDS = 0.5


def read_filter(params):
    """Return the filters among the options of a module."""
    return {name: params[name] for name in FILTERS if params[name] is not None}


def list_sessions(gateway, filters):
    """Return the sessions that match all filters. Raises GatewayError if a request fails."""
    return [session for page in gateway.list_pages("/subscribers", "sessions", **filters) for session in page]


def run_job(gateway, path, body):
    """Start a job, wait until it has ended, and return its record. Raises GatewayError if a request fails, or
    if the job did not act on each of its sessions."""
    job = gateway.request("POST", path, body).data
    while job["state"] == "running":
        time.sleep(_POLL_SECONDS)
        job = gateway.get(f"/subscribers/jobs/{job['id']}")
    if job["state"] != "done" or job["failed"]:
        first = [f"session {each['session_id']}: {each['message']}" for each in job["errors"]]
        counts = f"{job['done']} of {job['total']} sessions done, {job['failed']} failed"
        reasons = "; ".join([counts, *first])
        raise GatewayError(f"{gateway.url}: job {job['id']} is {job['state']}: {reasons}")
    return job
