"""What torch's entry points call, apart from the package, so that nothing in the package can break `import torch`: a copy
that is damaged, or half of an upgrade, is told about in a warning."""


def register() -> None:
    """Makes "ranvier" known to torch.distributed, if the package can be imported. Never raises."""
    try:
        import ranvier._register

        ranvier._register.register()
    except Exception as error:
        _warn(f"the ranvier backend was not registered: {type(error).__name__}: {error}")


def _warn(text: str) -> None:
    import sys
    import warnings

    try:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    except Warning:  # python -W error
        print(text, file=sys.stderr)
