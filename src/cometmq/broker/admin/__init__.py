"""What administrators ask a broker: one file a subject."""
