"""What differs in the metadata of two brokers, two stores, or one broker at two moments."""
