"""The varlink protocol over Unix stream sockets (https://varlink.org)."""
