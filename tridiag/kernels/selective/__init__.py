"""Selective scans: recurrences of several states, of which only what is read from them is stored."""
