"""Daemons that terminate the connections of subscribers, each behind one port."""
