"""Mirrors by name in a catalog: what is to be registered, what is, and the clients of three kinds of catalogs."""
