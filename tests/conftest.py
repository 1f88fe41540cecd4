"""Settings for all tests."""

import hypothesis

# A busy machine must not turn a slow example into a failure; a real failure prints how to repeat it.
hypothesis.settings.register_profile("twinlog", deadline=None, print_blob=True)
hypothesis.settings.load_profile("twinlog")
