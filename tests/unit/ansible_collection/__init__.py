"""Tests of the Ansible collection, without Ansible."""
