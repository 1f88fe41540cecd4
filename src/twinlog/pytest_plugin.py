"""The pytest plug-in; pytest imports it in every run where Twinlog is installed, so it must import fast."""
