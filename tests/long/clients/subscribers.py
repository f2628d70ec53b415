"""A client in Python, with the package that openapi-python-client makes of the document."""

import json
import sys

from generated_client import AuthenticatedClient, Client
from generated_client.api.login import login_log_in
from generated_client.api.subscribers import subscribers_change_rate, subscribers_index, subscribers_show
from generated_client.models import (
    LoginRequest,
    RateChange,
    RequestError,
    SubscribersChangeRateResponse200,
    SubscribersIndexResponse200,
    SubscribersIndexSort,
    SubscribersShowResponse200,
    Token,
)

url, username, password, certificate = sys.argv[1:]

client = Client(base_url=url, verify_ssl=certificate)
token = login_log_in.sync(client=client, body=LoginRequest(username=username, password=password))
assert isinstance(token, Token), token
api = AuthenticatedClient(base_url=url, token=token.access_token, verify_ssl=certificate)

page = subscribers_index.sync(client=api, limit=2, sort=SubscribersIndexSort("-id"))
assert isinstance(page, SubscribersIndexResponse200), page
ids = [session.id for session in page.data.sessions]

one = subscribers_show.sync(ids[0], client=api)
assert isinstance(one, SubscribersShowResponse200), one

body = RateChange(rate_down="250 Mbit", rate_up="50mbps")
changed = subscribers_change_rate.sync(ids[0], client=api, body=body)
assert isinstance(changed, SubscribersChangeRateResponse200), changed

wrong = RateChange(rate_down="fast", rate_up="50mbps")
refused = subscribers_change_rate.sync(ids[0], client=api, body=wrong)
assert isinstance(refused, RequestError), refused

said = {
    "ids": ids,
    "gateway": one.data.gateway,
    "username": one.data.username,
    "rate_down_bps": changed.data.rate_down_bps,
    "problems": [problem.path for problem in refused.errors],
}
sys.stdout.write(json.dumps(said))
