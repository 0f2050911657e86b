"""Servers and proxies that tests talk to over a socket: real ones, scripted ones, and proxies that inject faults."""
