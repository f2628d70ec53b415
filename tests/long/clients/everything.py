"""A client in Python, with the package that openapi-generator makes of the document. It reads all that can be
read, changes a rate and commits a change."""

import inspect
import json
import re
import sys

import gateway

url, username, password, certificate = sys.argv[1:]
task = json.load(sys.stdin)

configuration = gateway.Configuration(host=url, ssl_ca_cert=certificate)
with gateway.ApiClient(configuration) as client:
    login = gateway.LoginRequest(username=username, password=password)
    configuration.access_token = gateway.LoginApi(client).login_log_in(login).access_token

    for operation, tag in task["reads"]:
        # The generator writes no _ before a number.
        name = re.sub("_([0-9])", r"\1", operation)
        call = getattr(getattr(gateway, f"{tag.capitalize()}Api")(client), name)
        parameters = inspect.signature(call).parameters.values()
        required = {each.name for each in parameters if each.default is each.empty}
        call(**{name: value for name, value in task["names"].items() if name in required})

    change = gateway.RateChange(rate_down="250 Mbit", rate_up="50mbps")
    changed = gateway.SubscribersApi(client).subscribers_change_rate(task["names"]["id"], change)
    editor = gateway.ConfigurationApi(client)
    editor.configuration_set_value(gateway.SetValue(path="qos.default_down", value=task["rate"]))
    committed = editor.configuration_commit()

said = {"rate_down_bps": changed.data.rate_down_bps, "committed": committed.data.committed}
sys.stdout.write(json.dumps(said))
