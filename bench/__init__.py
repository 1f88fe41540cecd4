"""Twinlog and Java side by side: the same bytes, alternating rounds, medians and ratios."""
