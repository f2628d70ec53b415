"""The first sentence of each command's help: `make openapi` writes them."""

# ruff: noqa: E501

SUMMARIES = {
    "login": "Logs in to a gateway, and keeps the token in its context.",
    "logout": "Revokes the token, and removes it from the context.",
    "contexts": "Manages the contexts: the gateways that you know.",
    "subscribers": "Finds and changes the sessions of subscribers.",
    "jobs": "Shows and cancels jobs: work on many sessions, which `--where` starts.",
    "events": "Follows the session events until Ctrl-C, one line per event.",
    "interfaces": "Lists the interfaces of the gateway.",
    "vlans": "Lists the VLANs that the demux has made.",
    "qos": "Lists the shapers of the sessions.",
    "routes": "Lists the routes of the kernel.",
    "bgp": "Lists the BGP neighbours, as FRR shows them.",
    "cgnat": "Lists the sessions that are steered to the CGNAT appliance.",
    "demux": "Lists the VLANs of the demux with their state.",
    "faults": "Lists what the gateway could not repair in the data plane.",
    "traffic": "Lists the traffic of all trunks over time, the oldest first.",
    "config": "Reads and changes the configuration.",
    "users": "Manages the users of the API and their roles.",
    "backup": "Writes the running configuration to FILE, as JSON.",
    "restore": "Restores the configuration of a backup.",
    "status": "Shows the state of the gateway on one screen: dependencies, sessions, traffic, faults, candidate.",
    "health": "Shows whether the gateway and its core respond, and the sources of sessions that do not.",
    "version": "Shows the version of the gateway; `gatewayctl --version` shows that of this command.",
    "audit": "Lists the changes and the refused requests, the newest first.",
    "webhooks": "Registers and tests the receivers of events.",
    "rescue": "Repairs the access to the API, as root on the gateway, over the core's socket.",
    "completion": "Prints the completion for a shell, which the package has installed already.",
}
