"""Periodic systems."""
