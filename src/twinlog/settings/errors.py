"""Errors of the settings package."""


class SettingsError(Exception):
    """Settings that must not be used; the message has one line per problem, each with file and line."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))
