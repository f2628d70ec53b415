"""`gatewayctl`: the command line of the API. A client over HTTPS like any other, for people and scripts."""
