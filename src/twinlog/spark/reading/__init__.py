"""What readers of topics and stores do: plan in the driver, fetch and decode in the workers."""
