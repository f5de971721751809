"""The broker: everything it decides about sends, pulls, offsets, clients, locks, retry and delay."""
