"""Public names of the package."""

import importlib

import dnlnet


def test_a_function_keeps_its_name_when_the_folder_of_that_name_is_imported() -> None:
    importlib.import_module("dnlnet.export.programs")
    assert callable(dnlnet.export)
