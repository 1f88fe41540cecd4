"""Dialogs that change topics and groups. In: a page's context and what is there now. Out: requests through `act`."""
