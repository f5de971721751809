"""The broker: what it decides about sends, pulls, offsets, clients, locks, retry and delay."""
