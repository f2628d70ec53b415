"""Modules of `gateway_api` together with modules of `gateway_core`, in one process."""
