"""What several pages use: live text, tables, charts, dialogs. In: values. Out: elements. Must not ask a cluster."""
