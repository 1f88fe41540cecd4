"""What writers of topics do: rows become send requests, sent until each is acknowledged."""
